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
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from seqkit.errors import one_line, printable
from seqkit.files import write_atomic
from seqkit.report.numbers import format_number

INK = "#1b2733"
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442",
)  # fmt: skip
"""Okabe and Ito's palette, which the colour-blind can tell apart."""

PALE = LinearSegmentedColormap.from_list("pale", ["#ffffff", BLUE])
"""Shares from 0 to 1; black text is legible (4.5 to 1) on those below `DARK`, and white text on the others."""

DARK = 0.93

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


@dataclass(frozen=True)
class Series:
    """A curve. x: [s] optimizer steps. y: [s]. label: what the legend says."""

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
    else:
        axis.set_major_locator(MaxNLocator(MAX_TICKS, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, prefix=True)))
    return log


COLORS = {"training": BLUE, "validation": VERMILION}
"""Colours of the splits, the same in every figure."""


@rc_context(STYLE)
def curves(
    series: Sequence[Series],
    *,
    unit: str,
    levels: Mapping[str, float | None] | None = None,
    kept: int | None = None,
) -> Figure:
    """Curves over optimizer steps, and levels as dashed and dotted lines, by what the legend says of them.

    The axis is that of the curves: a level that would flatten them is a number in the legend.
    unit: label of the vertical axis. kept: the step of which the run has the weights, marked on the last curve.
    """
    figure, (axes,) = new_figure(4.6, 2.9)
    scale_axis(axes, "y", [y for one in series for y in one.y])
    for one in series:
        color = COLORS.get(one.label, BLUE)
        marker = "o" if len(one.x) < 3 else None
        is_noisy = len(one.x) > 200
        alpha = 0.35 if is_noisy else 1
        look: dict[str, Any] = {"label": one.label, "marker": marker, "markersize": 4}
        axes.plot(one.x, one.y, color=color, alpha=alpha, **look)
        if is_noisy:
            axes.plot(*_running_mean(one), color=color)
    if kept is not None:
        last = series[-1]
        place = int(np.abs(np.asarray(last.x) - kept).argmin())  # steps are logged from 0
        point = (last.x[place], last.y[place])
        axes.plot(*point, "o", color=color, markersize=5, label="kept weights")
    least, most = axes.get_ylim()
    for (label, level), style in zip((levels or {}).items(), ("--", ":")):
        if level is None:
            continue
        look = {"color": INK, "linestyle": style, "linewidth": 1}
        if _is_near(axes, level, least, most):
            axes.axhline(level, label=label, **look)
        else:
            side = "above" if level > most else "below"
            axes.plot([], [], label=f"{label}: {format_number(level)}, {side}", **look)
    axes.set(xlabel="optimizer steps", ylabel=unit)
    axes.xaxis.set_major_locator(
        MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1)
    )
    _legend_above(axes)
    return figure


def _is_near(axes: Axes, level: float, least: float, most: float) -> bool:
    """Whether a level is so near to the curves, from `least` to `most`, that they keep most of the axis."""
    if level <= 0 and axes.get_yscale() == "log":
        return False
    change = axes.transScale.transform
    (_, low), (_, high), (_, at) = change([(1, least), (1, most), (1, level)])
    room = 0.75 * (high - low)
    return bool(low - room <= at <= high + room)


def _legend_above(axes: Axes) -> None:
    """A legend above the axes, where it lies on no line."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.02), ncols=2, borderaxespad=0)


@rc_context(STYLE)
def confusion(counts: np.ndarray, names: Sequence[str]) -> Figure:
    """Confusion matrix. counts: [k k], target class (row), predicted class (column)."""
    k = len(names)
    pitch = 0.33 if k <= FEW_CLASSES else 0.15  # of a class, in inches
    side = 1.9 + pitch * k if k <= MAX_NAMED else 5.4
    figure, (axes,) = new_figure(side + 0.5, side)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap=PALE, vmin=0, vmax=1)
    axes.set(xlabel="predicted class", ylabel="target class")
    if k <= MAX_NAMED:
        short = shortened([one_line(name) for name in names])
        look: dict[str, Any] = {}
        if k > FEW_CLASSES:
            look = {"rotation": 90}
        elif max(map(len, short)) > 3:
            look = {"rotation": 45, "ha": "right"}
        axes.set_xticks(range(k), short, **look)
        axes.set_yticks(range(k), short)
        axes.tick_params(labelsize=8.5 if k <= FEW_CLASSES else 7)
        for (row, column), number in np.ndenumerate(counts):
            if (number or row == column) and k <= FEW_CLASSES:
                color = "#ffffff" if shares[row, column] > DARK else "#000000"
                axes.text(
                    column, row, str(int(number)), ha="center", va="center", color=color, fontsize=7
                )
    figure.colorbar(
        image, ax=axes, label="share of the target class", shrink=0.8, aspect=20 * side / 5.4
    )
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
    """Predictions over targets [m], with the diagonal on which they agree."""
    figure, (axes,) = new_figure(3.9, 3.5)
    low = float(min(target.min(), preds.min()))
    high = float(max(target.max(), preds.max()))
    axes.plot([low, high], [low, high], color=INK, linewidth=0.8, linestyle="--", label="perfect")
    label = f"test, RMSE {format_number(rmse)}"
    axes.scatter(target, preds, s=12, color=BLUE, alpha=0.7, linewidths=0, label=label)
    axes.set(xlabel="target", ylabel="prediction (target's unit)", aspect="equal")
    _legend_above(axes)
    return figure


def svg(figure: Figure) -> str:
    """The figure as an `<svg>` element: text in the page's colour and font, ids unlike those of other figures."""
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
    text = text.replace("<svg", '<svg style="stroke-linejoin: round; stroke-linecap: butt"', 1)
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
