"""Joined tokens are drawn part by part, each by its renderer, and attention goes from a token to the other parts."""

import numpy as np
import pytest
import torch
from graphs import graph_of

from seqkit.interfaces import Tokens
from seqkit.report.inspect import describe
from seqkit.report.modality import AttentionSummary, find_renderer
from seqkit.report.modality.join import JoinRenderer
from seqkit.tokenizers import Graph, Ids, Join, Molecule, Patches, Words

RAW = {"image": torch.rand(1, 8, 12, generator=torch.Generator().manual_seed(0)), "text": "one is above"}


def tokenizer() -> Join:
    made = Join({"image": Patches(4), "text": Words(), "molecule": Molecule(), "ids": Ids(5)})
    made.parts["text"].fit(["one is above and below"])
    return made


def summary_of(tokens: Tokens) -> AttentionSummary:
    g, n = np.random.default_rng(0), len(tokens)
    weights = g.random((2, 3, n, n))
    weights /= weights.sum(axis=-1, keepdims=True)
    return AttentionSummary(weights, weights.mean(axis=(0, 1)))


@pytest.mark.parametrize(
    "raw",
    [
        {**RAW, "molecule": "CCO"},
        {"text": "one"},
        pytest.param([("ids", [1, 2]), ("text", "one"), ("image", RAW["image"])], marks=pytest.mark.slow),
    ],
)
def test_every_part_is_drawn_and_named(raw):
    tokens = tokenizer().encode(raw)
    renderer = find_renderer(tokenizer())
    assert isinstance(renderer, JoinRenderer)
    titles = [text.get_text() for text in renderer.picture(raw, tokens).texts]
    names = [name for name, _ in tokens.parts]
    assert [title.partition(":")[0] for title in titles] == names
    assert [text.get_text() for text in renderer.overlay(raw, tokens, summary_of(tokens)).texts] == names
    labels = renderer.token_names(raw, tokens)
    assert len(labels) == len(tokens)
    starts = np.cumsum([0, *(len(run) for _, run in tokens.parts)])[:-1]
    assert [labels[i].partition(" ")[0] for i in starts] == names
    lines = describe(tokenizer(), tokens)
    assert [line for line in lines if line.startswith("part ")] == [f"part {name}" for name in names]


def test_attention_goes_from_each_word_to_the_patches_where_they_are():
    """The picture of a word has the word's row of the rollout, at the row and column of each patch."""
    tokens = tokenizer().encode(RAW)
    summary = summary_of(tokens)
    figure = find_renderer(tokenizer()).from_tokens(RAW, tokens, summary)  # type: ignore[attr-defined]
    *pictures, bar = figure.axes
    assert [ax.get_title(loc="left") for ax in pictures] == ["one → image", "is", "above"]
    assert bar.get_ylabel() == "times average"
    for word, axes in enumerate(pictures):
        received = summary.rollout[6 + word, :6]
        grid = axes.images[-1].get_array()
        assert grid.shape == (2, 3)
        np.testing.assert_allclose(grid.reshape(-1), received / received.mean())


def test_one_run_alone_and_a_long_one_have_no_picture_of_pairs():
    renderer = find_renderer(tokenizer())
    for raw in ({"text": "one is"}, [("ids", [1] * 30), ("ids", [2] * 25)]):
        tokens = tokenizer().encode(raw)
        assert renderer.from_tokens(raw, tokens, summary_of(tokens)) is None  # type: ignore[attr-defined]


def test_a_part_of_a_plug_in_is_drawn_by_the_generic_renderer():
    class Own(Ids):
        pass

    made = Join({"own": Own(5), "graph": Graph(0, num_edge_types=1)})
    tokens = made.encode({"own": [1, 2], "graph": graph_of(2, [(0, 1)])})
    assert len(find_renderer(made).picture({"own": [1, 2], "graph": graph_of(2, [(0, 1)])}, tokens).texts) == 2


def test_an_image_behind_others_is_drawn_as_it_is_alone():
    raw = [("text", "one is above"), ("image", RAW["image"]), ("ids", [1])]
    tokens = tokenizer().encode(raw)
    figure = find_renderer(tokenizer()).from_tokens(raw, tokens, summary_of(tokens))  # type: ignore[attr-defined]
    assert [axes.images[-1].get_array().shape for axes in figure.axes[:-1]] == [(1, 3), (2, 3)]
    assert find_renderer(tokenizer()).token_names(raw, tokens)[3:9] == ["image 0,0", "0,1", "0,2", "1,0", "1,1", "1,2"]


@pytest.mark.parametrize("positions", ["grid", "index"])
def test_attention_goes_to_patches_and_not_to_learned_tokens(positions):
    made = Join({"image": Patches(4, resize=(8, 12), num_prefix_tokens=2, positions=positions), "ids": Ids(5)})
    raw = [("ids", [1, 2]), ("image", RAW["image"])]
    tokens = made.encode(raw)
    summary = summary_of(tokens)
    figure = find_renderer(made).from_tokens(raw, tokens, summary)  # type: ignore[attr-defined]
    for i, axes in enumerate(figure.axes[:-1]):
        received = summary.rollout[i, 2:]
        np.testing.assert_allclose(axes.images[-1].get_array().reshape(-1), received[2:] / received.mean())


def test_what_stands_beyond_the_edges_of_a_part_is_in_the_picture():
    molecule = "CC(C)Cc1ccc(cc1)C(C)C(=O)O"
    whole = JoinRenderer(Join({"molecule": Molecule()}))
    tokens = whole.tokenizer.encode({"molecule": molecule})
    picture = whole.picture({"molecule": molecule}, tokens).axes[0].images[0].get_array()
    edges = (picture[0], picture[-1], picture[:, 0], picture[:, -1])
    assert all(np.asarray(edge)[..., :3].min() > 0.99 for edge in edges), "ink touches an edge, where more is cut"
