"""Figures of a comparison: each candidate has one colour, marker and line in all of them.

Figures have no legend of their own: names may be long, so the page has one in HTML, of `Mark.html`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle

from seqkit.comparison.types import Row
from seqkit.errors import shortened
from seqkit.objectives.metric import Metric
from seqkit.report.figures import (
    CATEGORIES,
    INK,
    STYLE,
    new_figure,
    scale_axis,
)

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "d")

MAX_NAME = 20
"""Characters of a line of a name in a figure; the page has it in full."""


@dataclass(frozen=True)
class Mark:
    """The look of a candidate in figures."""

    color: str
    marker: str
    line: str

    @classmethod
    def number(cls, index: int) -> Mark:
        """The look of the candidate with this number; the first 12 are told apart by their markers."""
        line = ("-", "--")[index // len(CATEGORIES) % 2]
        return cls(CATEGORIES[index % len(CATEGORIES)], MARKERS[index % len(MARKERS)], line)

    @property
    def style(self) -> dict[str, Any]:
        """Keywords of `Axes.plot`."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.line}

    @property
    def html(self) -> Markup:
        """A sample of the line with its marker, as an inline `<svg>` without text."""
        style = MarkerStyle(self.marker)
        outline = np.asarray(
            style.get_path().transformed(style.get_transform()).to_polygons(closed_only=True)[0]
        )
        points = " ".join(f"{15 + 8 * x:.1f},{6 - 8 * y:.1f}" for x, y in outline)
        dashes = {"-": "none", "--": "6 3", ":": "1.5 2.5", "-.": "6 2 1.5 2"}[self.line]
        return Markup(  # noqa: S704 - numbers and constants only
            f'<svg class="mark" viewBox="0 0 30 12" width="30" height="12" aria-hidden="true">'
            f'<line x1="0" y1="6" x2="30" y2="6" stroke="{self.color}" stroke-width="2" stroke-dasharray="{dashes}"/>'
            f'<polygon points="{points}" fill="{self.color}" stroke="{self.color}" stroke-width="1.5"/></svg>'
        )


@dataclass(frozen=True)
class Line:
    """A candidate's line. x, y: its points. low, high: a band around y, if there is one. ringed: the chosen point."""

    mark: Mark
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    ringed: tuple[float, float] | None = None


@rc_context(STYLE)
def spreads(rows: Sequence[tuple[str, Mark, Row]], metric: Metric) -> Figure:
    """One row per candidate, from the top: the mean by its marker, its interval a bar, above it every seed a dot."""
    figure, (axes,) = new_figure(3.7, 0.34 * len(rows) + 0.75)
    values = [
        [metric.shown(run.value) for run in row.sound if run.value is not None]
        for _, _, row in rows
    ]
    middle = float(np.mean([dot for dots in values for dot in dots] or [0.5]))
    for place, ((_, mark, row), dots) in enumerate(zip(rows, values)):
        if row.mean is None:
            axes.text(middle, place, "failed", va="center", ha="center", style="italic")
            continue
        if row.interval is not None:
            bounds = [metric.shown(bound) for bound in row.interval]
            bar: dict[str, Any] = {"linewidth": 5, "alpha": 0.35, "solid_capstyle": "butt"}
            axes.plot(bounds, [place] * 2, color=mark.color, **bar)
        # equal ones are stacked, below the row before
        step = min(0.07, 0.4 / max(map(dots.count, dots), default=1))
        heights = [place - 0.24 - step * dots[:i].count(dot) for i, dot in enumerate(dots)]
        axes.plot(dots, heights, "o", color=mark.color, markersize=3)
        axes.plot(
            [metric.shown(row.mean)], [place], **{**mark.style, "linestyle": "none"}, markersize=7
        )
    axes.set_yticks(range(len(rows)), [_in_two_lines(name) for name, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=INK, alpha=0.15, linewidth=0.6)
    axes.margins(x=0.06)
    axes.set_xlabel(metric.title)
    return figure


def _in_two_lines(name: str) -> str:
    """A name in a figure; a long pattern of mixers goes on below, after a plus sign."""
    first, plus, rest = name.rpartition("+")
    if len(name) > MAX_NAME and plus:
        return f"{shortened(first, MAX_NAME)}+\n{shortened(rest, MAX_NAME)}"
    return shortened(name, MAX_NAME)


@rc_context(STYLE)
def lines(drawn: Sequence[Line], *, xlabel: str, ylabel: str, width: float = 3.1) -> Figure:
    """Lines with their bands; axes are logarithmic where the values span enough."""
    figure, (axes,) = new_figure(width, 2.35)
    bounds = [y for line in drawn for y in (*line.y, *(line.low or ()), *(line.high or ()))]
    is_log = scale_axis(axes, "x", [x for line in drawn for x in line.x if x > 0])
    scale_axis(axes, "y", bounds)
    for i, line in enumerate(drawn):
        if line.low is not None and line.high is not None:
            axes.fill_between(
                line.x, line.low, line.high, color=line.mark.color, alpha=0.18, linewidth=0
            )
        every = (0.04 + 0.02 * (i % 6), 0.17) if len(line.x) > 12 else None
        axes.plot(line.x, line.y, **line.mark.style, markevery=every, markersize=4.2, linewidth=1.3)
        if line.ringed:
            ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgewidth": 0.9}
            axes.plot(*line.ringed, "o", color=INK, markersize=9, **ring)
    if is_log:
        axes.margins(x=0.04)
    axes.grid(color=INK, alpha=0.12, linewidth=0.6)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure


def mean_line(mark: Mark, row: Row, key: str) -> Line | None:
    """The mean of a loss over seeds, with a band from the lowest seed to the highest; None where nothing is known.

    key: train_loss or valid_loss. The line goes as far as all seeds do; one that failed
    does not count. Between its points a seed's curve is interpolated.
    """
    curves = []
    for run in row.sound:
        known = [(one.step, loss) for one in run.curve if (loss := getattr(one, key)) is not None]
        if known:
            curves.append(np.array(known, dtype=float).T)
    if not curves:
        return None
    start = max(curve[0][0] for curve in curves)
    stop = min(curve[0][-1] for curve in curves)
    grid = np.unique(np.concatenate([curve[0] for curve in curves]))
    grid = grid[(grid >= start) & (grid <= stop)]
    values = np.stack([np.interp(grid, *curve) for curve in curves])
    line = Line(mark, grid.tolist(), values.mean(axis=0).tolist())
    if len(curves) == 1:
        return line
    return replace(line, low=values.min(axis=0).tolist(), high=values.max(axis=0).tolist())


def rate_lines(rows: Sequence[Row], marks: Mapping[str, Mark]) -> list[Line]:
    """The mean score of each learning rate over its seeds, a line for each candidate and optimizer.

    The chosen rate is ringed. Lines of the second optimizer are dotted: its rates are on another scale.
    """
    found = []
    for row in rows:
        tried: dict[str, dict[float, list[float]]] = {}
        for trial in row.trials:
            rate = trial.values.get("optimizer.lr")
            if rate and trial.depth is None and trial.score is not None:
                own = tried.setdefault(str(trial.values.get("optimizer.type")), {})
                own.setdefault(rate, []).append(trial.score)
        chosen = str(row.chosen.get("optimizer.type")), row.chosen.get("optimizer.lr")
        for i, (kind, scores) in enumerate(tried.items()):
            means = {rate: float(np.mean(scores[rate])) for rate in sorted(scores)}
            ringed = None
            if kind == chosen[0] and chosen[1] in means:
                ringed = (chosen[1], means[chosen[1]])
            mark = marks[row.name] if i == 0 else replace(marks[row.name], line=":")
            found.append(Line(mark, list(means), list(means.values()), ringed=ringed))
    return found
