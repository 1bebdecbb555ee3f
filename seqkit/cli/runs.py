"""`seqkit runs`."""

from __future__ import annotations

import json
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.errors import one_line

if TYPE_CHECKING:
    from seqkit.report.headline import Headline
    from seqkit.runs.summary import RunRow

MAX_WIDTH = 500
"""Width of the table in characters, at which paths and names are cut."""


def run(args: Namespace) -> int:
    """List the runs in a folder, the newest first or by another column."""
    from seqkit.report.headline import format_metric
    from seqkit.runs.summary import find_runs

    rows = sorted(find_runs(args.folder), key=lambda row: row.time, reverse=True)
    rows.sort(key=_KEYS[args.sort])  # stable: equal ones stay by time
    if args.json:
        print(json.dumps([_entry(row) for row in rows], indent=1))
        return 0
    if not rows:
        print(f"{one_line(args.folder)} holds no runs")
        return 0
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("run", "recipe", "data", "time", "result", "baseline", "seconds", "state"):
        is_number = name in ("result", "baseline", "seconds")
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        cells = [row.folder, row.recipe, row.data, f"{row.time:%Y-%m-%d %H:%M}", "", "", "", row.state]
        if (found := _headline(row)) is not None:
            numbers = [format_metric(found.name, value) for value in (found.value, found.baseline)]
            cells[4:6] = [f"{found.label} {numbers[0]}", numbers[1]]
        if row.summary:
            cells[6] = f"{row.summary['wall_seconds']:,.0f}"
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    console = Console(markup=False, emoji=False, highlight=False)
    # on a narrow terminal lines go on below, so that a path can be copied
    console.width = max(console.width, console.measure(table, options=console.options.update(width=MAX_WIDTH)).maximum)
    console.print(table)
    for row in rows:
        if row.reason:
            console.print(f"{one_line(row.folder)}: {one_line(row.reason)}", soft_wrap=True)
    return 0


def _headline(row: RunRow) -> Headline | None:
    from seqkit.report.headline import headline

    return headline(row.summary) if row.summary.get("metrics") else None


def _entry(row: RunRow) -> dict[str, Any]:
    """A run as plain data; a number that is not finite is null."""
    found = _headline(row)

    def finite(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    return {
        "folder": str(row.folder),
        "recipe": row.recipe,
        "data": row.data,
        "backbone": row.summary.get("backbone"),
        "time": row.time.isoformat(timespec="seconds"),
        "state": row.state,
        "reason": row.reason or None,
        "metric": found.name if found else None,
        "result": finite(found.value) if found else None,
        "baseline": finite(found.baseline) if found else None,
        "metrics": {name: finite(value) for name, value in row.summary.get("metrics", {}).items()},
        "seconds": row.summary.get("wall_seconds"),
        "steps": row.summary.get("steps"),
        "seed": row.summary.get("seed"),
    }


def _by_metric(row: RunRow) -> tuple[str, float]:
    """Sort key: runs of one metric together, the best first; runs without a metric last."""
    found = _headline(row)
    if found is None:
        return "\uffff", 0.0
    value = found.value if math.isfinite(found.value) else math.inf
    return found.name, -value if found.is_higher_better and math.isfinite(value) else value


_KEYS: dict[str, Callable[[RunRow], Any]] = {
    "time": lambda row: -row.time.timestamp(),
    "metric": _by_metric,
    "recipe": lambda row: row.recipe,
    "data": lambda row: row.data,
    "seconds": lambda row: row.summary.get("wall_seconds", math.inf),
    "state": lambda row: row.state,
}


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs"), help="where to look (default: runs)")
    by = "column to sort by (default: time, newest first)"
    parser.add_argument("--sort", choices=list(_KEYS), default="time", help=by)
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects")
