"""The figure of a power law of loss and size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure

from seqkit.report.figures import BLUE, STYLE, VERMILION, new_figure, scale_axis


@rc_context(STYLE)
def power_law_figure(
    sizes: Sequence[float], losses: Sequence[float], law: Callable[[float], float]
) -> Figure:
    """Runs as points and the law as a line, dashed up to four times the largest size, on logarithmic axes."""
    figure, (axes,) = new_figure(4.8, 3.1)
    first = min(sizes)
    last = max(sizes)
    ends = (first, last, 4 * last)
    scale_axis(axes, "x", ends, log=True)
    scale_axis(axes, "y", [*losses, *map(law, ends)], log=True)
    axes.plot(ends[:2], [law(x) for x in ends[:2]], color=BLUE, label="power law")
    axes.plot(
        ends[1:], [law(x) for x in ends[1:]], color=BLUE, linestyle="--", label="extrapolated"
    )
    axes.plot(sizes, losses, "o", color=VERMILION, markersize=4.5, label="runs")
    axes.set(xlabel="parameters N", ylabel="test loss")
    axes.legend()
    return figure
