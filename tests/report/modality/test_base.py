"""The generic renderer, and attention received per token."""

import numpy as np
import pytest
import torch

from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.report.modality.base import FLAME, MAX_RECEIVED, MAX_TINT, AttentionSummary, Renderer, blend
from seqkit.tokenizers import Ids


def random_attention(last_query):
    drawn = np.random.default_rng(0).random((2, 3, 5, 5))
    drawn /= drawn.sum(axis=-1, keepdims=True)
    return AttentionSummary(drawn, drawn.mean(axis=(0, 1)), last_query)


@pytest.mark.parametrize("last_query", [False, True])
def test_attention_received_is_in_times_the_average_token(last_query):
    summary = random_attention(last_query)
    queries = [4] if last_query else range(5)
    for key in range(5):
        expected = 5 * np.mean([summary.rollout[query, key] for query in queries])
        assert summary.by_rollout[key] == pytest.approx(expected)
        for layer in range(2):
            for head in range(3):
                expected = 5 * np.mean([summary.weights[layer, head, query, key] for query in queries])
                assert summary.by_head[layer, head, key] == pytest.approx(expected)
    assert summary.by_rollout.mean() == pytest.approx(1)
    np.testing.assert_allclose(summary.rows["layer 1, mean of heads"], summary.by_head[1].mean(axis=0))


def test_the_colour_scale_ends_at_the_most_received_within_limits(attention_to):
    assert attention_to(2, 0).scale().vmax == 2, "uniform attention stands in the middle"
    assert attention_to(100, 0).scale().vmax == 2
    one = np.zeros((1, 1, 11, 11))
    one[..., 3] = 1
    assert AttentionSummary(one, one[0, 0]).scale().vmax == MAX_RECEIVED
    assert AttentionSummary(one, one[0, 0]).scale()(11.0) == 1


def test_blending_goes_from_the_grey_picture_to_the_tint(attention_to):
    scale = attention_to(2, 0).scale()
    grey = np.array([[0.25, 0.25]])
    blended = blend(grey, np.array([[0.0, scale.vmax]]), scale)
    np.testing.assert_allclose(blended[0, 0], 0.25)
    np.testing.assert_allclose(blended[0, 1], 0.25 * (1 - MAX_TINT) + MAX_TINT * np.array(FLAME))


def test_an_unknown_tokenizer_is_drawn_as_content_and_positions(unknown):
    tokens = unknown.encode([float(i) for i in range(33)])
    content, positions, *_ = Renderer(unknown).picture(None, tokens).axes
    np.testing.assert_array_equal(content.images[0].get_array(), tokens.content.T)
    assert content.get_title(loc="left") == "content: 11 tokens of Vectors"
    np.testing.assert_array_equal([line.get_ydata() for line in positions.lines], tokens.positions.T)


def test_the_thumbnail_of_vectors_has_its_first_feature_below(unknown):
    tokens = Tokens(torch.arange(15.0).reshape(5, 3), torch.zeros(5, 1))
    axes = Renderer(unknown).picture(None, tokens).add_subplot()
    Renderer(unknown).thumbnail(tokens, axes)
    np.testing.assert_array_equal(axes.images[0].get_array(), tokens.content.T)
    assert axes.images[0].origin == "lower"


def test_tokens_of_an_unknown_tokenizer_are_bars(unknown, attention_to):
    tokens = Tokens(torch.zeros(5, 2), torch.arange(5.0)[:, None])
    figure = Renderer(unknown).overlay(None, tokens, attention_to(5, hot=1))
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert heights == pytest.approx(attention_to(5, hot=1).by_rollout.tolist())


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
    figure = Renderer(unknown).picture(None, unknown.encode([0.5] * 3 * n))
    content, positions, *_ = figure.axes
    figure.draw_without_rendering()
    for axis in (content.xaxis, content.yaxis, positions.xaxis):
        low, high = sorted(axis.get_view_interval())
        shown = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
        assert shown
        assert all(tick == round(tick) for tick in shown)


def test_a_row_of_ids_has_no_number():
    content, *_ = Renderer(Ids(7)).picture(None, Ids(7).encode([1, 2, 3])).axes
    assert len(content.get_yticks()) == 0


def test_the_label_of_the_colour_bar_stands_apart_from_the_positions(unknown):
    figure = Renderer(unknown).picture(None, unknown.encode([0.5] * 33))
    figure.draw_without_rendering()
    label, position = figure.axes[2].yaxis.label.get_window_extent(), figure.axes[1].yaxis.label.get_window_extent()
    assert position.x0 - label.x1 > 10
