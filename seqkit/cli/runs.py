"""`seqkit runs`."""

from __future__ import annotations

import math
import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from seqkit.errors import UsageError, one_line

if TYPE_CHECKING:
    from seqkit.report.headline import Headline

MAX_WIDTH = 500
"""Width of the table in characters, at which paths and names are cut."""


def run(args: Namespace) -> int:
    """List the runs in a folder: the newest first, or those of one metric together with the best first."""
    if not args.folder.is_dir():
        raise UsageError(f"{args.folder} is no folder; give one that holds runs, such as runs")
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from seqkit.report.headline import format_metric, headline
    from seqkit.runs.summary import find_runs

    found = [
        (row, headline(row.summary) if row.summary and row.summary.metrics else None)
        for row in find_runs(args.folder)
    ]
    found.sort(key=lambda pair: pair[0].time, reverse=True)
    if args.sort == "metric":  # stable: equal ones stay by time
        found.sort(key=lambda pair: _order(pair[1]))
    if not found:
        print(f"{one_line(args.folder)} holds no runs")
        return 0
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("run", "recipe", "data", "time"):
        table.add_column(name, no_wrap=True)
    for name in ("result", "baseline", "beside it", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    rows = []
    for row, main in found:
        numbers = ["", "", "", ""]
        if main is not None:
            shown = [format_metric(main.name, x) for x in (main.value, main.baseline, main.strong)]
            numbers[:3] = [f"{main.label} {shown[0]}", *shown[1:]]
        if row.summary:
            numbers[3] = f"{row.summary['wall_seconds']:,.0f}"
        state = row.state
        if row.summary and row.summary.broken_laws:
            state += ", breaks a law"
        elif main is not None and main.is_beaten:
            state += ", classical method is better"
        cells = (row.folder, row.recipe, row.data, f"{row.time:%Y-%m-%d %H:%M}", *numbers)
        rows.append([*map(one_line, (*cells, state))])
        table.add_row(*map(Text, rows[-1]))
    console = Console(markup=False, emoji=False, highlight=False)
    width = console.measure(table, options=console.options.update(width=MAX_WIDTH)).maximum
    if width > console.width and (console.is_terminal or "COLUMNS" in os.environ):
        for folder, *facts in rows:
            console.print(folder, soft_wrap=True)  # so that it can be copied
            for i, name in ((4, "baseline"), (5, "beside it"), (6, "seconds")):
                facts[i] = facts[i] and f"{name} {facts[i]}"
            console.print(Padding(Text(" · ".join(filter(None, facts))), (0, 0, 0, 2)))
    else:  # a line for each run, for what reads it
        console.width = max(console.width, width)
        console.print(table)
    for row, _ in found:
        if row.reason:
            console.print(f"{one_line(row.folder)}: {one_line(row.reason)}", soft_wrap=True)
    return 0


def _order(main: Headline | None) -> tuple[str, float]:
    """Sort key: runs of one metric together, the best first; those without a result, or that break a law, last."""
    if main is None or main.is_broken:
        return "\uffff", 0.0
    sign = -main.metric.sign
    return main.name, sign * main.value if math.isfinite(main.value) else math.inf


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("runs"), help="where to look (default: runs)"
    )
    parser.add_argument(
        "--sort", choices=["time", "metric"], default="time", help="newest (default) or best first"
    )
