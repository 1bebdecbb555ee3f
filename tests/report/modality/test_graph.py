"""Graphs and molecules in pictures: rows of the adjacency matrix are queries, nodes are where their edges lead."""

import networkx
import numpy as np
import pytest
import torch
from graphs import graph_of
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from seqkit.interfaces import Adjacency, Tokens
from seqkit.report.figures import CATEGORIES
from seqkit.report.modality import find_renderer, picture
from seqkit.report.modality.base import MAX_SIDE, WARM, draw_adjacency
from seqkit.report.modality.graph import MAX_NODES
from seqkit.tokenizers.graph import Graph
from seqkit.tokenizers.molecule import Molecule


def drawn(tokenizer, raw, received=None):
    axes = Figure().subplots()
    find_renderer(tokenizer).draw(axes, raw, tokenizer.encode(raw), received)
    return axes


def test_the_adjacency_matrix_has_queries_as_rows():
    # node 1 is the target of an edge from node 0: it attends to node 0. 0: masked, 1: itself, 2: the only edge type
    tokens = Tokens(
        torch.ones(3, 1), torch.zeros(3, 0), Adjacency(torch.tensor([[0], [1]]), torch.tensor([1]))
    )
    axes = Figure().subplots()
    draw_adjacency(axes, tokens)
    assert axes.images[0].get_array().tolist() == [[1, 0, 0], [2, 1, 0], [0, 0, 1]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key (edge source)", "query (edge target)")


def test_of_a_large_adjacency_the_first_tokens_are_drawn():
    axes = Figure().subplots()
    draw_adjacency(axes, Graph().encode(networkx.path_graph(MAX_SIDE + 3)))
    table = axes.images[0].get_array()
    assert table.shape == (MAX_SIDE, MAX_SIDE)
    assert (table > 1).sum() == 2 * (MAX_SIDE - 1)


def test_a_graph_is_beside_its_content_and_its_adjacency():
    (part,) = picture(find_renderer(Molecule()), "CCO", Molecule().encode("CCO")).subfigs
    assert [axes.get_title(loc="left") for axes in part.axes] == [
        "3 tokens of Molecule", "content", "adjacency: 6 of 9 pairs"
    ]  # fmt: skip
    assert [text.get_text() for text in part.axes[0].texts] == ["C0", "C1", "O2"]


def test_a_large_graph_is_drawn_around_its_first_node_and_says_so():
    """Node 0 attends to 60 and 61; a path of all others is further away."""
    path = [(i, i + 1) for i in range(1, 59)]
    axes = drawn(Graph(), graph_of(62, [(0, 60), (0, 61), (60, 1), *path]), np.ones(62))
    assert [text.get_text() for text in axes.texts] == [str(i) for i in (*range(38), 60, 61)]
    assert axes.get_xlabel() == f"{MAX_NODES} of 62 nodes are drawn"
    assert drawn(Graph(), networkx.path_graph(3), np.ones(3)).get_xlabel() == ""


def test_nodes_have_the_colour_of_the_attention_that_they_receive(attention_to):
    received = attention_to(4, hot=3)
    axes = drawn(
        Graph(num_features=2), graph_of(torch.ones(4, 2), [(0, 1), (1, 2), (2, 3)]), received
    )
    np.testing.assert_allclose(axes.collections[-1].get_facecolors(), WARM.to_rgba(received))


@pytest.mark.parametrize("raw", ["CCO", "C1CC1O"])
def test_a_bond_is_drawn_between_its_atoms(raw):
    axes = drawn(Molecule(), raw)
    lines = next(
        item for item in axes.collections if isinstance(item, LineCollection)
    ).get_segments()
    assert len(lines) == (2 if raw == "CCO" else 4)
    atoms = {tuple(place) for place in axes.collections[-1].get_offsets().tolist()}
    assert {tuple(end) for line in lines for end in line.tolist()} == atoms
    np.testing.assert_allclose(
        [np.linalg.norm(line[0] - line[1]) for line in lines], 1.5, atol=0.01
    )


def test_nodes_are_coloured_by_their_predicted_class_and_wrong_ones_have_a_ring():
    right = np.array([1, -1, 0, 1])
    preds = np.array([1, 0, 1, 1])
    renderer = find_renderer(Graph())
    axes = renderer.answered(networkx.path_graph(4), right, preds, ["cat", "dog"]).axes[0]
    dots = {one.get_label(): one for one in axes.collections if not one.get_label().startswith("_")}
    assert list(dots) == ["not a test node (1)", "cat (1)", "dog (2)", "wrong (1)"]
    for name, color in (("cat (1)", CATEGORIES[0]), ("dog (2)", CATEGORIES[1])):
        assert to_hex(dots[name].get_facecolors()[0]) == color
    ring = dots["wrong (1)"]
    assert len(ring.get_facecolors()) == 0
    np.testing.assert_array_equal(ring.get_offsets(), dots["cat (1)"].get_offsets())


def test_the_picture_of_nodes_fits_a_phone():
    right = np.array([1, -1, 0])
    preds = np.array([0, 1, 0])
    renderer = find_renderer(Graph())
    figure = renderer.answered(networkx.path_graph(3), right, preds, ["cat", "dog"])
    words = figure.axes[0].get_legend().get_texts()
    assert [text.get_text() for text in words[1:]] == ["cat (1)", "dog (1)", "wrong (1)"]
    phone = 260  # points
    assert all(text.get_fontsize() * phone / (72 * figure.get_figwidth()) > 7 for text in words)


def test_tokens_whose_graph_is_not_known_are_drawn_as_their_features():
    axes, tokens = Figure().subplots(), Molecule().encode("CCO")
    find_renderer(Molecule()).draw(axes, None, tokens)
    np.testing.assert_array_equal(axes.images[0].get_array(), tokens.content.T)
