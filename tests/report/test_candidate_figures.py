"""Figures of candidates: what is drawn where, and that no two candidates look alike."""

import numpy as np
import pytest
from synthetic_results import comparison

from seqkit.comparison.types import Metric
from seqkit.report.candidate_figures import Line, Mark, lines, mean_line, pair_line, short, spreads

ACCURACY = Metric("m", "test accuracy", "%", 100, 2, True)


def run(*points, error=None):
    return {"curve": [{"step": x, "tokens": x, "train_loss": y} for x, y in points], "error": error}


def mean(*runs):
    return mean_line(Mark.number(0), runs, "tokens", "train_loss")


def test_twelve_candidates_in_two_groups_look_different():
    marks = [Mark.number(i, group) for i in range(12) for group in (0, 1)]
    assert len(set(marks)) == 24
    assert len({(mark.marker, mark.filled) for mark in marks}) == 24  # without colour, too
    assert len({str(mark.html) for mark in marks}) == 24


def test_a_mean_curve_is_the_mean_at_every_point_with_the_range_of_seeds():
    line = mean(run((1, 4.0), (3, 2.0), (5, 1.0)), run((1, 6.0), (3, 4.0), (5, 1.0)))
    assert (line.x, line.y) == ([1, 3, 5], [5, 3, 1])
    assert (line.low, line.high) == ([4, 2, 1], [6, 4, 1])


def test_a_mean_curve_interpolates_and_goes_as_far_as_all_seeds_do():
    line = mean(run((0, 0.0), (4, 4.0)), run((2, 10.0), (8, 10.0)))
    assert line.x == [2, 4]
    assert line.y == [6, 7]


def test_seeds_of_unequal_speed_are_averaged_at_equal_steps():
    fast, slow = (
        {"curve": [{"step": step, "seconds": step * pace, "train_loss": 1 / step} for step in (2, 3, 5)]}
        for pace in (1, 9)
    )
    line = mean_line(Mark.number(0), [fast, slow], "seconds", "train_loss")
    assert line.x == [10, 15, 25]
    np.testing.assert_allclose(line.y, [1 / 2, 1 / 3, 1 / 5])
    np.testing.assert_allclose(line.high, line.low)


def test_one_seed_has_no_band():
    line = mean(run((1, 4.0), (3, 2.0)))
    assert (line.y, line.low, line.high) == ([4, 2], None, None)


def test_a_seed_that_failed_counts_only_where_all_did():
    bad = run((1, 90.0), (3, 90.0), error="NaN")
    assert mean(run((1, 4.0), (3, 2.0)), bad).y == [4, 2]
    assert mean(bad).y == [90, 90]


def test_points_without_a_value_are_left_out_and_no_points_are_no_line():
    assert mean(run((1, None), (None, 2.0), (3, 2.0))).x == [3]
    assert mean(run((1, None))) is None
    assert mean() is None
    assert pair_line(Mark.number(0), [[3, 5.0], [1, 2.0], [2, None]], 10) == Line(Mark.number(0), [1, 3], [20, 50])
    assert pair_line(Mark.number(0), None) is None


def test_seeds_that_have_no_range_in_common_show_the_longest():
    assert mean(run((1, 4.0), (2, 3.0), (3, 2.0)), run((7, 1.0))).y == [4, 3, 2]


def test_a_long_curve_is_thinned_and_keeps_its_ends():
    line = mean(run(*((i, 1.0 / (i + 1)) for i in range(3571))))
    assert len(line.x) <= 200
    assert (line.x[0], line.x[-1]) == (0, 3570)


def test_spreads_show_every_seed_the_mean_and_the_interval_in_the_shown_unit():
    runs = [{"value": value} for value in (0.97, 0.98, 0.99)]
    row = ("LSTM", Mark.number(1), {"runs": runs, "mean": 0.98, "interval": [0.965, 0.995]})
    axes = spreads([("a group", None, {}), row], ACCURACY).axes[0]
    interval, seeds, middle = axes.lines
    np.testing.assert_allclose(interval.get_xdata(), [96.5, 99.5])
    np.testing.assert_allclose(seeds.get_xdata(), [97, 98, 99])
    np.testing.assert_allclose(middle.get_xydata(), [[98, 1]])
    assert [name.get_text() for name in axes.get_yticklabels()] == ["a group", "LSTM"]


@pytest.mark.parametrize("others", [[], [("LSTM", Mark.number(1), {"runs": [{"value": 0.97}], "mean": 0.97})]])
def test_a_candidate_without_values_is_said_to_have_failed(others):
    axes = spreads([*others, ("RNN", Mark.number(0), {})], ACCURACY).axes[0]
    assert [text.get_text() for text in axes.texts] == ["failed"]


def test_lines_have_their_candidates_look_a_band_and_a_ring():
    mark = Mark.number(7)
    line = Line(mark, [1, 10, 100], [3.0, 2.0, 1.0], [2.5, 1.5, 0.5], [3.5, 2.5, 1.5], ringed=(10, 2.0))
    axes = lines([line], xlabel="x", ylabel="y").axes[0]
    drawn, ring = axes.lines
    assert (drawn.get_color(), drawn.get_marker(), drawn.get_linestyle()) == (mark.color, mark.marker, "--")
    np.testing.assert_array_equal(ring.get_xydata(), [[10, 2]])
    low, high = axes.collections[0].get_paths()[0].get_extents().intervaly
    assert (low, high) == (0.5, 3.5)


def test_a_candidate_has_one_colour_in_results_of_any_order():
    from seqkit.report.ranking import ranked

    results = comparison(5)
    colors = {row.label: row.mark for group in ranked(results) for row in group.rows}
    assert colors == {candidate["name"]: Mark.number(i) for i, candidate in enumerate(results["candidates"])}


def test_long_names_are_cut():
    assert short("x" * 60) == "x" * 19 + "…"
    assert short("x" * 20) == "x" * 20
