"""Own graphs: what is read equals networkx's graph; what cannot be read is refused in one line that says what to do."""

import logging
import tracemalloc
import zipfile
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from seqkit.config import complete
from seqkit.data import graph_files
from seqkit.data.sources.graph_file import GraphFile
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE
from seqkit.runs.run import run
from seqkit.tokenizers import Graph


def two_groups(n=20, directed=False):
    """A ring of people with a number, a word, a bit and a group; every edge has a kind."""
    graph = networkx.DiGraph() if directed else networkx.Graph()
    for i in range(n):
        graph.add_node(
            f"p{i}",
            age=20 + i,
            town=("Ulm", "Bonn")[i % 2],
            likes=i % 3 == 0,
            club=("red", "blue")[i >= n / 2],
        )
    for i in range(n):
        graph.add_edge(f"p{i}", f"p{(i + 1) % n}", kind=("friend", "kin")[i % 2], weight=i / 7)
    return graph


def written(tmp_path, graph):
    networkx.write_graphml(graph, tmp_path / "own.graphml")
    return str(tmp_path / "own.graphml")


def labels(splits):
    """The label of every node, whichever split has it."""
    parts = [split[0].label for split in (splits.train, splits.valid, splits.test) if split]
    merged = torch.stack(parts).amax(dim=0)
    assert int((torch.stack(parts) != IGNORE).sum(dim=0).max()) == 1
    return merged


@pytest.mark.parametrize("directed", [False, True])
def test_a_graph_is_read_as_it_was_written(tmp_path, directed):
    graph = two_groups(directed=directed)
    splits = GraphFile(written(tmp_path, graph), edge_type="kind").splits()
    data = splits.train[0].raw
    nodes = list(graph)
    index = {node: i for i, node in enumerate(nodes)}
    expected = {((index[u], index[v]) if directed else frozenset((index[u], index[v]))): kind
                for u, v, kind in graph.edges(data="kind")}  # fmt: skip
    got = {((u, v) if directed else frozenset((u, v))): ("friend", "kin")[t]
           for (u, v), t in zip(data.edges.T.tolist(), data.edge_types.tolist())}  # fmt: skip
    assert got == expected
    assert data.directed == directed
    assert [splits.names[i] for i in labels(splits).tolist()] == [
        graph.nodes[node]["club"] for node in nodes
    ]
    age = np.array([graph.nodes[node]["age"] for node in nodes], np.float64)
    columns = data.nodes.double().numpy().T
    assert any(np.allclose(column, (age - age.mean()) / age.std(), atol=1e-6) for column in columns)
    for word in ("Ulm", "Bonn"):
        bits = [float(graph.nodes[node]["town"] == word) for node in nodes]
        assert any(np.array_equal(column, bits) for column in columns)


def test_an_edge_list_with_nodes_is_the_graph_that_its_graphml_is(tmp_path):
    graph = two_groups()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "edges.csv").write_text(
        "source,target\n" + "".join(f"{u},{v}\n" for u, v in graph.edges)
    )
    rows = "".join(
        f"{node},{a['age']},{a['town']},{int(a['likes'])},{a['club']}\n"
        for node, a in graph.nodes.items()
    )
    (folder / "nodes.csv").write_text("id,age,town,likes,club\n" + rows)
    by_table = GraphFile(str(folder)).splits()
    by_xml = GraphFile(written(tmp_path, graph)).splits()
    assert torch.equal(by_table.train[0].raw.nodes, by_xml.train[0].raw.nodes)
    assert torch.equal(by_table.train[0].raw.edges, by_xml.train[0].raw.edges)
    assert torch.equal(by_table.test[0].label, by_xml.test[0].label)
    named = GraphFile(str(folder / "edges.csv")).splits()
    assert torch.equal(named.train[0].raw.nodes, by_xml.train[0].raw.nodes)


def node_table(tmp_path, **columns):
    """A folder with a ring of nodes; each column's cells are repeated."""
    (tmp_path / "edges.csv").write_text(
        "source,target\n" + "".join(f"{i},{(i + 1) % 24}\n" for i in range(24))
    )
    rows = [
        ",".join([str(i), *(cells[i % len(cells)] for cells in columns.values())])
        for i in range(24)
    ]
    (tmp_path / "nodes.csv").write_text("\n".join([",".join(["id", *columns]), *rows]) + "\n")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["007", "12"], ["007", "12"]),
        (["00", "01"], ["00", "01"]),
        (["1_000", "999"], ["999", "1_000"]),
        (["1.0", "0.0", ""], ["0", "1"]),
        (["10000000000000001", "10000000000000002"], ["10000000000000001", "10000000000000002"]),
        (["3M", "IBM", "1e5", "(5)", "08:15"], ["(5)", "08:15", "1e5", "3M", "IBM"]),
        (["3M", "6M"], ["3M", "6M"]),
        (["08:15", "-7", "07:45"], ["-7", "07:45", "08:15"]),
        (["$5", "$10"], ["$5", "$10"]),
    ],
)
def test_labels_of_a_table_are_numbers_as_tables_read_them(tmp_path, cells, names):
    assert GraphFile(node_table(tmp_path, label=cells)).splits().names == names


def test_attributes_of_a_table_are_numbers_as_tables_read_them(tmp_path, caplog):
    table = node_table(
        tmp_path, label="ab", age=["7", "12", "-", "9"], code=["1_000", "2000"], zip=["01", "02"]
    )
    data = GraphFile(table, features=["age"], eigenvectors=0).splits().train[0].raw
    age = np.array([7, 12, np.nan, 9])
    assert data.nodes[:4, 1].tolist() == [0, 0, 1, 0]
    np.testing.assert_allclose(
        data.nodes[:4, 0], np.nan_to_num((age - np.nanmean(age)) / np.nanstd(age)), atol=1e-6
    )
    with caplog.at_level(logging.WARNING, "seqkit"):
        GraphFile(table, eigenvectors=0).splits()
    assert "code (2 categories), zip (2 categories)" in caplog.text


def test_decimal_commas_and_groups_of_digits_are_those_of_the_whole_table(tmp_path, caplog):
    cells = ["0,5", "1,5", "3,25", "10,75"]

    def numbers(more, name="age"):
        table = node_table(tmp_path, label=["a", "b"], age=cells, **more)
        for file in (tmp_path / "nodes.csv", tmp_path / "edges.csv"):
            rows = file.read_text().replace(",", ";")
            file.write_text(rows.replace("|", ","))
        caplog.clear()
        with caplog.at_level(logging.WARNING, "seqkit"):
            data = GraphFile(table, features=[name], eigenvectors=0).splits().train[0].raw
        return data.nodes[:4, 0].double().numpy()

    def standardised(*values):
        return pytest.approx((np.array(values) - np.mean(values)) / np.std(values), abs=1e-6)

    cells = [cell.replace(",", "|") for cell in cells]
    mass = ["1|250", "2|500", "3|750", "1|000"]
    assert numbers({}) == standardised(0.5, 1.5, 3.25, 10.75)
    assert "age (standardised)" in caplog.text
    assert numbers({"mass": mass}, "mass") == standardised(1.25, 2.5, 3.75, 1)
    cells = ["1", "2"]
    assert numbers({"mass": mass}, "mass") == standardised(1250, 2500, 3750, 1000)
    assert "mass (standardised, '1,250' is read as 1250)" in caplog.text


def test_blanks_beside_cells_are_none_of_a_name(tmp_path):
    rows = {"edges": ["source, target"], "nodes": ["id, label, age"]}
    for i in range(24):
        rows["edges"].append(f"n{i}, n{(i + 1) % 24}")
        rows["nodes"].append(f"n{i} , {'ab'[i % 2]}, {i % 5}")
    for name, lines in rows.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    splits = GraphFile(str(tmp_path), features=["age"]).splits()
    assert splits.names == ["a", "b"]
    assert splits.train[0].raw.edges.tolist() == [[*range(24)], [*range(1, 24), 0]]


@pytest.mark.parametrize("word", ["NA", "None", "-", "?"])
@pytest.mark.parametrize("is_xml", [True, False])
def test_a_label_that_may_mean_none_is_a_class(tmp_path, word, is_xml):
    path = node_table(tmp_path, label=["a", word])
    if is_xml:
        graph = two_groups()
        networkx.set_node_attributes(
            graph, {f"p{i}": ("a", word)[i % 2] for i in range(20)}, "club"
        )
        path = written(tmp_path, graph)
    assert sorted(GraphFile(path).splits().names) == sorted(["a", word])


def test_masks_of_a_table_are_words_or_numbers(tmp_path):
    masks = {"train_mask": ["True", "False"], "test_mask": ["False", "True"]}
    splits = GraphFile(node_table(tmp_path, label=["a", "a", "b", "b"], **masks)).splits()
    assert (splits.train[0].label != IGNORE).tolist() == [True, False] * 12


def test_a_node_in_no_split_may_say_so(tmp_path):
    table = node_table(tmp_path, label=["a", "b"], split=["train", "train", "test", "test", "NA"])
    splits = GraphFile(table).splits()
    assert (splits.train[0].label != IGNORE).tolist() == [i % 5 < 2 for i in range(24)]


def tensors(n=12):
    g = np.random.default_rng(0)
    edges = np.array([(i, (i + 1) % n) for i in range(n)]).T
    split = np.arange(n) % 4
    return {
        "x": g.normal(size=(n, 3)).astype(np.float32), "edge_index": np.concatenate([edges, edges[::-1]], axis=1),
        "y": np.arange(n) // 4, "train_mask": split < 2, "val_mask": split == 2, "test_mask": split == 3,
    }  # fmt: skip


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_tensors_are_read_with_their_masks(tmp_path, suffix):
    arrays, path = tensors(), tmp_path / f"own{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
    splits = GraphFile(str(path), eigenvectors=0).splits()
    assert np.array_equal(splits.train[0].raw.nodes.numpy(), arrays["x"])
    assert np.array_equal(splits.train[0].raw.edges.numpy(), arrays["edge_index"])
    for split, mask in (
        (splits.train, "train_mask"),
        (splits.valid, "val_mask"),
        (splits.test, "test_mask"),
    ):
        assert split[0].label.tolist() == np.where(arrays[mask], arrays["y"], IGNORE).tolist()
    assert not splits.train[0].raw.directed
    one_way = {**arrays, "edge_index": arrays["edge_index"][:, :12]}
    np.savez(tmp_path / "one.npz", **one_way)
    assert GraphFile(str(tmp_path / "one.npz")).splits().train[0].raw.directed


def test_unlabelled_nodes_stay_in_the_graph_and_in_no_split(tmp_path):
    graph = two_groups()
    for i in (0, 7, 13):
        del graph.nodes[f"p{i}"]["club"]
    splits = GraphFile(written(tmp_path, graph)).splits()
    assert (labels(splits) == IGNORE).nonzero()[:, 0].tolist() == [0, 7, 13]
    assert len(splits.train[0].raw.nodes) == 20


def test_attributes_that_are_no_features_are_named_with_the_reason(tmp_path, caplog):
    graph = two_groups()
    for i, node in enumerate(graph):
        graph.nodes[node].update(nick=f"n{i}", country="Italy")
    with caplog.at_level(logging.WARNING, logger="seqkit"):
        data = (
            GraphFile(written(tmp_path, graph), target="club", eigenvectors=0).splits().train[0].raw
        )
    assert data.nodes.shape == (20, 4)
    assert "; not used: nick (20 different words), country (the same at all nodes)" in caplog.text


def test_loops_parallel_edges_and_nodes_without_edges_are_counted_and_kept_out_of_the_adjacency(
    tmp_path, caplog
):
    graph = networkx.MultiGraph(two_groups())
    graph.add_edge("p0", "p0")
    graph.add_edge("p0", "p1")
    graph.add_node("alone", age=3, town="Ulm", likes=False, club="red")
    with caplog.at_level(logging.WARNING, logger="seqkit"):
        splits = GraphFile(written(tmp_path, graph)).splits()
    for said in (
        "21 nodes, 20 undirected edges",
        "1 loops left out",
        "1 edges given again",
        "1 nodes without edges",
    ):
        assert said in caplog.text
    tokenizer = Graph(None, directed=None)
    tokenizer.fit([splits.train[0].raw])
    tokens = tokenizer.encode(splits.train[0].raw)
    assert len(tokens) == 21
    assert len(tokens.adjacency) == 40


def test_splits_are_by_class_seeded_and_stay_as_they_are(tmp_path):
    path = written(tmp_path, two_groups(40))
    first, again, other = (GraphFile(path, seed=seed).splits() for seed in (0, 0, 1))
    assert torch.equal(first.test[0].label, again.test[0].label)
    assert not torch.equal(first.test[0].label, other.test[0].label)
    counts = [
        torch.bincount(s[0].label[s[0].label != IGNORE]).tolist()
        for s in (first.train, first.valid, first.test)
    ]
    assert counts == [[14, 14], [2, 2], [4, 4]]


def test_a_split_by_attribute_is_kept(tmp_path):
    graph = two_groups()
    for i, node in enumerate(graph):
        graph.nodes[node]["split"] = ("train", "val", "test")[i % 3]
    splits = GraphFile(written(tmp_path, graph)).splits()
    for split, k in ((splits.train, 0), (splits.valid, 1), (splits.test, 2)):
        assert [i % 3 for i in (split[0].label != IGNORE).nonzero()[:, 0].tolist()] == [k] * len(
            range(k, 20, 3)
        )


def test_without_features_a_node_has_eigenvectors_or_where_chosen_its_degree(tmp_path, caplog):
    graph = two_groups()
    for values in graph.nodes.values():
        for name in ("age", "town", "likes"):
            del values[name]
    path = written(tmp_path, graph)
    with caplog.at_level(logging.WARNING, logger="seqkit"):
        assert GraphFile(path).splits().train[0].raw.nodes.shape == (20, 8)
    assert "first 8 eigenvectors, so" in caplog.text
    assert GraphFile(path, eigenvectors=0).splits().train[0].raw.nodes.shape == (20, 0)
    with pytest.raises(ValueError, match="eigenvectors is -1"):
        GraphFile(path, eigenvectors=-1)


def blocks(path, n=240, num_blocks=3, weak=0.3):
    """A block model whose nodes have one number that says little about their block."""
    g = np.random.default_rng(0)
    block = np.arange(n) % num_blocks
    pairs = np.triu(g.random((n, n)) < np.where(block[:, None] == block, 0.1, 0.01), 1).nonzero()
    np.savez(
        path, x=(g.normal(size=n) + weak * block)[:, None], edge_index=np.stack(pairs), y=block
    )
    return str(path)


def test_nodes_with_features_get_eigenvectors_where_they_are_asked_for(tmp_path, caplog):
    path = blocks(tmp_path / "g.npz")
    arrays = dict(np.load(path))
    source = GraphFile(path)
    with caplog.at_level(logging.WARNING, logger="seqkit"):
        assert source.splits().train[0].raw.nodes.shape == (240, 1)
    assert "eigenvectors are not used (docs/data/graphs.md)" in caplog.text
    assert source.decided() == {"eigenvectors": 0}
    source = GraphFile(path, eigenvectors=8)
    nodes = source.splits().train[0].raw.nodes
    assert (nodes.shape, source.decided()) == ((240, 9), {"eigenvectors": 8})
    again = GraphFile(path, **source.decided())
    assert torch.equal(again.splits().train[0].raw.nodes, nodes)
    assert torch.equal(again.nodes_of(path)[0].nodes, nodes)
    np.savez(path, **(arrays | {"x": arrays["y"] % 2}))
    assert GraphFile(path, eigenvectors=5).splits().train[0].raw.nodes.shape == (240, 7)


@pytest.mark.slow
def test_where_features_say_little_eigenvectors_do(tmp_path):
    """Without them it is 50 %."""
    keys = ["--data", blocks(tmp_path / "g.npz"), "--data.eigenvectors", "8"]
    config = complete("graph/nodes", "debug", [*keys, "--trainer.max_epochs", "60"])
    assert run(config, tmp_path / "run")["metrics"]["accuracy"] > 0.9
    written = complete(tmp_path / "run" / "config.yaml")
    assert written["data"]["source"]["eigenvectors"] == 8


def test_a_missing_number_is_a_mean_and_a_column_says_so(tmp_path):
    graph = two_groups()
    del graph.nodes["p3"]["age"]
    nodes = GraphFile(written(tmp_path, graph), features=["age"]).splits().train[0].raw.nodes
    assert nodes[3].tolist() == [0.0, 1.0]
    assert float(nodes[:, 0].sum()) == pytest.approx(0, abs=1e-4)
    assert float(nodes[:, 1].sum()) == 1


def test_what_was_left_open_is_learned_and_travels_with_the_state(tmp_path):
    data = (
        GraphFile(written(tmp_path, two_groups(directed=True)), edge_type="kind")
        .splits()
        .train[0]
        .raw
    )
    tokenizer, other = Graph(None, directed=None), Graph(None, directed=None)
    with pytest.raises(ValueError, match="call fit"):
        _ = tokenizer.spec
    tokenizer.fit([data])
    assert tokenizer.state() == {
        "num_features": 4, "num_categories": 0, "num_edge_types": 2, "num_edge_features": 0, "directed": True
    }  # fmt: skip
    other.load_state(tokenizer.state())
    assert other.spec == tokenizer.spec
    assert torch.equal(other.encode(data).content, tokenizer.encode(data).content)
    assert Graph(4).state() == {}


def test_a_default_holds_for_nodes_without_a_value_and_a_key_without_name_is_its_id(
    tmp_path, caplog, recwarn
):
    keys = (
        '<key id="d0" for="node" attr.name="club" attr.type="string"><default>z</default></key>'
        '<key id="age" for="node" attr.type="int"><default>0</default></key>'
        '<key id="d2" for="edge" attr.name="kind" attr.type="boolean"><default>true</default></key>'
    )
    nodes = "".join(
        f'<node id="n{i}">{f"""<data key="d0">{"xy"[i % 2]}</data>""" if i < 8 else ""}'
        f'<data key="age">{i % 3}</data></node>'
        for i in range(12)
    )
    edges = '<edge source="n0" target="n1"/><edge source="n1" target="n2"><data key="d2">0</data></edge>'
    path = tmp_path / "g.graphml"
    path.write_text(
        f'<graphml>{keys}<graph edgedefault="undirected">{nodes}{edges}</graph></graphml>'
    )
    splits = GraphFile(str(path), edge_type="kind").splits()
    assert splits.names == ["x", "y", "z"]
    assert "club" in caplog.text
    assert "classes: x 4, y 4, z 4" in caplog.text
    assert "unlabelled" not in caplog.text
    assert "features: age (standardised)" in caplog.text
    assert splits.train[0].raw.edge_types.tolist() == [1, 0]
    assert not recwarn.list


# ── hostile files ────────────────────────────────────────────────────────────────────────────────────────────────────

GRAPHML = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    '<key id="c" for="node" attr.name="label" attr.type="string"/>'
)
NODES = "".join(f'<node id="n{i}"><data key="c">{"ab"[i % 2]}</data></node>' for i in range(8))
LAUGHS = '<!DOCTYPE g [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
EXTERNAL = '<!DOCTYPE g [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


def graphml(body, before=""):
    return f'{before}{GRAPHML}<graph edgedefault="undirected">{body}</graph></graphml>'


HOSTILE_XML = {
    "billion laughs": (graphml(NODES, LAUGHS), "document type or entity"),
    "external entity": (graphml(NODES, EXTERNAL), "document type or entity"),
    "deep nesting": ("<a>" * 100_000 + "</a>" * 100_000, "0 elements <graph>"),
    "cut in the middle": (graphml(NODES)[:200], "is no XML"),
    "no XML": ("label,node\n", "is no XML"),
    "no graph": ("<graphml/>", "0 elements <graph>"),
    "two graphs": (GRAPHML + "<graph edgedefault='directed'/>" * 2 + "</graphml>", "2 elements <graph>"),
    "edge to nowhere": (graphml(NODES + '\n<edge source="n0" target="n9"/>'), "joins 'n0' and 'n9'"),
    "a node twice": (graphml(NODES + '\n<node id="n3"/>'), "that of another \\('n3'\\)"),
    "edge without end": (graphml(NODES + '<edge source="n0"/>'), "joins 'n0' and ''"),
    "node without id": (graphml("<node/>"), "has no id"),
    "hyperedge": (graphml(NODES + "<hyperedge/>"), "<hyperedge>"),
    "both directions": (
        graphml(NODES + '<edge source="n0" target="n1" directed="true"/>'), "directed and undirected edges"
    ),
    "undeclared key": (graphml('<node id="n0"><data key="zz">1</data></node>'), "'zz', which no <key> declares"),
    "a word for a number": (
        graphml(NODES).replace('type="string"', 'type="int"'), "label is 'a', which is no int"
    ),
    "no nodes": (graphml(""), r"is their label \(there are none\)"),
    "steering text": (graphml(NODES + '<edge source="n0" target="&#10;&#x9;x"/>'), "one of which is no node"),
    "empty": ("", "is empty"),
}  # fmt: skip


def test_a_hostile_graphml_is_refused_in_one_line(tmp_path, subtests):
    path = tmp_path / "g.graphml"
    for name, (text, said) in HOSTILE_XML.items():
        path.write_text(text)
        with subtests.test(name):
            assert_refused(path, said)


def assert_refused(path, said, **arguments):
    with pytest.raises(DataError, match=said) as caught:
        GraphFile(str(path), **arguments).splits()
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def test_graphml_is_utf_8_whatever_codec_it_declares(tmp_path, subtests):
    """Python's parser takes any codec; a document type in another one is not seen by who looks for it in UTF-8."""
    path = tmp_path / "g.graphml"
    body = graphml(NODES.replace("n0", "né"), LAUGHS)
    for codec in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "latin-1", "cp037"):
        path.write_bytes(f'<?xml version="1.0" encoding="{codec}"?>{body}'.encode(codec))
        with subtests.test(codec):
            assert_refused(path, "UTF-8|document type|is no XML")
    path.write_text(f'<?xml version="1.0" encoding="UTF-8"?>{graphml(NODES)}', encoding="utf-8-sig")
    assert len(GraphFile(str(path)).splits().train[0].raw.nodes) == 8


def changed(**changes):
    arrays = tensors() | changes
    return {name: array for name, array in arrays.items() if array is not None}


HOSTILE_ARRAYS = {
    "no edges": (changed(edge_index=None), "edge_index .*there is none"),
    "edges of fractions": (changed(edge_index=np.zeros((2, 3))), r"it is \[2, 3\] float64"),
    "edge outside": (changed(edge_index=np.array([[0], [99]])), "an edge names node 99"),
    "negative edge": (changed(edge_index=np.array([[0], [-1]])), "an edge names node -1"),
    "other number of labels": (changed(y=np.arange(3)), "different numbers of nodes"),
    "labels of fractions": (changed(y=np.arange(12) / 2), "y holds fractions"),
    "one class": (changed(y=np.zeros(12, int)), "y has 1 value"),
    "a class a node": (changed(y=np.arange(12)), "y has 12 different values at 12 nodes"),
    "several labels a node": (changed(y=np.zeros((12, 3))), r"y is \[12, 3\]"),
    "masks that overlap": (changed(test_mask=np.ones(12, bool)), "test_mask: a node is in 'train and test'"),
    "ten splits": (changed(train_mask=np.ones((12, 10), bool)), "one split alone"),
    "empty test mask": (changed(test_mask=np.zeros(12, bool)), "no labelled node is left for the test split"),
    "train mask alone": (changed(test_mask=None, val_mask=None), "no labelled node is left for the test split"),
    "NaN": (changed(x=np.full((12, 3), np.nan, np.float32)), "not finite"),
    "text as features": (changed(x=np.array(["a"] * 12)), "x is"),
    "neither x nor y": (changed(x=None, y=None), "neither x nor y"),
    "a category of 10^8": (changed(x=np.array([0, 10**8] * 6)), "x has categories up to 100,000,000"),
    "an edge type of 10^8": (changed(edge_type=np.full(24, 10**8)), "edge_type has categories up to"),
    "unseen class": (changed(y=np.array([0, 0, 0, 1] * 3), val_mask=None), "no training node has the class 1"),
}  # fmt: skip


def test_hostile_tensors_are_refused_in_one_line(tmp_path, subtests):
    for name, (arrays, said) in HOSTILE_ARRAYS.items():
        np.savez(tmp_path / "g.npz", **arrays)
        with subtests.test(name):
            assert_refused(tmp_path / "g.npz", said)


class Evil:
    def __reduce__(self):
        return print, ("code ran",)


def test_a_pickle_is_refused_and_never_run(tmp_path, capfd):
    np.savez(
        tmp_path / "o.npz", x=np.array([Evil()], dtype=object), edge_index=np.zeros((2, 1), int)
    )
    assert_refused(tmp_path / "o.npz", "cannot be read")
    assert "code ran" not in capfd.readouterr().out


def test_archives_that_unpack_to_too_much_are_refused_before_they_are(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(2_000_000))
    monkeypatch.setattr(graph_files, "MAX_TENSOR_BYTES", 1_000_000)
    assert_refused(tmp_path / "bomb.npz", "unpacks to 2,000,000 bytes")
    (tmp_path / "no.npz").write_bytes(b"no archive")
    assert_refused(tmp_path / "no.npz", "cannot be read")
    (tmp_path / "no.safetensors").write_bytes(b"\xff" * 64)
    assert_refused(tmp_path / "no.safetensors", "cannot be read")


def test_too_much_xml_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    path = tmp_path / "g.graphml"
    path.write_text(
        graphml(NODES + '<edge source="n0" target="n1"/><edge source="n1" target="n2"/>')
    )
    monkeypatch.setattr("xml.etree.ElementTree.fromstring", lambda _: pytest.fail("it was parsed"))
    monkeypatch.setattr(graph_files, "MAX_XML_ELEMENTS", 7)
    assert_refused(path, "more than 7 elements")
    monkeypatch.setattr(graph_files, "MAX_TEXT_BYTES", 99)
    assert_refused(path, "more than 99 bytes")


def test_labels_are_the_values_that_occur(tmp_path):
    """One label of 10^8 in a file of 661 bytes took 8.6 GB: a class for each number below it."""
    arrays = tensors() | {"y": np.repeat([3, 10**8, 3], 4)}
    np.savez_compressed(tmp_path / "g.npz", **arrays)
    tracemalloc.start()
    splits = GraphFile(str(tmp_path / "g.npz")).splits()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**7
    assert splits.names == ["3", "100000000"]
    assert set(splits.train[0].label.tolist()) == {0, 1, IGNORE}


def test_a_hostile_edge_list_is_refused_with_its_line(tmp_path, subtests):
    for edges, nodes, fact in (
        ("source,target\na,b\n", None, "0 tables called nodes"),
        ("source,target\na,z\n", "id,label\na,x\nb,y\n", "line 2: .*'z'"),
        ("source,target\na\n", "id,label\na,x\nb,y\n", "line 2 has 1 cell"),
        ("source,target\na,b\na\n", "id,label\na,x\nb,y\n", "line 3 has 1 cell"),
        ("source,target\na,b\n", "id,label\na,x\na,y\n", "line 3: node 'a'"),
        ("source,target\na,b\n", "id,label\na,x,y\n", "line 2 has 3 cells"),
        ("source,target\na,b\n", "id,label\n", "nodes.csv"),
        ("source,target\na,b\n", "id,label,label\na,x,y\n", "label"),
        ("a,b\nb,a\n", "id,label\na,x\nb,y\n", "no columns source and target"),
        ("source,target\na,b\n", "id,nick\na,x\nb,y\n", "label"),
        ("source,target\n\xe9,b\n", "id,label\na,x\n", "UTF-8"),
    ):
        (tmp_path / "edges.csv").write_text(edges, encoding="latin-1")
        if nodes is not None:
            (tmp_path / "nodes.csv").write_text(nodes)
        with subtests.test(fact), pytest.raises(DataError, match=fact) as caught:
            GraphFile(str(tmp_path / "edges.csv")).splits()
        assert "\n" not in str(caught.value)


def test_a_wrong_name_is_answered_with_the_nearest(tmp_path, subtests):
    path = written(tmp_path, two_groups())
    for arguments, fact in (
        ({"target": "klub"}, r"'klub'; did you mean club\?"),
        ({"target": "age"}, "age has 20 different values at 20 nodes"),
        ({"features": ["size"]}, "'size'"),
        ({"edge_type": "colour"}, "'colour'"),
        ({"split": "town"}, "town: a node is in 'Ulm'"),
    ):
        with subtests.test(fact), pytest.raises(DataError, match=fact):
            GraphFile(path, **arguments).splits()
    GraphFile(path, edge_type="weight", features=[]).splits()


def test_several_attributes_that_may_be_the_label_are_listed(tmp_path):
    graph = two_groups()
    for i, node in enumerate(graph):
        graph.nodes[node]["group"] = i % 2
    with pytest.raises(DataError, match=r"\(club, group\).*--data.target"):
        GraphFile(written(tmp_path, graph)).splits()


def test_what_is_no_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.graphml"):
        GraphFile(str(tmp_path / "none.graphml")).splits()
    for name, advice in (
        ("a.xyz", "save it as"),
        ("a.gexf", r"networkx\.read_gexf"),
        ("a.pt", "numpy.savez"),
    ):
        with pytest.raises(DataError, match=f"ends in none of .*{advice}"):
            GraphFile(str(tmp_path / name)).splits()
    with pytest.raises(DataError, match="edges"):
        GraphFile(str(tmp_path)).splits()


def test_another_file_has_features_that_mean_the_same_only_without_eigenvectors(tmp_path):
    own, other = blocks(tmp_path / "own.npz", n=60), blocks(tmp_path / "other.npz", n=90)
    source = GraphFile(own, eigenvectors=0)
    graph, names = source.nodes_of(other)
    assert torch.equal(graph.nodes, torch.from_numpy(np.load(other)["x"]).float())
    assert names == [str(i) for i in range(90)]
    with pytest.raises(DataError, match=r"--data\.eigenvectors 0"):
        GraphFile(own, eigenvectors=3).nodes_of(other)


def test_edge_types_and_the_rule_of_the_split_are_those_of_the_file(tmp_path):
    path = written(tmp_path, two_groups())
    source = GraphFile(path, eigenvectors=0, features=[], edge_type="kind")
    assert "SHA-256" in source.splits().rule
    other = tmp_path / "other.graphml"
    other.write_bytes(Path(path).read_bytes())
    with pytest.raises(DataError, match="mean something else"):
        source.nodes_of(str(other))


def test_the_name_of_a_node_is_found_in_any_case(tmp_path):
    (tmp_path / "edges.csv").write_text(
        "Source,Target\n" + "".join(f"p{i},p{(i + 1) % 20}\n" for i in range(20))
    )
    (tmp_path / "nodes.csv").write_text(
        "Label,ID\n" + "".join(f"{'ab'[i % 2]},p{i}\n" for i in range(20))
    )
    assert GraphFile(str(tmp_path)).splits().train[0].raw.edges.shape[0] == 2
