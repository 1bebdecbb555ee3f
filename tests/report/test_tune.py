"""Figures of `seqkit tune`: what they draw, and numbers that can be read."""

import dataclasses

import numpy as np
import pytest

from seqkit.analysis.tune import BatchSizes, BatchTrial, RateCurve
from seqkit.report.figures import svg
from seqkit.report.tune import batch_figure, rate_figure


@pytest.fixture
def curve():
    rates = np.geomspace(1e-7, 1, 57)
    losses = 2 + 0.1 * (np.log10(rates) + 3) ** 2
    return RateCurve(list(rates), list(losses), [2.5] * 57, base=0.003, suggestion=0.001, ended="it ended")


def test_the_suggested_and_the_recipes_learning_rate_are_marked(curve):
    axes = rate_figure(curve).axes[0]
    assert [line.get_xdata()[0] for line in axes.lines[2:]] == [0.001, 0.003]
    assert {"suggested: 0.001", "recipe: 0.003"} <= {text.get_text() for text in axes.get_legend().get_texts()}


def test_learning_rates_are_on_a_logarithmic_axis_of_plain_numbers(curve):
    figure = rate_figure(curve)
    assert figure.axes[0].get_xscale() == "log"
    assert "mathdefault" not in svg(figure)
    texts = [label.get_text().replace("\N{MINUS SIGN}", "-") for label in figure.axes[0].get_xticklabels()]
    assert len(texts) >= 3
    assert all(float(text) > 0 for text in texts)

    assert texts[1:-1] == ["1e-06", "0.0001", "0.01", "1"]


@pytest.mark.parametrize("top", [3.0, 40.0, 1e6])
def test_the_axis_of_a_loss_that_is_never_negative_begins_at_zero_or_above(curve, top):
    rates, losses = curve.rates, [2.3] * 40 + list(np.geomspace(1.0, top, 17))
    axes = rate_figure(dataclasses.replace(curve, losses=losses, initial=[2.3] * 57)).axes[0]
    low, high = axes.get_ylim()
    assert 0 <= low < 1
    assert 2.3 < high < 5.5
    assert len(rates) == len(losses)


def test_losses_below_zero_are_on_the_axis(curve):
    axes = rate_figure(dataclasses.replace(curve, losses=[loss - 9 for loss in curve.losses])).axes[0]
    assert axes.get_ylim()[0] < -6


def test_batch_sizes_have_time_and_memory(curve):
    trials = [BatchTrial(size, size, 0.5 / size, 0.5 / size, 0.5 / size, 10**9 * size) for size in (2, 8, 32)]
    times, memory = batch_figure(BatchSizes("batch_size", trials, 8, "it ended")).axes
    np.testing.assert_allclose(times.lines[0].get_ydata(), [250, 62.5, 15.625])
    np.testing.assert_allclose(memory.lines[0].get_ydata(), [2, 8, 32])
