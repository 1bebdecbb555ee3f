"""The page of a scaling study: loss against the size of the model or of the training set, with a fitted power law."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from rich import box
from rich.table import Table
from rich.text import Text

from seqkit.errors import one_line
from seqkit.report.candidate_figures import MARKERS
from seqkit.report.figures import BLUE, INK, STYLE, VERMILION, new_figure, scale_axis, svg
from seqkit.report.numbers import compact, count, significant

COEFFICIENTS = (("a", "a"), ("alpha", "α"), ("c", "c"))
"""Key and symbol of each number in loss(x) = a · x^−α + c."""


def scaling_sections(results: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a scaling study's template, beside the results themselves."""
    fits = []
    for fit in results["fits"]:
        points = fit.get("points") or []
        alt = f"loss by number of {fit['variable']}: {len(points)} runs and the fitted power law"
        picture = svg(_power_law(fit)) if points or fit.get("curve") else ""
        fits.append({"result": fit, "svg": picture, "alt": alt, "coefficients": _coefficients(fit)})
    return {"fits": fits, "count": count, "compact": compact, "significant": significant}


def scaling_table(results: Mapping[str, Any]) -> Table:
    """The fitted coefficients for the terminal, one row for each variable."""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        caption="loss(x) = a · x^−α + c" + ", with 95 % intervals" * any(fit["intervals"] for fit in results["fits"]),
        caption_justify="left",
    )
    table.add_column("x", overflow="fold")
    for name in ("runs", *(symbol for _, symbol in COEFFICIENTS)):
        table.add_column(name, justify="right")
    for fit in results["fits"]:
        values = [Text(f"{value}\n{interval}".strip()) for _, value, interval in _coefficients(fit)]
        table.add_row(Text(one_line(fit["variable"])), str(len(fit.get("points") or [])), *values)
    return table


@rc_context(STYLE)
def _power_law(fit: Mapping[str, Any]) -> Figure:
    """Runs as points, one marker for each seed, and the fitted curve with its band, on logarithmic axes."""
    figure, (axes,) = new_figure(4.8, 3.1)
    points = [p for p in fit.get("points") or [] if p["x"] is not None and p["loss"] is not None]
    curve = sorted(row[:2] for row in fit.get("curve") or [] if None not in row[:2])
    band = sorted(row for row in fit.get("curve") or [] if len(row) == 4 and None not in row)
    x = [*(point["x"] for point in points), *(row[0] for row in curve)]
    scale_axis(axes, "x", x, log=True)
    scale_axis(axes, "y", [*(p["loss"] for p in points), *(row[1] for row in curve)], log=True)
    if band:
        sizes, _, low, high = zip(*band)
        axes.fill_between(sizes, low, high, color=BLUE, alpha=0.18, linewidth=0)
    if curve:
        last = max((point["x"] for point in points), default=curve[-1][0])
        within = [row for row in curve if row[0] <= last]
        beyond = curve[max(0, len(within) - 1) :]
        axes.plot(*zip(*within), color=BLUE, label="power law")
        if len(beyond) > 1:
            axes.plot(*zip(*beyond), color=BLUE, linestyle="--", label="extrapolated")
    seeds = list(dict.fromkeys(point.get("seed") for point in points))
    for i, seed in enumerate(seeds):
        own = [point for point in points if point.get("seed") == seed]
        x, y = ([point[key] for point in own] for key in ("x", "loss"))
        label = "runs" if seed is None else f"seed {seed}"
        axes.plot(x, y, MARKERS[i % len(MARKERS)], color=VERMILION, markersize=4.5, label=label)
    axes.grid(color=INK, alpha=0.12, linewidth=0.6)
    axes.set(xlabel=fit["variable"], ylabel="loss")
    axes.legend()
    return figure


def _coefficients(fit: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Symbol, value and interval of each coefficient."""
    found = []
    for key, symbol in COEFFICIENTS:
        bounds = (fit.get("intervals") or {}).get(key)
        interval = "" if bounds is None or None in bounds else f"[{', '.join(map(_coefficient, bounds))}]"
        found.append((symbol, _coefficient(fit.get(key)), interval))
    return found


def _coefficient(value: float | None) -> str:
    """Four significant digits; 0 for a floor so small that the fit cannot see it."""
    return "0" if value is not None and abs(value) < 1e-6 else significant(value)
