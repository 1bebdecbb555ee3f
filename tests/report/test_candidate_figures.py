"""Figures of candidates: what is drawn where, and that no two candidates look alike."""

from dataclasses import replace

import numpy as np
import pytest

from seqkit.comparison.types import CurvePoint, Row, Run, Trial
from seqkit.objectives.metric import Metric
from seqkit.report.candidate_figures import Line, Mark, lines, mean_line, rate_lines, spreads

ACCURACY = Metric("m", "test accuracy", "%", 100, 2, True)


def run(*points):
    return Run(
        seed=1, folder="", value=0.5, curve=[CurvePoint(step=x, train_loss=y) for x, y in points]
    )


def mean(*runs):
    row = Row(name="A", parameters=1, config="", runs=list(runs))
    return mean_line(Mark.number(0), row, "train_loss")


def test_twelve_candidates_look_different():
    marks = [Mark.number(i) for i in range(12)]
    assert len({mark.marker for mark in marks}) == 12  # without colour, too
    assert len({str(mark.html) for mark in marks}) == 12


def test_a_mean_curve_is_the_mean_at_every_point_with_the_range_of_seeds():
    line = mean(run((1, 4.0), (3, 2.0), (5, 1.0)), run((1, 6.0), (3, 4.0), (5, 1.0)))
    assert (line.x, line.y) == ([1, 3, 5], [5, 3, 1])
    assert (line.low, line.high) == ([4, 2, 1], [6, 4, 1])


def test_a_mean_curve_interpolates_and_goes_as_far_as_all_seeds_do():
    line = mean(run((0, 0.0), (4, 4.0)), run((2, 10.0), (8, 10.0)))
    assert line.x == [2, 4]
    assert line.y == [6, 7]


def test_one_seed_has_no_band():
    line = mean(run((1, 4.0), (3, 2.0)))
    assert (line.y, line.low, line.high) == ([4, 2], None, None)


def test_points_without_a_value_and_seeds_that_failed_are_left_out_and_no_points_are_no_line():
    assert mean(run((1, None), (3, 2.0))).x == [3]
    assert mean(run((1, None))) is None
    assert mean() is None
    bad = replace(run((1, 90.0)), value=None, error="NaN")
    assert mean(run((1, 4.0), (3, 2.0)), bad).y == [4, 2]


def test_the_mean_score_of_each_rate_is_drawn_and_the_chosen_one_ringed():
    scores = (
        (0.1, "Muon", 0.5),
        (0.1, "Muon", 0.7),
        (0.3, "Muon", 0.9),
        (0.01, "AdamW", 0.4),
        (0.3, "Muon", None),
    )
    trials = [
        Trial(values={"optimizer.type": kind, "optimizer.lr": lr}, seed=1, score=score)
        for lr, kind, score in scores
    ]
    row = Row(name="A", parameters=1, config="", runs=[], trials=trials,
              chosen={"optimizer.type": "Muon", "optimizer.lr": 0.1})  # fmt: skip
    muon, adamw = rate_lines([row], {"A": Mark.number(0)})
    assert (muon.x, muon.y) == ([0.1, 0.3], pytest.approx([0.6, 0.9]))
    assert muon.ringed == (0.1, pytest.approx(0.6))
    assert (adamw.x, adamw.ringed, adamw.mark.line) == ([0.01], None, ":")


def test_spreads_show_every_seed_the_mean_and_the_interval_in_the_shown_unit():
    runs = [Run(seed=seed, folder="", value=value) for seed, value in enumerate((0.97, 0.98, 0.99))]
    row = Row(name="LSTM", parameters=1, config="", runs=runs, mean=0.98, interval=(0.965, 0.995))
    failed = Row(name="RNN", parameters=1, config="", runs=[])
    axes = spreads([("RNN", Mark.number(0), failed), ("LSTM", Mark.number(1), row)], ACCURACY).axes[
        0
    ]
    interval, seeds, middle = axes.lines
    np.testing.assert_allclose(interval.get_xdata(), [96.5, 99.5])
    np.testing.assert_allclose(seeds.get_xdata(), [97, 98, 99])
    np.testing.assert_allclose(middle.get_xydata(), [[98, 1]])
    assert [name.get_text() for name in axes.get_yticklabels()] == ["RNN", "LSTM"]
    assert [text.get_text() for text in axes.texts] == ["failed"]


def test_lines_have_their_candidates_look_a_band_and_a_ring():
    mark = Mark.number(7)
    line = Line(
        mark, [1, 10, 100], [3.0, 2.0, 1.0], [2.5, 1.5, 0.5], [3.5, 2.5, 1.5], ringed=(10, 2.0)
    )
    axes = lines([line], xlabel="x", ylabel="y").axes[0]
    drawn, ring = axes.lines
    assert (drawn.get_color(), drawn.get_marker(), drawn.get_linestyle()) == (
        mark.color,
        mark.marker,
        "--",
    )
    np.testing.assert_array_equal(ring.get_xydata(), [[10, 2]])
    low, high = axes.collections[0].get_paths()[0].get_extents().intervaly
    assert (low, high) == (0.5, 3.5)
