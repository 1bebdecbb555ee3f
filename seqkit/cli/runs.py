"""`seqkit runs`."""

from __future__ import annotations

import json
import math
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.errors import UsageError, one_line

if TYPE_CHECKING:
    from seqkit.runs.listing import RunRow

MAX_WIDTH = 500
"""Width of the table in characters, at which paths and names are cut."""


def run(args: Namespace) -> int:
    """List the runs in a folder: the newest first, or those of one metric together with the best first."""
    if not args.folder.is_dir():
        raise UsageError(f"{args.folder} is no folder; give one that holds runs, such as runs")
    from seqkit.report.headline import format_metric
    from seqkit.runs.listing import find_runs

    rows = [(row, _facts(row)) for row in find_runs(args.folder)]
    rows.sort(key=lambda pair: pair[0].time, reverse=True)
    if args.sort == "metric":  # stable: equal ones stay by time
        rows.sort(key=lambda pair: pair[1]["order"])
    if args.json:
        print(json.dumps([{key: facts[key] for key in facts if key != "order"} for _, facts in rows], indent=1))
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
    for row, facts in rows:
        metric, seconds = facts["metric"], facts["seconds"]
        result, beside = (format_metric(metric, facts[key]) if metric else "" for key in ("result", "baseline"))
        cells = [row.folder, row.recipe, row.data, f"{row.time:%Y-%m-%d %H:%M}", f"{facts['label']} {result}", beside]
        cells += ["" if seconds is None else f"{seconds:,.0f}", row.state]
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    console = Console(markup=False, emoji=False, highlight=False)
    # on a narrow terminal lines go on below, so that a path can be copied
    console.width = max(console.width, console.measure(table, options=console.options.update(width=MAX_WIDTH)).maximum)
    console.print(table)
    for row, _ in rows:
        if row.reason:
            console.print(f"{one_line(row.folder)}: {one_line(row.reason)}", soft_wrap=True)
    return 0


def _facts(row: RunRow) -> dict[str, Any]:
    """A run as plain data; a number that is not finite is null. order: its place by metric, the best first."""
    from seqkit.report.headline import headline

    metrics = row.summary.get("metrics", {})
    found = headline(row.summary) if metrics else None

    def finite(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    result = finite(found.value) if found else None
    sign = -1 if found and found.is_higher_better else 1
    return {
        "folder": str(row.folder), "recipe": row.recipe, "data": row.data, "state": row.state,
        "reason": row.reason or None, "time": row.time.isoformat(timespec="seconds"),
        "metric": found.name if found else None, "label": found.label if found else "",
        "result": result, "baseline": finite(found.baseline) if found else None,
        "metrics": {name: finite(value) for name, value in metrics.items()},
        **{key: row.summary.get(key) for key in ("backbone", "steps", "seed")},
        "seconds": row.summary.get("wall_seconds"),
        "order": (found.name if found else "\uffff", math.inf if result is None else sign * result),
    }  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs"), help="where to look (default: runs)")
    parser.add_argument("--sort", choices=["time", "metric"], default="time", help="newest (default) or best first")
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects")
