"""Cells that say that nothing is known: one list for tables and graphs, as targets, features and files."""

import networkx
import pytest

from seqkit.data import Table
from seqkit.data.sources.graph_file import GraphFile
from seqkit.data.tables.schema import Given
from seqkit.interfaces import IGNORE

WORDS = ("#N/A", "#NA", "-NaN", "<NA>", "NULL", "n/a", "+nan", "(null)", r"\N", "NaT", " nan ")


def table(tmp_path, *rows, head="text,label"):
    path = tmp_path / "t.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return str(path)


def test_no_class_and_no_measurement_is_called_missing(tmp_path, caplog, subtests):
    for word in WORDS:
        for rows, names in (("ab" * 5, ["a", "b"]), ([f"{i}.5" for i in range(10)], None)):
            with subtests.test(f"{word} {names}"):
                caplog.clear()
                path = table(tmp_path, *(f"a {i},{cell}" for i, cell in enumerate(rows)), f"x,{word}", f"y,{word}")
                splits = Table(path).splits()
                assert (splits.names, len(splits.train) + len(splits.test)) == (names, 10)
                assert f"2 of 12 rows are left out (no label: 2, the first: {path}, line 12)" in caplog.text


@pytest.mark.parametrize(
    ("word", "suffix"), [*((word, ".graphml") for word in WORDS), *((word, ".csv") for word in WORDS[-3:])]
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
        table(tmp_path, *(f"{i},{n['label']},{n['town']}" for i, n in enumerate(nodes)), head="id,label,town")
        (tmp_path / "t.csv").rename(tmp_path / "nodes.csv")
        (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in ring.edges))
    splits = GraphFile(str(path), index=False).splits()
    assert splits.names == ["a", "b"]
    assert all(part[0].label[3] == IGNORE for part in (splits.train, splits.valid, splits.test))
    assert splits.train[0].raw.nodes[3].tolist() == [0, 0, 1]


def test_a_text_may_be_any_word(tmp_path):
    """The word "null" has a pronunciation, and is a word to translate."""
    rows = [f"a {i},b {i}" for i in range(10)]
    path = table(tmp_path, *rows, "null,zero", "nan,bread", "a,NULL", head="source,target")
    splits = Table(path, Given(target_kind="text")).splits()
    samples = [*splits.train, *splits.test]
    assert len(samples) == 13
    assert {("null", "zero"), ("nan", "bread"), ("a", "NULL")} < {sample[:2] for sample in samples}
