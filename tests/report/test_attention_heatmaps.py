"""Heatmaps of attention weights: the numbers that were given, in one scale, named where there is room."""

import numpy as np
import pytest

from seqkit.report.attention import MIN_SCALE
from seqkit.report.attention_heatmaps import MAX_NAMED, heatmaps
from seqkit.report.figures import svg


def weights(layers, heads, n, m, seed=0):
    drawn = np.random.default_rng(seed).random((layers, heads, n, m)) ** 5
    return list(drawn / drawn.sum(axis=-1, keepdims=True))


def heatmap_axes(figure):
    return [ax for ax in figure.axes if ax.images]


def test_every_head_of_every_layer_shows_its_own_numbers_in_one_scale():
    given = weights(2, 3, 5, 7)
    figure = heatmaps(given, list("abcde"), list("ABCDEFG"), np.arange(6.0).reshape(2, 3))
    shown = heatmap_axes(figure)
    assert [ax.get_title() for ax in shown[:4]] == [
        "layer 0 · head 0\n0.00 of 1.95 nats",
        "layer 0 · head 1\n1.00 of 1.95 nats",
        "layer 0 · head 2\n2.00 of 1.95 nats",
        "layer 1 · head 0\n3.00 of 1.95 nats",
    ]
    for ax, expected in zip(shown, np.concatenate(given), strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), expected)
        assert (ax.images[0].norm.vmin, ax.images[0].norm.vmax) == (0, 1)


def test_the_colour_goes_by_the_square_root():
    norm = (
        heatmap_axes(heatmaps(weights(1, 1, 3, 3), list("abc"), list("abc"), np.zeros((1, 1))))[0]
        .images[0]
        .norm
    )
    assert norm(np.array([0.0, 0.01, 0.25, 1.0])).tolist() == pytest.approx([0, 0.1, 0.5, 1])


def test_tokens_are_named_beside_the_first_head_and_below_the_last_layer():
    figure = heatmaps(weights(2, 2, 3, 3), ["to", "␣", "be"], ["to", "␣", "be"], np.zeros((2, 2)))
    figure.draw_without_rendering()
    first, _, _, last = heatmap_axes(figure)
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["to", "␣", "be"]
    assert [tick.get_text() for tick in last.get_xticklabels()] == ["to", "␣", "be"]
    assert not any(tick.label1.get_visible() for tick in first.xaxis.get_major_ticks())
    assert not any(tick.label1.get_visible() for tick in last.yaxis.get_major_ticks())


@pytest.mark.parametrize(("n", "labels"), [(MAX_NAMED, 40), (MAX_NAMED + 1, 5)])
def test_of_many_tokens_every_tenth_is_numbered(n, labels):
    (ax,) = heatmap_axes(heatmaps(weights(1, 1, n, n), ["x"] * n, ["x"] * n, np.zeros((1, 1))))
    assert len(ax.get_xticks()) == len(ax.get_yticks()) == labels
    shown = ["x"] * n if labels == n else ["0", "10", "20", "30", "40"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == shown


def test_where_one_layer_has_fewer_heads_its_place_stays_empty():
    figure = heatmaps(
        [weights(1, 3, 2, 2)[0], weights(1, 1, 2, 2)[0]], ["a", "b"], ["a", "b"], np.zeros((2, 3))
    )
    assert len(heatmap_axes(figure)) == 4


@pytest.mark.slow
def test_at_most_four_heads_stand_in_a_row():
    given = weights(2, 6, 3, 3)
    figure = heatmaps(given, list("abc"), list("abc"), np.zeros((2, 6)))
    figure.draw_without_rendering()
    shown = heatmap_axes(figure)
    assert len({round(ax.bbox.x0) for ax in shown}) == 4
    assert len({round(ax.bbox.y0) for ax in shown}) == 4
    numbered = [ax for ax in shown if ax.xaxis.get_major_ticks()[0].label1.get_visible()]
    assert [ax.get_title().splitlines()[0] for ax in numbered] == [
        f"layer 1 · head {head}" for head in (2, 3, 4, 5)
    ]


@pytest.mark.parametrize("n", [9, 20, MAX_NAMED])
def test_a_row_of_heads_is_no_wider_than_a_page(n):
    figure = heatmaps(weights(1, 3, n, n), ["to"] * n, ["to"] * n, np.zeros((1, 3)))
    assert 72 * MIN_SCALE * figure.get_figwidth() < 880


def test_an_even_head_is_marked_and_its_largest_entropy_knows_what_a_row_sees():
    causal = np.tril(np.ones((3, 3)))
    even = causal / causal.sum(axis=1, keepdims=True)
    nats = np.log([1, 2, 3]).mean()
    figure = heatmaps([np.stack([even, np.eye(3)])], ["a"] * 3, ["a"] * 3, np.array([[nats, 0]]))
    assert [ax.get_title() for ax in heatmap_axes(figure)] == [
        "layer 0 · head 0\n0.60 of 0.60 nats, even",
        "layer 0 · head 1\n0.00 of 0.00 nats",
    ]
    figure = heatmaps([even[None] / 2], ["a"] * 3, ["a"] * 3, np.array([[1.0]]))
    assert heatmap_axes(figure)[0].get_title().endswith("1.00 of 1.06 nats, even"), "and the sink"


def test_weights_below_zero_are_told_from_those_above():
    mixed = [np.array([[[1.5, -0.5], [0.25, 0.75]]])]
    image = heatmap_axes(heatmaps(mixed, ["a", "b"], ["a", "b"], np.array([[np.nan]])))[0].images[0]
    assert image.norm(np.array([-1.5, 0.0, 1.5])).tolist() == [0, 0.5, 1]
    assert image.axes.get_title() == "layer 0 · head 0\n–"


def test_a_name_is_never_markup_nor_mathematics():
    page = svg(heatmaps(weights(1, 1, 2, 2), ["<script>", "$x$"], ["&", "b"], np.zeros((1, 1))))
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "$x$" in page
