"""Figures of `seqkit tune`: the loss over the learning rate, time and memory over the batch size."""

from __future__ import annotations

from matplotlib import rc_context
from matplotlib.figure import Figure

from seqkit.analysis.tune import BatchSizes, RateCurve
from seqkit.report.figures import BLUE, INK, STYLE, VERMILION, new_figure, scale_axis


@rc_context(STYLE)
def rate_figure(curve: RateCurve) -> Figure:
    """Loss of each step and its mean over a decade, by learning rate; the suggestion is a dashed line."""
    figure, (axes,) = new_figure(4.6, 2.7)
    axes.plot(curve.rates, curve.losses, color=BLUE, alpha=0.35, label="loss of a step")
    axes.plot(curve.rates, curve.smoothed, color=BLUE, label="running mean, one decade")
    if curve.suggestion is not None:
        axes.axvline(
            curve.suggestion, color=VERMILION, linestyle="--", linewidth=1, label=f"suggested: {curve.suggestion:.2g}"
        )
    axes.axvline(curve.base, color=INK, linestyle=":", linewidth=1, label=f"recipe: {curve.base:.2g}")
    axes.set(xlabel="learning rate", ylabel="training loss per prediction")
    scale_axis(axes, "x", curve.rates, log=True)
    if min(curve.losses) >= 0:
        highest = 2 * max(curve.smoothed[0], min(curve.smoothed))
        shown = [loss for loss in (*curve.losses, *curve.smoothed) if loss <= highest]
        margin = 0.05 * (max(shown) - min(shown))
        axes.set_ylim(max(0.0, min(shown) - margin), max(shown) + margin or None)
    axes.legend()
    return figure


@rc_context(STYLE)
def batch_figure(found: BatchSizes) -> Figure:
    """Time of a training step per example, and memory of its tensors, by batch size; the suggestion is dashed."""
    figure, (times, memory) = new_figure(6.6, 2.7, columns=2)
    sizes = [trial.size for trial in found.trials]
    for axes, values, label in (
        (times, [1e3 * trial.seconds for trial in found.trials], "time per example (ms)"),
        (memory, [trial.peak / 1e9 for trial in found.trials], "memory of tensors (GB)"),
    ):
        axes.plot(sizes, values, color=BLUE, marker="o", markersize=4)
        scale_axis(axes, "x", sizes)
        scale_axis(axes, "y", values)
        axes.set(xlabel=f"data.{found.key}", ylabel=label)
        if found.suggestion is not None:
            axes.axvline(found.suggestion, color=VERMILION, linestyle="--", linewidth=1, label="suggested")
            axes.legend()
    return figure
