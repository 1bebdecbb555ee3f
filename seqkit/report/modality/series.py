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
def forecast(past: np.ndarray, target: np.ndarray, predicted: np.ndarray) -> Figure:
    """Figure of a forecast: a series' last steps [n] and the target [k] in one line, predictions [k] in colour."""
    figure, (axes,) = new_figure(2.8, 1.7)
    ahead = np.arange(1, len(target) + 1)
    axes.axvline(0, color=INK, linewidth=0.6, linestyle=":")
    axes.plot(np.arange(1 - len(past), len(target) + 1), [*past, *target], color=INK, linewidth=0.9)
    # a line of one point cannot be seen
    marker = "o" if len(ahead) == 1 else None
    axes.plot(ahead, predicted, color=VERMILION, marker=marker, markersize=3)
    axes.set(xlabel="steps ahead")
    whole_numbers(axes.xaxis)
    return figure
