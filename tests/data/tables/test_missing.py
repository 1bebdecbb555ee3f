"""Words that say that nothing is known are those of tables in graphs, too."""

import networkx
import pytest

from seqkit.data.sources.graph_file import GraphFile
from seqkit.interfaces import IGNORE

WORDS = ("#N/A", "#NA", "-NaN", "<NA>", "NULL", "n/a", "+nan", "(null)", r"\N", "NaT", " nan ")


@pytest.mark.parametrize(
    ("word", "suffix"),
    [*((word, ".graphml") for word in WORDS), *((word, ".csv") for word in WORDS[-3:])],
)
def test_a_node_without_a_label_is_unlabelled_and_a_number_may_be_missing(tmp_path, word, suffix):
    ring = networkx.cycle_graph(20)
    nodes = [{"label": "ab"[i // 10], "town": ("Ulm", "Bonn")[i % 2]} for i in range(20)]
    nodes[3] = {"label": word, "town": word}
    if suffix == ".graphml":
        ring.add_nodes_from(enumerate(nodes))
        networkx.write_graphml(ring, path := tmp_path / "g.graphml")
    else:
        path = tmp_path
        rows = [f"{i},{n['label']},{n['town']}" for i, n in enumerate(nodes)]
        (tmp_path / "nodes.csv").write_text("\n".join(["id,label,town", *rows]))
        (tmp_path / "edges.csv").write_text(
            "source,target\n" + "".join(f"{u},{v}\n" for u, v in ring.edges)
        )
    splits = GraphFile(str(path), eigenvectors=0).splits()
    assert splits.names == ["a", "b"]
    assert all(part[0].label[3] == IGNORE for part in (splits.train, splits.valid, splits.test))
    assert splits.train[0].raw.nodes[3].tolist() == [0, 0, 1]
