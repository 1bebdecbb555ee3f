"""Examples under the heat of what is read: the right places are hot, and the example stays visible."""

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection

from seqkit.contract import Tokenizer, Tokens, TokenSpec
from seqkit.report.figures import svg
from seqkit.report.overlays import DENSE, FLAME, HEAT, MAX_HOT, Reach, names_of, overlay
from seqkit.tokenizers import Characters, Graph, LogMel, Molecule, Patches, Waveform


def reach_of(n, hot, *, layers=2, heads=3, last=False):
    """Everybody reads token `hot` twice as much as the others."""
    row = np.ones(n)
    row[hot] = 2
    row /= row.sum()
    return Reach(np.tile(row, (layers, heads, n, 1)), np.tile(row, (n, 1)), last)


def random_reach(last):
    drawn = np.random.default_rng(0).random((2, 3, 5, 5))
    drawn /= drawn.sum(axis=-1, keepdims=True)
    return Reach(drawn, drawn.mean(axis=(0, 1)), last)


@pytest.mark.parametrize("last", [False, True])
def test_shares_are_in_times_the_average_token(last):
    reach = random_reach(last)
    readers = [4] if last else range(5)
    for token in range(5):
        expected = 5 * np.mean([reach.rollout[reader, token] for reader in readers])
        assert reach.through[token] == pytest.approx(expected)
        for layer in range(2):
            for head in range(3):
                expected = 5 * np.mean([reach.layers[layer, head, reader, token] for reader in readers])
                assert reach.received[layer, head, token] == pytest.approx(expected)
    assert reach.through.mean() == pytest.approx(1)
    np.testing.assert_allclose(reach.rows["layer 1, mean of heads"], reach.received[1].mean(axis=0))


def test_one_scale_reaches_from_nothing_to_the_most_but_no_further_than_it_is_legible():
    assert reach_of(2, 0).scale().vmax == 2, "even reading stands in the middle"
    assert reach_of(100, 0).scale().vmax == 2
    one = np.zeros((1, 1, 11, 11))
    one[..., 3] = 1
    assert Reach(one, one[0, 0]).scale().vmax == MAX_HOT
    assert Reach(one, one[0, 0]).scale()(11.0) == 1


class Numbers(Tokenizer):
    @property
    def spec(self):
        return TokenSpec(num_features=2)

    def encode(self, raw, /):
        raise NotImplementedError


def test_tokens_are_named_by_what_they_are():
    letters = Characters()
    letters.fit(["to be\n"])
    assert names_of(letters, "o e\n", letters.encode("o e\n")) == ["o", "␣", "e", "↵"]
    patches = Patches(2)
    image = torch.zeros(1, 2, 4)
    assert names_of(patches, image, patches.encode(image)) == ["0,0", "0,1"]
    molecule = Molecule()
    assert names_of(molecule, "CCO", molecule.encode("CCO")) == ["C0", "C1", "O2"]
    three = Tokens(torch.zeros(3, 2), torch.arange(3.0)[:, None])
    assert names_of(Numbers(), None, three) == ["0", "1", "2"]


def test_text_stands_in_its_heat_line_by_line():
    letters = Characters()
    letters.fit(["abc <&$ "])
    raw = "a <b & $c$ " * 5
    tokens = letters.encode(raw)
    reach = reach_of(len(tokens), hot=4)
    figure = overlay(letters, raw, tokens, reach)
    boxes = [patch.get_facecolor() for patch in figure.axes[0].patches]
    assert len(boxes) == 3 * len(tokens)
    assert boxes[4] == HEAT(reach.scale()(reach.through[4]))
    assert boxes[3] == HEAT(reach.scale()(reach.through[3])) != boxes[4]
    said = [text.get_text() for text in figure.axes[0].texts]
    assert {"all layers (rollout)", "layer 0, mean of heads", "layer 1, mean of heads"} <= set(said)
    assert said.count("40") == 3, "a second line begins with token 40"
    page = svg(figure)
    assert "&lt;" in page
    assert "&amp;" in page


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_is_tinted_where_its_patches_are_read(layers, channels):
    image = torch.rand(channels, 4, 6, generator=torch.Generator().manual_seed(0))
    patches = Patches(2, channels=channels)
    tokens = patches.encode(image)
    reach = reach_of(6, hot=4, layers=layers)
    figure = overlay(patches, image, tokens, reach)
    shown = {ax.get_title(): ax.images[0].get_array() for ax in figure.axes if ax.images}
    names = {f"layer {i} · head {j}" for i in range(layers) for j in range(3)}
    assert set(shown) == {"the image", "all layers (rollout)"} | names
    grey = image.mean(dim=0).numpy()
    for title in sorted(names):  # token 4 is row 1, column 1: pixels 2 to 3 by 2 to 3
        for y, x, token in ((2, 2, 4), (3, 3, 4), (0, 5, 2), (3, 1, 3)):
            share = DENSE * reach.received[0, 0, token] / 2
            expected = grey[y, x] * (1 - share) + np.array(FLAME) * share
            np.testing.assert_allclose(shown[title][y, x], expected, atol=1e-6)


@pytest.mark.parametrize(("stack", "stride"), [(1, 1), (3, 2)])
def test_sound_stands_on_a_time_axis_with_its_own_bands(stack, stride):
    mel = LogMel(8000, num_mels=13, stack=stack, stride=stride)
    wave = Waveform(torch.rand(2999, generator=torch.Generator().manual_seed(0)) - 0.5, 8000)
    tokens = mel.encode(wave)
    figure = overlay(mel, wave, tokens, reach_of(len(tokens), hot=7))
    picture, line, strips = figure.axes[:3]
    assert picture.images[0].get_array().shape == (13, len(tokens), 3)
    alone = LogMel(8000, num_mels=13, stride=stride).encode(wave).content.numpy().T  # without the frames beside it
    low, high = np.percentile(alone, [1, 99])
    share = DENSE * reach_of(len(tokens), hot=7).through / 2
    blue = np.clip((alone - low) / (high - low), 0, 1) * (1 - share)  # the tint has no blue
    np.testing.assert_allclose(picture.images[0].get_array()[..., 2], blue, atol=1e-6)
    assert line.patches[7].get_height() > line.patches[6].get_height()
    assert line.patches[7].get_x() + line.patches[7].get_width() / 2 == pytest.approx(7 * stride * 0.01)
    assert strips.images[0].get_array().shape == (6, len(tokens))
    left, right, *_ = picture.images[0].get_extent()
    assert right - left == pytest.approx(len(tokens) * stride * 0.01)
    assert "time (s)" in strips.get_xlabel()


@pytest.mark.parametrize("layers", [1, 6])
def test_a_graph_has_every_layer_and_wider_lines_where_it_is_read(layers):
    graph = Graph(num_features=2)
    raw = (torch.ones(4, 2), [(0, 1), (1, 2), (2, 3)])
    tokens = graph.encode(raw)
    reach = reach_of(4, hot=3, layers=layers)
    figure = overlay(graph, raw, tokens, reach)
    drawn = [ax for ax in figure.axes if ax.get_title()]
    assert len(drawn) == 1 + layers
    lines = next(item for item in drawn[0].collections if isinstance(item, LineCollection))
    ends = tokens.links.edges.T.tolist()
    widths = dict(zip(map(tuple, ends), lines.get_linewidths()))
    assert widths[2, 3] > widths[0, 1]
    assert {text.get_text() for text in drawn[0].texts} == {"0", "1", "2", "3"}


def test_atoms_are_numbered_as_in_the_matrices():
    molecule = Molecule()
    figure = overlay(molecule, "CCO", molecule.encode("CCO"), reach_of(3, hot=2))
    assert [text.get_text() for text in figure.axes[0].texts] == ["C", "0", "C", "1", "O", "2"]


def test_tokens_of_an_unknown_tokenizer_are_bars():
    tokens = Tokens(torch.zeros(5, 2), torch.arange(5.0)[:, None])
    figure = overlay(Numbers(), None, tokens, reach_of(5, hot=1))
    assert [bar.get_height() for bar in figure.axes[0].patches] == pytest.approx(reach_of(5, hot=1).through.tolist())
