"""Encodings equal their definitions; what a graph lacks is defined; what they do not take is refused."""

import tracemalloc
from functools import partial

import networkx
import numpy as np
import pytest
import torch
from graphs import graph_of
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seqkit.backbones import GIN, GPSBlock, Transformer
from seqkit.config import builder, complete
from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.nn.attention.edge import EdgeAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.objectives import Classify
from seqkit.raw import GraphData
from seqkit.tokenizers import (
    Bytes,
    Degree,
    EdgeTokens,
    Graph,
    Join,
    Laplacian,
    Molecule,
    RandomWalk,
    ShortestPath,
    VirtualNode,
    graph_encodings,
)

PAIRS = [(0, 1), (1, 2), (1, 3), (3, 2), (4, 5)]  # a tailed triangle, a pair, and node 6 alone
EVERY = [Degree(), RandomWalk(5), Laplacian(3), ShortestPath(), EdgeTokens(), VirtualNode()]


def columns(encoding, n, pairs, directed=False):
    """What an encoding appends to nodes without content."""
    tokenizer = Graph(encodings=[encoding], directed=directed)
    return tokenizer.encode(graph_of(n, pairs, directed)).content


@pytest.mark.parametrize("directed", [False, True])
def test_random_walks_equal_powers_of_the_transition_matrix(monkeypatch, directed):
    monkeypatch.setattr(graph_encodings, "_START_NODES", 3)
    step = torch.zeros(7, 7, dtype=torch.float64)
    for i, j in PAIRS:
        step[i, j] = 1
        step[j, i] = step[j, i] if directed else 1
    step = step / step.sum(1, keepdim=True).clamp(min=1)
    expected = torch.stack(
        [torch.linalg.matrix_power(step, k).diagonal() for k in range(1, 6)], dim=1
    )
    assert_close(columns(RandomWalk(5), 7, PAIRS, directed), expected.float())


def test_random_walks_equal_those_of_pyg():
    transforms, data = (
        pytest.importorskip("torch_geometric.transforms"),
        pytest.importorskip("torch_geometric.data"),
    )
    both = torch.tensor([*PAIRS, *[pair[::-1] for pair in PAIRS]]).T
    expected = transforms.AddRandomWalkPE(5, "pe")(data.Data(edge_index=both, num_nodes=7)).pe
    assert_close(columns(RandomWalk(5), 7, PAIRS), expected)


def test_eigenvectors_are_those_of_the_laplacian_of_each_component():
    graph = networkx.disjoint_union(networkx.path_graph(5), networkx.star_graph(1))
    found = columns(Laplacian(3), 7, [*graph.edges]).double()
    laplacian = torch.from_numpy(networkx.normalized_laplacian_matrix(graph).toarray())
    product = laplacian @ found
    values = (product * found).sum(0) / found.square().sum(0)
    for nodes in (slice(5), slice(5, 7)):
        own = found[nodes][:, found[nodes].abs().sum(0) > 0]
        values = torch.diagonal(own.T @ product[nodes, : own.shape[1]]) / len(own)
        assert_close(product[nodes, : own.shape[1]], own * values, atol=1e-5, rtol=0)
        assert bool((values.diff() > 0).all())
        assert float(values.min()) > 1e-3, "the constant one is left out"
        assert_close(
            own.T @ own / len(own), torch.eye(own.shape[1], dtype=torch.float64), atol=1e-5, rtol=0
        )
    assert found[5:, 1:].abs().max() == 0, "a component of two nodes has one eigenvector"


def test_some_eigenvectors_of_a_large_graph_are_the_first_of_all(monkeypatch):
    graph = networkx.random_labeled_tree(97, seed=3)
    full = columns(Laplacian(4), 97, [*graph.edges])
    monkeypatch.setattr(graph_encodings, "_DENSE_NODES", 0)
    assert_close(columns(Laplacian(4), 97, [*graph.edges]).abs(), full.abs(), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("n", "pairs"), [(1, []), (3, []), (2, [(0, 1)]), (3, [(1, 1)])])
def test_what_a_small_graph_lacks_is_zero(n, pairs):
    tokenizer = Graph(encodings=EVERY)
    tokens = tokenizer.encode(graph_of(n, pairs))
    tokenizer.spec.check(tokens)
    num_edges = len({pair for pair in pairs if pair[0] != pair[1]})
    assert len(tokens) == n + num_edges + 1
    if not num_edges:
        assert tokens.content[:n].abs().max() == 0


def test_in_training_each_eigenvector_has_a_random_sign_for_each_graph_and_nothing_else_has():
    tokenizer = Graph(2, encodings=[Degree(), Laplacian(3)])
    layer = tokenizer.spec.embedder(7)
    layer.weight.data = torch.eye(7)[:, :6]
    layer.bias.data.zero_()
    content = torch.rand(16, 5, 6) + 0.1
    assert_close(layer.eval()(content)[..., :6], content)
    signs = layer.train()(content)[..., :6] / content
    assert_close(signs.abs(), torch.ones_like(signs))
    assert_close(signs[..., :3], torch.ones(16, 5, 3))
    assert_close(signs, signs[:, :1].expand_as(signs)), "one sign for all nodes of a graph"
    assert set(signs[:, 0, 3:].round().flatten().tolist()) == {-1.0, 1.0}
    assert len({tuple(row) for row in signs[:, 0, 3:].round().tolist()}) > 3


def test_unreachable_pairs_have_an_edge_type_of_their_own():
    tokenizer = Graph(encodings=[Degree(), ShortestPath(max_hops=3)])
    tokens = tokenizer.encode(graph_of(7, PAIRS))
    tokenizer.spec.check(tokens)
    types = {
        (i, j): k
        for i, j, k in zip(
            *tokens.adjacency.edge_index.tolist(), tokens.adjacency.edge_type.tolist()
        )
    }
    distance = dict(networkx.all_pairs_shortest_path_length(networkx.Graph(PAIRS)))
    expected = {(i, j): distance.get(i, {}).get(j, 4) for i in range(7) for j in range(7) if i != j}
    assert types == expected
    assert tokenizer.spec.num_edge_types == 4
    far = (
        Graph(encodings=[Degree(), ShortestPath(1)]).encode(graph_of(3, [(0, 1), (1, 2)])).adjacency
    )
    assert sorted(far.edge_type.tolist()) == [1, 1, 1, 1, 2, 2]


def test_with_unreachable_pairs_a_token_sees_other_components():
    tokenizer = Molecule(encodings=[ShortestPath()])
    tokens = tokenizer.encode("[Na+].[Cl-]")
    assert tokens.adjacency.edge_type.tolist() == [tokenizer.spec.num_edge_types] * 2
    assert len(Molecule().encode("[Na+].[Cl-]").adjacency) == 0


def test_edges_are_tokens_between_their_ends_with_their_features():
    graph = GraphData(
        torch.tensor([[1.0], [2.0], [3.0]]),
        torch.tensor([[2, 0, 1], [1, 1, 2]]),
        torch.tensor([1, 0, 1]),
        edge_features=torch.tensor([[0.5, 7.0], [0.25, 9.0], [0.5, 7.0]]),
    )
    tokenizer = Graph(1, num_edge_types=2, num_edge_features=2, encodings=[EdgeTokens()])
    tokens = tokenizer.encode(graph)
    tokenizer.spec.check(tokens)
    assert tokens.content.tolist() == [
        [1, 0, 0, 0],
        [2, 0, 0, 0],
        [3, 0, 0, 0],
        [0, 0.25, 9, 1],
        [0, 0.5, 7, 1],
    ]
    edges = sorted(zip(*tokens.adjacency.edge_index.tolist(), tokens.adjacency.edge_type.tolist()))
    assert edges == [
        (0, 3, 1),
        (1, 3, 1),
        (1, 4, 2),
        (2, 4, 2),
        (3, 0, 1),
        (3, 1, 1),
        (4, 1, 2),
        (4, 2, 2),
    ]
    one_way = Graph(directed=True, encodings=[Degree(), EdgeTokens()]).encode(
        graph_of(2, [(0, 1), (1, 0)], True)
    )
    assert sorted(zip(*one_way.adjacency.edge_index.tolist())) == [(0, 2), (1, 3), (2, 1), (3, 0)]


def test_sizes_of_edges_are_learned_and_come_in_every_form():
    x, edges, vectors = torch.rand(3, 2), torch.tensor([[0, 1], [1, 2]]), torch.rand(2, 4)
    graph = networkx.Graph()
    graph.add_nodes_from((i, {"x": row}) for i, row in enumerate(x))
    graph.add_edges_from((int(i), int(j), {"x": row}) for i, j, row in zip(*edges, vectors))
    pyg = type("Data", (), {"x": x, "edge_index": edges, "edge_attr": vectors})()
    tokenizer = Graph(None, encodings=[EdgeTokens()])
    tokenizer.fit([graph])
    assert tokenizer.state()["num_edge_features"] == 4
    expected = tokenizer.encode(GraphData(x, edges, edge_features=vectors))
    assert tokenizer.encode(graph).equals(expected)
    alone = networkx.Graph()
    alone.add_node(0, x=x[0])
    tokenizer.spec.check(tokenizer.encode(alone))  # a graph without edges shows no width of theirs
    assert tokenizer.encode(pyg).equals(expected)


def test_a_virtual_node_is_the_last_token_and_adjacent_to_all():
    tokenizer = Graph(2, encodings=[VirtualNode()])
    tokens = tokenizer.encode(GraphData(torch.ones(3, 2), torch.tensor([[0], [1]])))
    assert tokens.content.tolist() == [[1, 1, 0]] * 3 + [[0, 0, 1]]
    edges = sorted(zip(*tokens.adjacency.edge_index.tolist(), tokens.adjacency.edge_type.tolist()))
    assert edges == [
        (0, 1, 1),
        (0, 3, 2),
        (1, 0, 1),
        (1, 3, 2),
        (2, 3, 2),
        (3, 0, 2),
        (3, 1, 2),
        (3, 2, 2),
    ]


def test_all_encodings_together_train_on_graphs_of_different_sizes():
    tokenizer, objective = Graph(encodings=EVERY), Classify()
    objective.fit([0, 1], None)
    batch = TokenBatch.collate(
        [tokenizer.encode(graph_of(7, PAIRS)), tokenizer.encode(graph_of(1))]
    )
    for block in (PreNormBlock, partial(GPSBlock, max_edge_type=1)):
        model = Model(tokenizer.spec, Transformer(8, 2, num_heads=2, block=block), objective)
        objective.loss(model(batch), torch.tensor([0, 1]), training=True).loss.backward()
        assert all(
            bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None
        )


def test_all_encodings_together_are_a_part_of_an_example():
    tokenizer, objective = Join({"graph": Graph(encodings=EVERY), "text": Bytes()}), Classify()
    objective.fit([0, 1], None)
    raws = [
        {"graph": graph_of(7, PAIRS), "text": "a triangle"},
        {"graph": graph_of(1), "text": "a node"},
    ]
    batch = TokenBatch.collate([tokenizer.encode(raw) for raw in raws])
    for block in (PreNormBlock, partial(GPSBlock, max_edge_type=1)):
        model = Model(tokenizer.spec, Transformer(8, 2, num_heads=2, block=block), objective)
        objective.loss(model(batch), torch.tensor([0, 1]), training=True).loss.backward()
        assert all(
            bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None
        )


def test_a_recipe_names_encodings_in_one_list():
    flags = ["--tokenizer.encodings", "[Degree, {type: RandomWalk, num_steps: 5}, EdgeTokens]"]
    built = builder.build(complete("graph/karate", "debug", flags))
    assert built.tokenizer.encodings == [Degree(), RandomWalk(5), EdgeTokens()]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Graph(encodings=[Degree(), RandomWalk(), Degree()]), "Degree 2 times"),
        (lambda: RandomWalk(0), "num_steps=0"),
        (lambda: Laplacian(0), "num_eigenvectors=0"),
        (lambda: ShortestPath(max_hops=0), "max_hops=0"),
        (lambda: Graph(num_edge_features=2), "add EdgeTokens"),
        (lambda: Graph(num_edge_features=-1), "num_edge_features=-1"),
        (lambda: Graph(num_edge_types=0), "num_edge_types=0"),
        (lambda: Graph(encodings=[ShortestPath()]), "no content"),
        (
            lambda: Graph().encode(vectors_of(2)),
            "edges carry 2 features; drop them, or train with EdgeTokens",
        ),
        (lambda: Graph(encodings=EVERY).encode(vectors_of(2)), "num_edge_features 2"),
        (
            lambda: Graph(num_edge_features=3, encodings=EVERY).encode(graph_of(2, [(0, 1)])),
            "num_edge_features 0",
        ),
        (
            lambda: GraphData(
                torch.zeros(2, 0), torch.tensor([[0], [1]]), edge_features=torch.ones(2, 1)
            ),
            "one per edge",
        ),
        (lambda: vectors_of(2, float("nan")), "edge 0 are not finite"),
        (
            lambda: Graph(num_edge_features=1, encodings=EVERY).encode(contradiction()),
            "join nodes 0 and 1",
        ),
        (
            lambda: Graph(encodings=[Degree(), ShortestPath()]).encode(graph_of(9000)),
            "unreachable=false",
        ),
        (
            lambda: Graph(encodings=EVERY).decode(
                Graph(encodings=EVERY).encode(graph_of(2, [(0, 1)]))
            ),
            "leave out",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        make()
    assert "\n" not in str(caught.value)


def vectors_of(width, value=1.0):
    return GraphData(
        torch.zeros(2, 0), torch.tensor([[0], [1]]), edge_features=torch.full((1, width), value)
    )


def contradiction():
    edges = torch.tensor([[0, 1], [1, 0]])
    return GraphData(torch.zeros(2, 0), edges, edge_features=torch.tensor([[1.0], [2.0]]))


def test_data_errors_are_of_the_data():
    with pytest.raises(DataError):
        Graph().encode(vectors_of(2))


class Largest(TorchDispatchMode):
    """Largest number of entries of any tensor that an operation makes."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.entries = max(
            [self.entries, *(x.numel() for x in tree_leaves(made) if isinstance(x, torch.Tensor))]
        )
        return made


ALONG_EDGES = partial(MultiHeadAttention, mechanism=EdgeAttention)


@pytest.mark.parametrize(
    "backbone",
    [
        lambda: GIN(8, 2),
        lambda: Transformer(8, 2, num_heads=2, block=partial(PreNormBlock, attention=ALONG_EDGES)),
        lambda: Transformer(8, 2, num_heads=2, block=partial(GPSBlock, attention=ALONG_EDGES)),
    ],
)
def test_a_step_on_a_graph_of_coras_size_makes_nothing_n_by_n(backbone):
    n, num_edges = 2708, 5278
    edges = torch.from_numpy(np.random.default_rng(0).integers(0, n, (2, num_edges)))
    tokenizer = Graph(
        encodings=[Degree(), RandomWalk(3), Laplacian(2), EdgeTokens(), VirtualNode()]
    )
    objective = Classify(level="token")
    objective.fit([torch.tensor([0, 1])], None)
    model = Model(tokenizer.spec, backbone(), objective)
    tracemalloc.start()
    tokens = tokenizer.encode(GraphData(torch.zeros(n, 0), edges))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    with Largest() as largest:
        prediction = model(TokenBatch.collate([tokens]))
        prediction.sum().backward()
    assert largest.entries < n * n / 4
    assert peak < 8 * len(tokens) ** 2 / 4
