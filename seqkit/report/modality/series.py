"""Figures of series: lines over time steps, and forecasts beside what followed.

n time steps · f features · k steps ahead
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqkit.interfaces import Tokens
from seqkit.report.figures import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    STYLE,
    VERMILION,
    new_figure,
)
from seqkit.report.modality.base import Renderer, whole_numbers


class SeriesRenderer(Renderer):
    """A line for each feature of a series."""

    size = (2.4, 1.5)
    note = "A line is a feature over time steps."

    def draw(
        self, axes: Axes, raw: Any, tokens: Tokens, received: np.ndarray | None = None
    ) -> None:
        if raw is None or received is not None:
            super().draw(axes, raw, tokens, received)
            return
        axes.set_prop_cycle(color=[BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY])
        axes.plot(steps_of(raw), linewidth=0.9)
        axes.set(xlabel="time step")
        whole_numbers(axes.xaxis)


def steps_of(raw: Any) -> np.ndarray:
    """The numbers of a raw series, [n f]."""
    return torch.as_tensor(raw).float().reshape(len(raw), -1).numpy()


@rc_context(STYLE)
def forecast(
    past: np.ndarray, target: np.ndarray, predicted: np.ndarray, widths: np.ndarray
) -> Figure:
    """Figure of a forecast: a series' last steps [n] and the target [k] in one line, predictions [k] in colour.

    widths: half widths [k] of the band around the predictions; empty: there is none.
    """
    figure, (axes,) = new_figure(2.8, 1.7)
    ahead = np.arange(1, len(target) + 1)
    axes.axvline(0, color=INK, linewidth=0.6, linestyle=":")
    axes.plot(np.arange(1 - len(past), len(target) + 1), [*past, *target], color=INK, linewidth=0.9)
    # a line of one point cannot be seen
    marker = "o" if len(ahead) == 1 else None
    axes.plot(ahead, predicted, color=VERMILION, marker=marker, markersize=3)
    if len(widths):
        low = predicted - widths
        high = predicted + widths
        axes.fill_between(ahead, low, high, color=VERMILION, alpha=0.18, linewidth=0)
        if marker:
            axes.errorbar(ahead, predicted, widths, color=VERMILION, alpha=0.4, capsize=3)
    axes.set(xlabel="steps ahead")
    whole_numbers(axes.xaxis)
    return figure


@rc_context(STYLE)
def error_by_step(ours: np.ndarray, last: np.ndarray) -> Figure:
    """Root mean square errors [k] of a forecast, and of repeating the last value, by step ahead."""
    figure, (axes,) = new_figure(4.6, 2.6)
    ahead = np.arange(1, len(ours) + 1)
    marker = "o" if len(ahead) <= 12 else None
    axes.plot(ahead, ours, color=VERMILION, marker=marker, markersize=4)
    axes.plot(ahead, last, color=INK, linestyle="--", marker=marker, markersize=3, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="steps ahead", ylabel="RMSE (target's unit)")
    whole_numbers(axes.xaxis)
    return figure
