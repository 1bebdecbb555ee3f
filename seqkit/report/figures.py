"""Figures as plain objects: no pyplot, nothing global, nothing opens a window.

Text and lines are drawn in INK, which `svg` turns into the text colour of the page that shows it, light or dark. Axes
have plain numbers: Matplotlib writes powers of ten as mathematics, which STYLE does not parse.

k classes · m predictions · s points of a curve
"""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from seqkit.errors import one_line, printable
from seqkit.files import write_atomic
from seqkit.objectives.metric import MINUS
from seqkit.report.numbers import format_number

INK = "#1b2733"
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442",
)  # fmt: skip
"""Okabe and Ito's palette, which the colour-blind can tell apart."""

CATEGORIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""Colours of the palette that can be seen on white and on black."""

PALE = LinearSegmentedColormap.from_list("pale", [f"{BLUE}00", f"{BLUE}bf"])
"""Shares from 0 to 1, transparent where there are none: text in the page's colour is legible (4.5 to 1) on all."""

STYLE: dict[Any, Any] = {
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "font.size": 8.5, "axes.titlesize": 9.5, "axes.titlelocation": "left", "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.7, "lines.linewidth": 1.4,
    "xtick.major.width": 0.7, "ytick.major.width": 0.7, "svg.fonttype": "none", "svg.hashsalt": "seqkit",
    "text.parse_math": False,
}  # fmt: skip
"""`with rc_context(STYLE)` around all that draws. Text is never mathematics: class names may hold a dollar sign."""

FEW_CLASSES = 20
MAX_NAMED = 120
"""A confusion matrix of at most this many classes has names and numbers, and names."""

CHARACTER = 0.072  # inches


@dataclass(frozen=True)
class Series:
    """A curve. x: [s] optimizer steps, 1 for the first. y: [s]. label: what the legend says."""

    x: Sequence[float]
    y: Sequence[float]
    label: str


def new_figure(
    width: float, height: float, *, columns: int = 1, rows: int = 1, **grid: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of that size in inches and its subplots, row by row. Call it within `rc_context(STYLE)`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **grid).flat)


WIDE = 5.0
"""Positive values are on a logarithmic axis where the largest is this many times the smallest."""

MAX_TICKS = 5

MAX_DECIMALS = 10
"""Ticks that need as many decimals are written with powers of ten."""


def scale_axis(axes: Axes, which: str, values: Iterable[float], *, log: bool | None = None) -> bool:
    """Make an axis ("x" or "y") logarithmic or linear for these values, with few and plain ticks.

    log: None for logarithmic where all values are positive and span a factor of WIDE. Where it is True, values that
    are not positive are not drawn. Returns whether the axis is logarithmic: it never is without positive values.
    """
    values = list(values)
    positive = [value for value in values if value > 0]
    factor = max(positive) / min(positive) if positive else 0.0
    if log is None:
        log = len(positive) == len(values) and factor >= WIDE
    log = log and bool(positive)
    axis, set_scale = {
        "x": (axes.xaxis, axes.set_xscale),
        "y": (axes.yaxis, axes.set_yscale),
    }[which]
    if log:
        set_scale("log", nonpositive="mask")
        steps = [1]
        if factor < 30:
            steps = [1, 2, 5]
        elif factor < 1000:
            steps = [1, 3]
        axis.set_major_locator(LogLocator(subs=steps, numticks=MAX_TICKS + 1))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, prefix=True)))
    else:
        axis.set_major_locator(MaxNLocator(MAX_TICKS, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(EvenTicks())
    return log


class EvenTicks(Formatter):
    """Text of the ticks of a linear axis: all have as many decimals as their step needs, and one decimal prefix."""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """2.2875, 2.2900, 2.2925; from 10,000 on 20k, 30k."""
        ticks = np.asarray(values, dtype=float)
        largest = np.abs(ticks).max(initial=0)
        power = min(int(np.log10(largest) / 3), 5) if largest >= 1e4 else 0
        ticks = ticks / 1000**power
        steps = np.diff(ticks)
        decimals = 0
        while decimals < MAX_DECIMALS and not np.allclose(steps, steps.round(decimals), atol=0):
            decimals += 1
        if decimals == MAX_DECIMALS:
            return [format_number(tick, digits=MAX_DECIMALS) for tick in ticks.tolist()]
        name = " kMGTP"[power].strip()
        return [f"{tick:z,.{decimals}f}{name}".replace("-", MINUS) for tick in ticks.tolist()]


MAX_LEGEND = 40
"""Characters that two columns of a legend have room for."""

LEGEND_ROW = 0.165  # inches

COLORS = {"training": BLUE, "validation": VERMILION}
"""Colours of the splits, the same in every figure."""


@rc_context(STYLE)
def curves(
    series: Sequence[Series],
    *,
    unit: str,
    levels: Mapping[str, float | None] | None = None,
    kept: int | None = None,
    log: bool | None = None,
) -> Figure:
    """Curves over optimizer steps, and levels as dashed and dotted lines, by what the legend says of them.

    The axis is that of the curves: a level that would flatten them is a number in the legend.
    unit: label of the vertical axis. kept: the step of which the run has the weights, marked on the last curve.
    log: as in `scale_axis`.
    """
    figure, (axes,) = new_figure(3.8, 2.7)
    scale_axis(axes, "y", [y for one in series for y in one.y], log=log)
    for one in series:
        color = COLORS.get(one.label, BLUE)
        marker = "o" if len(one.x) < 3 else None
        is_noisy = len(one.x) > 200
        alpha = 0.35 if is_noisy else 1
        look: dict[str, Any] = {"label": one.label, "marker": marker, "markersize": 4}
        axes.plot(one.x, one.y, color=color, alpha=alpha, **look)
        if is_noisy:
            axes.plot(*_running_mean(one), color=color)
    last = series[-1]
    # a single point has the weights anyway
    if kept is not None and len(last.x) > 1:
        place = int(np.abs(np.asarray(last.x) - kept).argmin())
        point = (last.x[place], last.y[place])
        axes.plot(*point, "o", color=color, markersize=6, label="kept weights")
    least, most = axes.get_ylim()
    sign = "%" if unit.endswith("%") else ""
    for (label, level), style in zip((levels or {}).items(), ("--", ":")):
        if level is None:
            continue
        look = {"color": INK, "linestyle": style, "linewidth": 1}
        if _is_near(axes, level, least, most):
            axes.axhline(level, label=label, **look)
        else:
            side = "above" if level > most else "below"
            axes.plot([], [], label=f"{label}: {format_number(level, sign)}, {side}", **look)
    axes.set(xlabel="optimizer steps", ylabel=unit)
    axes.xaxis.set_major_locator(
        MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1)
    )
    legend_above(figure, axes)
    return figure


def _is_near(axes: Axes, level: float, least: float, most: float) -> bool:
    """Whether a level is so near to the curves, from `least` to `most`, that they keep most of the axis."""
    if level <= 0 and axes.get_yscale() == "log":
        return False
    change = axes.transScale.transform
    (_, low), (_, high), (_, at) = change([(1, least), (1, most), (1, level)])
    room = 0.75 * (high - low)
    return bool(low - room <= at <= high + room)


def legend_above(figure: Figure, axes: Axes) -> None:
    """A legend above the axes, where it lies on no line, and the figure is higher by it: axes keep their size."""
    lengths = [len(label) for label in axes.get_legend_handles_labels()[1]]
    rows = (len(lengths) + 1) // 2
    columns = 2
    if max(lengths[:rows]) + max(lengths[rows:], default=0) > MAX_LEGEND:
        rows = len(lengths)
        columns = 1
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.02), ncols=columns, borderaxespad=0)
    figure.set_figheight(figure.get_figheight() + rows * LEGEND_ROW)


@rc_context(STYLE)
def confusion(counts: np.ndarray, names: Sequence[str]) -> Figure:
    """Confusion matrix. counts: [k k], target class (row), predicted class (column)."""
    k = len(names)
    few = k <= FEW_CLASSES
    size = max(0.33, 1.5 / k)  # of a row, in inches
    if not few:
        size = 0.15 if k <= MAX_NAMED else 3.5 / k
    short = shortened([one_line(name) for name in names], 24 if k <= 6 else 14)
    room = CHARACTER * max(map(len, short)) if k <= MAX_NAMED else 0.0
    is_level = few and k * room <= 4.5
    width = k * (max(size, room) if is_level else size)
    height = k * size
    below = 0.0 if is_level else room
    figure, (axes,) = new_figure(width + room + 1.4, height + below + 0.8)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap=PALE, vmin=0, vmax=1, aspect="auto")
    axes.set(xlabel="predicted class", ylabel="target class")
    if k <= MAX_NAMED:
        look: dict[str, Any] = {}
        if not few:
            look = {"rotation": 90}
        elif not is_level:
            look = {"rotation": 45, "ha": "right"}
        axes.set_xticks(range(k), short, **look)
        axes.set_yticks(range(k), short)
        axes.tick_params(labelsize=8.5 if few else 7)
        for (row, column), number in np.ndenumerate(counts):
            if (number or row == column) and few:
                axes.text(column, row, str(int(number)), ha="center", va="center", fontsize=7)
    label = "share of the target class" if height > 2 else "share"
    figure.colorbar(image, ax=axes, label=label, aspect=20 * height / 3.5)
    return figure


def shortened(names: Sequence[str], most: int = 14) -> list[str]:
    """Names of at most so many characters that are all different: beginnings, numbered where these are the same."""
    short = [name if len(name) <= most else f"{name[: most - 1]}…" for name in names]
    taken = Counter(short)
    return [
        one if taken[one] == 1 else f"{name[: most - 2 - len(str(i))]}… {i}"
        for i, (name, one) in enumerate(zip(names, short), start=1)
    ]


@rc_context(STYLE)
def scatter(target: np.ndarray, preds: np.ndarray, *, rmse: float) -> Figure:
    """Predictions over targets [m], with the diagonal on which they agree. rmse: of these, or of more."""
    figure, (axes,) = new_figure(3.9, 3.5)
    low = float(min(target.min(), preds.min()))
    high = float(max(target.max(), preds.max()))
    axes.plot([low, high], [low, high], color=INK, linewidth=0.8, linestyle="--", label="perfect")
    label = f"test, RMSE {format_number(rmse)}"
    alpha = 0.7 if len(target) < 500 else 0.3
    axes.scatter(target, preds, s=12, color=BLUE, alpha=alpha, linewidths=0, label=label)
    axes.set(xlabel="target", ylabel="prediction (target's unit)", aspect="equal")
    legend_above(figure, axes)
    return figure


def svg(figure: Figure, title: str = "") -> str:
    """The figure as an `<svg>` element: text in the page's colour and font, ids unlike those of other figures.

    title: words for those who cannot see it; empty: those of its axes.
    """
    file = io.StringIO()
    with warnings.catch_warnings(), rc_context(STYLE):
        # the browser has its own fonts
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        empty = {"Creator": None, "Date": None, "Format": None, "Type": None}
        figure.savefig(
            file,
            format="svg",
            transparent=True,
            metadata=empty,
            bbox_inches="tight",
            pad_inches=0.04,
        )
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    # a style sheet inside would be one of the whole page
    text = re.sub(r"<style[^>]*>\*\{(.*?)\}</style>", "", text, count=1)
    look = 'style="stroke-linejoin: round; stroke-linecap: butt"'
    if title := title or _title(figure):
        look += f' role="img" aria-label="{escape(title)}"'
    text = text.replace("<svg", f"<svg {look}", 1)
    prefix = f"f{sha256(text.encode()).hexdigest()[:8]}-"
    text = re.sub(r'(\sid="|"url\(#|\surl\(#|href="#)', lambda found: found[1] + prefix, text)
    # nothing refers to these, and equal pictures share one
    text = re.sub(r'\sid="[^"]*-image[0-9a-f]*"', "", text)
    text = printable(text)  # names stand in it as they are
    return re.sub(
        r'(<svg[^>]*?) width="([\d.]+)pt" height="[\d.]+pt"',
        r'\1 width="\2pt"',
        text,
        count=1,
        flags=re.DOTALL,
    )


def _title(figure: Figure) -> str:
    """Titles of the axes; of those without one, their labels: accuracy, % over optimizer steps."""
    found = [
        axes.get_title("left")
        or " over ".join(filter(None, (axes.get_ylabel(), axes.get_xlabel())))
        for axes in figure.axes
        if axes.get_label() != "<colorbar>"
    ]
    return "; ".join(filter(None, found))


def png(figure: Figure, path: Path) -> Path:
    """Write the figure as a PNG of 150 dots per inch, whole or not at all, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    with warnings.catch_warnings(), rc_context(STYLE):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a box stands for it
        figure.savefig(
            file, format="png", dpi=150, facecolor="white", bbox_inches="tight", pad_inches=0.12,
            metadata={"Software": "seqkit"},  # by which `--force` knows a picture of ours
        )  # fmt: skip
    write_atomic(path, file.getvalue())
    return path


def _running_mean(one: Series) -> tuple[np.ndarray, np.ndarray]:
    """The mean over a fiftieth of the curve."""
    width = max(2, len(one.x) // 50)
    kernel = np.ones(width) / width
    return np.convolve(one.x, kernel, "valid"), np.convolve(one.y, kernel, "valid")
