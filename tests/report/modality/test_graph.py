"""Graphs and molecules in pictures: rows of the adjacency matrix are queries, edges are as wide as their attention."""

import networkx
import numpy as np
import pytest
import torch
from graphs import graph_of
from matplotlib.collections import LineCollection

from seqkit.interfaces import Adjacency, Tokens
from seqkit.report.modality.graph import MAX_NODES, GraphRenderer, MoleculeRenderer
from seqkit.tokenizers.graph import Graph
from seqkit.tokenizers.molecule import Molecule


def picture(tokenizer, raw):
    renderer = MoleculeRenderer if isinstance(tokenizer, Molecule) else GraphRenderer
    return renderer(tokenizer).picture(raw, tokenizer.encode(raw))


def test_the_adjacency_matrix_has_queries_as_rows():
    # node 1 is the target of an edge from node 0: it attends to node 0. 0: masked, 1: itself, 2: the only edge type
    tokens = Tokens(torch.ones(3, 1), torch.zeros(3, 0), Adjacency(torch.tensor([[0], [1]]), torch.tensor([1])))
    axes = GraphRenderer(Graph(directed=True)).picture(None, tokens).axes[1]
    assert axes.images[0].get_array().tolist() == [[1, 0, 0], [2, 1, 0], [0, 0, 1]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key (edge source)", "query (edge target)")


@pytest.mark.parametrize("directed", [True, False])
def test_the_target_of_an_edge_attends_to_its_source(directed):
    tokenizer = Graph(num_categories=3, directed=directed)
    table = picture(tokenizer, graph_of([0, 1, 2], [(0, 1)], directed)).axes[1].images[0].get_array()
    assert table.tolist() == [[1, 0 if directed else 2, 0], [2, 1, 0], [0, 0, 1]]


def test_a_large_graph_is_drawn_in_part_and_says_so():
    figure = picture(Graph(), networkx.star_graph(101))
    assert f"({MAX_NODES} of 102 drawn)" in figure.axes[0].get_title(loc="left")
    assert len(figure.axes[1].images[0].get_array()) == MAX_NODES
    assert f"78 of {MAX_NODES**2:,} pairs" in figure.axes[1].get_title(loc="left")


def test_a_large_graph_is_drawn_around_its_first_node():
    """Node 0 attends to 60 and 61; a path of all others is further away."""
    path = [(i, i + 1) for i in range(1, 59)]
    tokenizer = Graph()
    raw = graph_of(62, [(0, 60), (0, 61), (60, 1), *path])
    nodes = GraphRenderer(tokenizer).layout(raw, tokenizer.encode(raw)).nodes
    assert nodes.tolist() == [*range(38), 60, 61]


def test_edge_types_are_named_in_their_order():
    tokenizer = Molecule(max_hops=3)
    names = [label.get_text() for label in picture(tokenizer, "CCO").axes[2].get_yticklabels()]
    assert names == [
        "masked", "itself", "single", "double", "triple", "aromatic", "other", "2 bonds", "3 bonds or more",
    ]  # fmt: skip
    assert len(names) == tokenizer.spec.num_edge_types + 2


@pytest.mark.parametrize("layers", [1, 6])
def test_a_graph_has_every_layer_and_wider_lines_where_attention_is(layers, attention_to):
    graph = Graph(num_features=2)
    raw = graph_of(torch.ones(4, 2), [(0, 1), (1, 2), (2, 3)])
    tokens = graph.encode(raw)
    figure = GraphRenderer(graph).overlay(raw, tokens, attention_to(4, hot=3, layers=layers))
    drawn = [ax for ax in figure.axes if ax.get_title()]
    assert len(drawn) == 1 + layers
    lines = next(item for item in drawn[0].collections if isinstance(item, LineCollection))
    ends = tokens.adjacency.edge_index.T.tolist()
    widths = dict(zip(map(tuple, ends), lines.get_linewidths()))
    assert widths[2, 3] > widths[0, 1]
    assert {text.get_text() for text in drawn[0].texts} == {"0", "1", "2", "3"}


def test_atoms_are_numbered_as_in_the_heatmaps(attention_to):
    renderer, tokens = MoleculeRenderer(Molecule()), Molecule().encode("CCO")
    figure = renderer.overlay("CCO", tokens, attention_to(3, hot=2))
    assert [text.get_text() for text in figure.axes[0].texts] == ["C", "0", "C", "1", "O", "2"]
    assert renderer.token_names("CCO", tokens) == ["C0", "C1", "O2"]


def test_a_bond_is_drawn_between_its_atoms():
    renderer, tokens = MoleculeRenderer(Molecule()), Molecule().encode("CCO")
    layout = renderer.layout("CCO", tokens)
    assert {frozenset(pair) for pair in layout.edge_index.T.tolist()} == {frozenset({0, 1}), frozenset({1, 2})}
    ends = layout.coordinates[layout.edge_index]
    np.testing.assert_allclose(np.linalg.norm(ends[0] - ends[1], axis=-1), 1.5, atol=0.01)
