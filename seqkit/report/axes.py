"""Axes with plain numbers, logarithmic where the values span enough.

Matplotlib writes powers of ten as mathematics, which figures of this package do not parse (`figures.STYLE`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from seqkit.report.numbers import compact

WIDE = 5.0
"""Positive values are on a logarithmic axis where the largest is this many times the smallest."""

MAX_TICKS = 5


def scale_axis(axes: Axes, which: str, values: Iterable[float], *, log: bool | None = None) -> bool:
    """Make an axis ("x" or "y") logarithmic or linear for these values, with few and plain ticks.

    log: None for logarithmic where all values are positive and span a factor of WIDE. Where it is True, values that
    are not positive are not drawn. Returns whether the axis is logarithmic: it never is without positive values.
    """
    values = list(values)
    positive = [value for value in values if value > 0]
    if log is None:
        log = len(positive) == len(values) and bool(positive) and max(positive) >= WIDE * min(positive)
    log = log and bool(positive)
    axis = axes.xaxis if which == "x" else axes.yaxis
    if log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log", nonpositive="mask")
        axis.set_major_locator(FixedLocator(log_ticks(min(positive), max(positive))))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(MAX_TICKS, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    return log


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two positive bounds: 1, 2, 5, 10, …; fewer where they are many, finer where few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(ticks) <= MAX_TICKS:
            break
    if len(ticks) < 3:
        even = MaxNLocator(MAX_TICKS, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        ticks = [float(tick) for tick in even if low <= tick <= high] if low < high else [low]
    return ticks[:: math.ceil(len(ticks) / MAX_TICKS)]
