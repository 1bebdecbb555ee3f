"""Joined tokens are drawn part by part, each by its renderer, with the attention that its tokens receive."""

import numpy as np
import pytest
import torch
from graphs import graph_of

from seqkit.report.inspect import describe
from seqkit.report.modality import attended, find_renderer, picture
from seqkit.tokenizers import Graph, Ids, Join, Molecule, Patches, Words

RAW = {
    "image": torch.rand(1, 8, 12, generator=torch.Generator().manual_seed(0)),
    "text": "one is above",
}


def tokenizer() -> Join:
    made = Join({"image": Patches(4), "text": Words(), "molecule": Molecule(), "ids": Ids(5)})
    made.parts["text"].fit(["one is above and below"])
    return made


@pytest.mark.parametrize(
    "raw",
    [
        {**RAW, "molecule": "CCO"},
        {"text": "one"},
        [("ids", [1, 2]), ("text", "one"), ("image", RAW["image"])],
    ],
)
def test_every_part_is_drawn_and_named(raw):
    tokens, renderer = tokenizer().encode(raw), find_renderer(tokenizer())
    names = [name for name, _ in tokens.parts]
    titles = [part.axes[0].get_title(loc="left") for part in picture(renderer, raw, tokens).subfigs]
    assert [title.partition(":")[0] for title in titles] == names
    *pictures, _ = attended(renderer, raw, tokens, np.arange(float(len(tokens)))).axes
    assert [axes.get_title(loc="left") for axes in pictures] == names
    labels = renderer.token_names(raw, tokens)
    assert len(labels) == len(tokens)
    starts = np.cumsum([0, *(len(run) for _, run in tokens.parts)])[:-1]
    assert [labels[i].partition(" ")[0] for i in starts] == names
    lines = describe(tokenizer(), tokens)
    assert [line for line in lines if line.startswith("part ")] == [
        f"part {name}" for name in names
    ]


def test_attention_stands_on_the_part_that_receives_it():
    """Of a list, positions go on from part to part; the image is drawn as it is alone."""
    raw = [("text", "one is above"), ("image", RAW["image"]), ("ids", [1])]
    tokens, renderer = tokenizer().encode(raw), find_renderer(tokenizer())
    _, image, ids, _ = attended(renderer, raw, tokens, np.arange(10.0)).axes
    np.testing.assert_array_equal(image.images[1].get_array()[::4, ::4], [[3, 4, 5], [6, 7, 8]])
    assert [bar.get_height() for bar in ids.patches] == [9]
    assert renderer.token_names(raw, tokens)[3:9] == [
        "image 0,0",
        "0,1",
        "0,2",
        "1,0",
        "1,1",
        "1,2",
    ]


def test_a_part_of_a_plug_in_is_drawn_by_the_generic_renderer():
    class Own(Ids):
        pass

    made, raw = (
        Join({"own": Own(5), "graph": Graph(0, num_edge_types=1)}),
        {"own": [1, 2], "graph": graph_of(2, [(0, 1)])},
    )
    assert len(picture(find_renderer(made), raw, made.encode(raw)).subfigs) == 2
