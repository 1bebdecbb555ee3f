"""Graphs: every form gives the same tokens, permutations permute, components stay apart, bad graphs are refused."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.raw import GraphData
from seqkit.tokenizers import Degree, Graph, ShortestPath

# a tailed triangle, a pair, and node 6 alone
EDGES = torch.tensor([[0, 1, 1, 3, 4], [1, 2, 3, 2, 5]])
TYPES = torch.tensor([0, 1, 0, 2, 1])
NO_EDGES = torch.zeros(2, 0, dtype=torch.int64)
X = torch.rand(7, 3, generator=torch.Generator().manual_seed(0))


def within(max_distance):
    """The degree, and edges between nodes of at most that distance."""
    return [Degree(), ShortestPath(max_distance, unreachable=False)]


def edge_types(tokens):
    """{(source, target): edge type}."""
    return {
        (i, j): k
        for i, j, k in zip(
            *tokens.adjacency.edge_index.tolist(), tokens.adjacency.edge_type.tolist()
        )
    }


def assert_same(a, b):
    assert_close(a.content, b.content)
    assert edge_types(a) == edge_types(b)


def test_content_is_features_and_logarithm_of_degree():
    tokenizer = Graph(3)
    tokens = tokenizer.encode(GraphData(X, EDGES))
    tokenizer.spec.check(tokens)
    assert_close(tokens.content[:, :3], X)
    assert_close(tokens.content[:, 3], torch.log1p(torch.tensor([1.0, 3, 2, 2, 1, 1, 0])))
    assert tokens.positions.shape == (7, 0)


def test_directed_graphs_have_in_and_out_degree_and_targets_attend_to_sources():
    tokenizer = Graph(3, directed=True, num_edge_types=3)
    tokens = tokenizer.encode(GraphData(X, EDGES, TYPES, directed=True))
    tokenizer.spec.check(tokens)
    assert_close(tokens.content[:, 3], torch.log1p(torch.tensor([0.0, 1, 2, 1, 0, 1, 0])))
    assert_close(tokens.content[:, 4], torch.log1p(torch.tensor([1.0, 2, 0, 1, 1, 0, 0])))
    assert edge_types(tokens) == {(0, 1): 1, (1, 2): 2, (1, 3): 1, (3, 2): 3, (4, 5): 2}


def test_categories_are_one_hot():
    tokenizer = Graph(num_categories=5, encodings=[])
    tokens = tokenizer.encode(GraphData(torch.tensor([4, 0, 2]), torch.tensor([[0], [1]])))
    tokenizer.spec.check(tokens)
    assert_close(tokens.content, torch.eye(5)[[4, 0, 2]])


@pytest.mark.parametrize("max_distance", [1, 2, None])
@pytest.mark.parametrize("directed", [False, True])
def test_permuting_the_nodes_permutes_content_and_adjacency(max_distance, directed):
    tokenizer = Graph(3, num_edge_types=3, encodings=within(max_distance), directed=directed)
    new_place = torch.tensor([4, 2, 6, 0, 5, 1, 3])  # of each old node
    nodes = torch.empty_like(X)
    nodes[new_place] = X
    before = tokenizer.encode(GraphData(X, EDGES, TYPES, directed))
    after = tokenizer.encode(GraphData(nodes, new_place[EDGES], TYPES, directed))
    assert_close(after.content[new_place], before.content)
    assert edge_types(after) == {
        (int(new_place[i]), int(new_place[j])): edge_type
        for (i, j), edge_type in edge_types(before).items()
    }
    assert edge_types(before)


@pytest.mark.parametrize("max_distance", [1, 2, None])
def test_nothing_crosses_components(max_distance):
    component = [0, 0, 0, 0, 1, 1, 2]
    pairs = edge_types(Graph(3, encodings=within(max_distance)).encode(GraphData(X, EDGES)))
    assert all(component[i] == component[j] for i, j in pairs)
    if max_distance is None:
        assert len(pairs) == 4 * 3 + 2


def test_all_forms_of_one_graph_give_the_same_tokens():
    tokenizer = Graph(3, num_edge_types=3)
    expected = tokenizer.encode(GraphData(X, EDGES, TYPES))
    graph = nx.Graph()
    graph.add_nodes_from((f"node {i}", {"x": x.numpy()}) for i, x in enumerate(X))
    graph.add_edges_from(
        (f"node {i}", f"node {j}", {"type": k}) for i, j, k in zip(*EDGES.tolist(), TYPES.tolist())
    )
    both_ways, twice = torch.cat([EDGES, EDGES.flip(0)], dim=1), torch.cat([TYPES, TYPES])
    assert_same(tokenizer.encode(graph), expected)
    assert_same(
        tokenizer.encode(SimpleNamespace(x=X, edge_index=both_ways, edge_attr=twice)), expected
    )
    assert_same(
        tokenizer.encode(SimpleNamespace(x=X, edge_index=both_ways, edge_attr=twice[:, None])),
        expected,
    )
    untyped, expected = Graph(3), Graph(3).encode(GraphData(X, EDGES))
    assert_same(
        untyped.encode(SimpleNamespace(x=X.numpy().astype(np.float64), edge_index=EDGES)), expected
    )


def test_graphs_without_features_have_the_degree_as_content():
    tokenizer = Graph()
    expected = tokenizer.encode(GraphData(torch.zeros(6, 0), EDGES))
    plain = nx.Graph()
    plain.add_nodes_from(range(6))
    plain.add_edges_from(EDGES.T.tolist(), weight=3.0)
    for form in (plain, SimpleNamespace(x=None, num_nodes=6, edge_index=EDGES)):
        assert_same(tokenizer.encode(form), expected)


def test_all_forms_of_categories_give_the_same_tokens():
    ids, tokenizer = torch.tensor([1, 0, 3]), Graph(num_categories=4)
    edges = torch.tensor([[0], [2]])
    expected = tokenizer.encode(GraphData(ids, edges))
    graph = nx.Graph()
    graph.add_nodes_from((i, {"x": x}) for i, x in enumerate(ids.tolist()))
    graph.add_edge(0, 2)
    for form in (graph, SimpleNamespace(x=ids[:, None], edge_index=edges, edge_attr=None)):
        assert_same(tokenizer.encode(form), expected)


def test_targets_of_directed_networkx_graphs_attend_to_sources():
    graph = nx.DiGraph([(0, 1), (1, 2)])
    assert edge_types(Graph(directed=True, encodings=within(2)).encode(graph)) == {
        (0, 1): 1,
        (1, 2): 1,
        (0, 2): 2,
    }
    with pytest.raises(DataError, match="directed"):
        Graph().encode(graph)


def test_a_directed_tokenizer_takes_undirected_graphs():
    assert edge_types(Graph(directed=True).encode(nx.Graph([(0, 1)]))) == {(0, 1): 1, (1, 0): 1}


def test_a_graph_without_edges_has_an_empty_adjacency():
    tokenizer = Graph(3, encodings=within(None))
    for form in (GraphData(X, NO_EDGES), SimpleNamespace(x=X, edge_index=NO_EDGES)):
        tokens = tokenizer.encode(form)
        tokenizer.spec.check(tokens)
        assert len(tokens.adjacency) == 0
        assert len(tokens) == 7


@pytest.mark.parametrize("max_distance", [1, None])
def test_decode_gives_the_graph(max_distance):
    tokenizer = Graph(3, num_edge_types=3, encodings=within(max_distance), directed=True)
    got = tokenizer.decode(tokenizer.encode(GraphData(X, EDGES, TYPES, directed=True)))
    assert_close(got.nodes, X)
    assert {*zip(*got.edges.tolist(), got.edge_types.tolist())} == {
        *zip(*EDGES.tolist(), TYPES.tolist())
    }
    ids, categories = torch.tensor([2, 0, 1]), Graph(num_categories=3)
    got = categories.decode(categories.encode(GraphData(ids, torch.tensor([[2], [0]]))))
    assert_close(got.nodes, ids)
    assert_close(got.edges, torch.tensor([[0, 2], [2, 0]]))


def pyg(**given):
    return SimpleNamespace(edge_index=NO_EDGES, **given)


def nan_at(row):
    x = X.clone()
    x[row, 1] = float("nan")
    return x


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda: GraphData(X, torch.tensor([[0], [7]])),
            "names node 7, but there are nodes 0 to 6",
        ),
        (lambda: GraphData(X, torch.tensor([[0], [-1]])), "names node -1"),
        (lambda: GraphData(X, torch.tensor([[0.0], [1.0]])), r"edges are \[2, 1\] float32"),
        (lambda: GraphData(X, EDGES.T), r"edges are \[5, 2\]"),
        (lambda: GraphData(nan_at(4), EDGES), "node 4 are not finite"),
        (lambda: GraphData(torch.zeros(0, 3), EDGES), "no nodes"),
        (lambda: GraphData(X[0], EDGES), "nodes are"),
        (lambda: GraphData(torch.tensor([0, -2]), torch.tensor([[0], [1]])), "category -2"),
        (lambda: GraphData(X, EDGES, TYPES[:4]), "one per edge"),
        (lambda: GraphData(X, EDGES, TYPES - 1), "type -1"),
        (
            lambda: Graph(3).encode(GraphData(X, EDGES, TYPES)),
            "type 2; correct it, or train with --tokenizer.num_edge_types 3",
        ),
        (lambda: Graph(4).encode(GraphData(X, EDGES)), "carry 3 features.*num_features 3"),
        (lambda: Graph().encode(GraphData(X, EDGES)), "carry 3 features.*num_features 3"),
        (lambda: Graph(3).encode(pyg(num_nodes=3)), "carry 0 features"),
        (lambda: Graph(3).encode(pyg(x=torch.tensor([0, 1, 6]))), "num_categories 7"),
        (lambda: Graph(num_categories=6).encode(pyg(x=torch.tensor([0, 1, 6]))), "category 6"),
        (
            lambda: Graph(num_categories=6).encode(pyg(x=torch.tensor([0.5, 1.5]))),
            "carry 1 features",
        ),
        (lambda: Graph().encode(nx.Graph()), "no nodes"),
        (lambda: Graph().encode(pyg(x=[])), "no nodes|not numbers"),
        (lambda: Graph().encode(pyg(num_nodes=-3)), "-3 nodes"),
        (lambda: Graph().encode(pyg(num_nodes=10**12)), "1000000000000 nodes"),
        (lambda: Graph(2).encode(pyg(x=[[1.0, 2.0], [1.0]])), "not numbers, as many for each"),
        (lambda: Graph(2).encode(pyg(x=["a", "b"])), "not numbers"),
        (lambda: Graph().encode([(0, 1)]), "list is not a graph"),
        (lambda: Graph().encode("C1CC1"), "str is not a graph"),
        (
            lambda: Graph(3).encode(
                SimpleNamespace(x=X, edge_index=EDGES, edge_attr=torch.rand(5, 4))
            ),
            "train with EdgeTokens",
        ),
        (lambda: Graph().encode(SimpleNamespace(edge_index=EDGES)), "neither x nor num_nodes"),
    ],
)
def test_bad_graphs_are_refused_with_their_reason(make, reason):
    with pytest.raises(DataError, match=reason):
        make()


def test_attributes_must_be_on_all_nodes_and_edges_of_a_networkx_graph():
    graph = nx.path_graph(3)
    graph.nodes[1]["x"] = 0.5
    with pytest.raises(DataError, match="2 of 3 have no attribute 'x'"):
        Graph(1).encode(graph)
    typed = nx.path_graph(3)
    typed.edges[0, 1]["type"] = 0
    with pytest.raises(DataError, match="1 of 2 have no attribute 'type'"):
        Graph().encode(typed)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda: Graph(encodings=[]), "no content"),
        (lambda: Graph(2, 3), "either feature vectors or categories"),
        (lambda: Graph(encodings=[ShortestPath(0)]), "max_distance=0"),
    ],
)
def test_wrong_use_is_refused_with_its_reason(use, reason):
    with pytest.raises(ValueError, match=reason):
        use()
