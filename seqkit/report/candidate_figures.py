"""Figures of a comparison: each candidate has one colour, marker and line in all of them.

Figures have no legend of their own: names may be long, so the page has one in HTML, of `Mark.html`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle

from seqkit.comparison.types import Metric
from seqkit.report.figures import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, STYLE, VERMILION, new_figure, scale_axis

COLORS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""Colours of the palette that can be seen on white and on black."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "d")

MAX_NAME = 20
"""Characters of a name in a figure; the page has it in full."""

MAX_POINTS = 200
"""Points of a mean curve."""


@dataclass(frozen=True)
class Mark:
    """The look of a candidate in figures. filled: False for a candidate that was pretrained."""

    color: str
    marker: str
    line: str
    filled: bool = True

    @classmethod
    def number(cls, index: int, group: int = 0) -> Mark:
        """The look of the candidate with this number, in a group; the first 12 are told apart by their markers."""
        line = ("-", "--")[index // len(COLORS) % 2] if group == 0 else (":", "-.")[(group - 1) % 2]
        return cls(COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)], line, group == 0)

    @property
    def style(self) -> dict[str, Any]:
        """Keywords of `Axes.plot`."""
        face = self.color if self.filled else "none"
        return {"color": self.color, "marker": self.marker, "linestyle": self.line, "markerfacecolor": face}

    @property
    def html(self) -> Markup:
        """A sample of the line with its marker, as an inline `<svg>` without text."""
        style = MarkerStyle(self.marker)
        outline = np.asarray(style.get_path().transformed(style.get_transform()).to_polygons(closed_only=True)[0])
        points = " ".join(f"{15 + 8 * x:.1f},{6 - 8 * y:.1f}" for x, y in outline)
        dashes = {"-": "none", "--": "6 3", ":": "1.5 2.5", "-.": "6 2 1.5 2"}[self.line]
        fill = self.color if self.filled else "none"
        return Markup(  # noqa: S704 - numbers and constants only
            f'<svg class="mark" viewBox="0 0 30 12" width="30" height="12" aria-hidden="true">'
            f'<line x1="0" y1="6" x2="30" y2="6" stroke="{self.color}" stroke-width="2" stroke-dasharray="{dashes}"/>'
            f'<polygon points="{points}" fill="{fill}" stroke="{self.color}" stroke-width="1.5"/></svg>'
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
def spreads(rows: Sequence[tuple[str, Mark | None, Mapping[str, Any]]], metric: Metric) -> Figure:
    """One row per candidate, from the top: the mean by its marker, its interval a bar, above it every seed a dot.

    rows: name, mark and entry in results.json of each candidate; without a mark, the title of the rows below.
    """
    figure, (axes,) = new_figure(4.4, 0.34 * len(rows) + 0.75)
    seeds = [[run["value"] for run in one.get("runs") or [] if run.get("value") is not None] for _, _, one in rows]
    known = [x for (_, _, one), own in zip(rows, seeds) for x in (*own, one.get("mean")) if x is not None]
    for place, ((_, mark, result), values) in enumerate(zip(rows, seeds)):
        if mark is None:
            continue
        interval, mean = result.get("interval"), result.get("mean")
        if interval and None not in interval:
            bounds = [metric.shown(bound) for bound in interval]
            axes.plot(bounds, [place] * 2, color=mark.color, linewidth=5, alpha=0.35, solid_capstyle="butt")
        dots = [metric.shown(value) for value in values]
        heights = [place - 0.24 - 0.07 * dots[:i].count(dot) for i, dot in enumerate(dots)]  # equal ones are stacked
        axes.plot(dots, heights, "o", color=mark.color, markersize=3)
        if mean is not None:
            axes.plot([metric.shown(mean)], [place], **{**mark.style, "linestyle": "none"}, markersize=7)
        elif not dots:
            middle = metric.shown(float(np.mean(known))) if known else 0.5
            axes.text(middle, place, "failed", va="center", ha="center", style="italic")
    axes.set_yticks(range(len(rows)), [short(name) for name, _, _ in rows])
    for (_, mark, _), name in zip(rows, axes.get_yticklabels()):
        name.set_fontstyle("italic" if mark is None else "normal")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=INK, alpha=0.15, linewidth=0.6)
    axes.margins(x=0.06)
    axes.set_xlabel(metric.title)
    return figure


@rc_context(STYLE)
def lines(
    drawn: Sequence[Line],
    *,
    xlabel: str,
    ylabel: str,
    log_x: bool | None = None,
    log_y: bool | None = None,
    bars: bool = False,
    width: float = 3.1,
) -> Figure:
    """Lines with their bands, or with error bars. log_x, log_y: None for logarithmic where the values span enough."""
    figure, (axes,) = new_figure(width, 2.35)
    bounds = [value for line in drawn for values in (line.y, line.low or (), line.high or ()) for value in values]
    is_log = scale_axis(axes, "x", [x for line in drawn for x in line.x if x > 0 or log_x is False], log=log_x)
    scale_axis(axes, "y", bounds, log=log_y)
    for i, line in enumerate(drawn):
        if line.low is not None and line.high is not None:
            if bars:
                axes.vlines(line.x, line.low, line.high, color=line.mark.color, linewidth=1)
            else:
                axes.fill_between(line.x, line.low, line.high, color=line.mark.color, alpha=0.18, linewidth=0)
        many = len(line.x) > 12
        every = (0.04 + 0.02 * (i % 6), 0.17) if many else None
        axes.plot(line.x, line.y, **line.mark.style, markevery=every, markersize=4.2, linewidth=1.3)
        if line.ringed:
            axes.plot(*line.ringed, "o", color=INK, markerfacecolor="none", markersize=9, markeredgewidth=0.9)
    if is_log and log_x is None:
        axes.margins(x=0.04)
    axes.grid(color=INK, alpha=0.12, linewidth=0.6)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure


def mean_line(mark: Mark, runs: Sequence[Mapping[str, Any]], x: str, y: str) -> Line | None:
    """The mean of a loss over seeds, with a band from the lowest seed to the highest; None where nothing is known.

    x, y: keys of the points of `run["curve"]`. Seeds are averaged at equal steps, x as well as y, since one may have
    been slower than another; the line goes as far as all of them do. A seed that failed does not count, unless all did.
    Between its points a seed's curve is interpolated.
    """
    sound = [run for run in runs if not run.get("error")] or list(runs)
    curves = [sorted(_points(run, x, y)) for run in sound]
    curves = [curve for curve in curves if curve]
    if not curves:
        return None
    start, stop = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    if start > stop or (start == stop and max(map(len, curves)) > 1):  # they have nothing in common: show the longest
        curves = [max(curves, key=len)]
        start, stop = curves[0][0][0], curves[0][-1][0]
    grid = np.unique([point[0] for curve in curves for point in curve if start <= point[0] <= stop])
    if len(grid) > MAX_POINTS:
        grid = np.interp(np.linspace(0, len(grid) - 1, MAX_POINTS), np.arange(len(grid)), grid)
    columns = [np.array(curve, dtype=float).T for curve in curves]
    at = np.mean([np.interp(grid, step, own) for step, own, _ in columns], axis=0)
    values = np.stack([np.interp(grid, step, own) for step, _, own in columns])
    band = (values.min(axis=0).tolist(), values.max(axis=0).tolist()) if len(curves) > 1 else (None, None)
    return Line(mark, at.tolist(), values.mean(axis=0).tolist(), *band)


def _points(run: Mapping[str, Any], x: str, y: str) -> list[tuple[float, float, float]]:
    """(step, x, y) of the points of a run's curve that have all three."""
    known = [(point.get("step"), point.get(x), point.get(y)) for point in run.get("curve") or []]
    return [point for point in known if None not in point]


def pair_line(mark: Mark, pairs: Sequence[Sequence[float | None]] | None, scale: float = 1.0) -> Line | None:
    """A line through (x, y) pairs, y times `scale`; None where no pair is complete."""
    known = sorted((x, y * scale) for x, y in pairs or () if x is not None and y is not None)
    return Line(mark, [x for x, _ in known], [y for _, y in known]) if known else None


def short(name: str) -> str:
    """A name of at most MAX_NAME characters."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
