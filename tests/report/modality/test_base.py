"""The generic renderer: content, bars of attention, names."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.report.modality import Renderer, attended, picture
from seqkit.report.modality.base import MAX_RECEIVED, WARM
from seqkit.tokenizers import Ids


def test_an_unknown_tokenizer_is_drawn_as_its_content(unknown):
    tokens = unknown.encode([float(i) for i in range(33)])
    (part,) = picture(Renderer(unknown), None, tokens).subfigs
    content = part.axes[0]
    np.testing.assert_array_equal(content.images[0].get_array(), tokens.content.T)
    assert content.images[0].origin == "lower"
    assert content.get_title(loc="left") == "11 tokens of Vectors"


def test_tokens_of_an_unknown_tokenizer_are_bars_in_the_colours_of_the_legend(
    unknown, attention_to
):
    tokens, received = Tokens(torch.zeros(5, 2), torch.arange(5.0)[:, None]), attention_to(5, hot=1)
    axes, bar = attended(Renderer(unknown), None, tokens, received).axes
    assert [one.get_height() for one in axes.patches] == pytest.approx(received.tolist())
    assert (
        axes.patches[1].get_facecolor()
        == WARM.to_rgba(received[1])
        != axes.patches[0].get_facecolor()
    )
    assert "average" in bar.get_ylabel()
    assert WARM.to_rgba(10 * MAX_RECEIVED) == WARM.to_rgba(MAX_RECEIVED)


def test_tokens_of_an_unknown_tokenizer_are_named_by_index_or_position(unknown):
    three = Tokens(torch.zeros(3, 2), torch.arange(3.0)[:, None])
    assert Renderer(unknown).token_names(None, three) == ["0", "1", "2"]
    two = Tokens(torch.zeros(2, 2), torch.tensor([[0.0, 0.0], [0.0, 1.5]]))
    assert Renderer(unknown).token_names(None, two) == ["0,0", "0,1.5"]


def test_ids_of_an_unknown_tokenizer_are_decoded_one_by_one():
    class Tens(Tokenizer):
        @property
        def spec(self):
            return TokenSpec(vocab_size=7)

        def encode(self, raw, /):
            raise NotImplementedError

        def decode(self, ids):
            return "-".join(str(10 * i) for i in ids.tolist())

    assert Renderer(Tens()).pieces(Tokens(torch.tensor([3, 1]), torch.zeros(2, 1))) == ["30", "10"]


@pytest.mark.parametrize("n", [1, 3, 11, 40])
def test_axes_that_count_have_whole_numbers(unknown, n):
    figure = Figure()
    axes = figure.subplots()
    Renderer(unknown).draw(axes, None, unknown.encode([0.5] * 3 * n))
    figure.draw_without_rendering()
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        shown = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
        assert shown
        assert all(tick == round(tick) for tick in shown)


def test_a_row_of_ids_has_no_number():
    axes = Figure().subplots()
    Renderer(Ids(7)).draw(axes, None, Ids(7).encode([1, 2, 3]))
    assert len(axes.get_yticks()) == 0
