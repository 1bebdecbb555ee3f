"""Writes docs/reliability.md from the results of each row, one file in `results/` each."""

import json
import os
import platform
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reliability.rows import ROWS

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
LISTED = 1
"""Number of cases of a row that the page lists as not survived."""

HEAD = """\
# Reliability

Each row of the table injects faults into short runs: a text of 2 KB, 40 pictures or tones, or one graph; a model with
one layer of width 16 (`python -m tests.reliability`). A case counts as

* **survived** if the run continues, or ends with one line that says what to do. Nothing may be lost, resumed wrongly or
  loaded wrongly;
* **silent** if something wrong was used and no message said so.

Rows in italics put the same fault to Lightning's own checkpoints, for comparison.

"""

AFTER = ""
"""Changes since the rows were measured; empty it when they are measured again."""

LIMITS = """\
## What was not tested

* Power failures. A killed process is a smaller fault: data that was written but not synced survives it.
* Network file systems, GPUs, more than three processes, and more than one machine.
* Trainings of more than a few seconds. `python -m tests.reliability.soak` kills a long one;
  [training](training.md#how-checkpoints-are-kept-safe) has its result.
* Edits of modules that a plug-in imports, and of installed packages. seqkit looks at the file of the plug-in alone.
"""


def machine() -> str:
    """System, cores and versions, in words."""
    system, cores = platform.system(), os.cpu_count()
    names = (("torch", "torch"), ("Lightning", "pytorch-lightning"))
    versions = ", ".join(f"{shown} {version(name).split('+')[0]}" for shown, name in names)
    return f"{system}, {platform.machine()}, {cores} cores; Python {platform.python_version()}, {versions}"


def write_row(name: str, outcomes: Sequence[dict[str, Any]], seconds: float) -> None:
    """Write the results of a row to its file."""
    lost = [outcome for outcome in outcomes if outcome["lost"]]
    found = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "tried": len(outcomes),
        "survived": len(outcomes) - len(lost),
        "silent": sum(outcome["silent"] for outcome in lost),
        "seconds": round(seconds),
        "lost": [[outcome["name"], outcome["lost"]] for outcome in lost],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(
        json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def write_page() -> None:
    """Write the page from all rows that were measured."""
    files = {name: RESULTS / f"{name}.json" for name in ROWS}
    found = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in files.items()
        if path.exists()
    }
    PAGE.write_text(_page(found), encoding="utf-8")


def _page(found: dict[str, dict[str, Any]]) -> str:
    lines = [HEAD + "| fault | tried | survived | not survived and silent |\n|---|---:|---:|---:|"]
    for name, row in found.items():
        title = f"*{ROWS[name].title}*" if ROWS[name].stock else ROWS[name].title
        lines.append(f"| {title} | {row['tried']:,} | {row['survived']:,} | {row['silent']:,} |")
    ours = [row for name, row in found.items() if not ROWS[name].stock]
    tried, survived = sum(row["tried"] for row in ours), sum(row["survived"] for row in ours)
    silent = sum(row["silent"] for row in ours)
    lines.append(
        f"| **all, without Lightning's own** | **{tried:,}** | **{survived:,}** | **{silent:,}** |"
    )
    lines += ["", f"seqkit survived {100 * survived / tried:.1f} % of the cases.", ""]
    for where in sorted({(row["date"], row["machine"]) for row in found.values()}):
        lines.append(f"Measured on {where[0]}, beside other work: {where[1]}.")
    if AFTER:
        lines += ["", AFTER.rstrip()]
    lines += ["", LIMITS.rstrip()]
    if missing := [ROWS[name].title for name in ROWS if name not in found]:
        lines += [
            "* These faults, which the test suite tries in a few cases only:",
            *(f"    * {one}" for one in missing),
        ]
    lost = {
        name: row["lost"] for name, row in found.items() if row["lost"] and not ROWS[name].stock
    }
    if lost:
        lines += ["", "## What was not survived", ""]
        for name, cases in lost.items():
            lines.append(f"* {ROWS[name].title}: {len(cases)}")
            lines += [f"    * {case}: {_plain(why)}" for case, why in cases[:LISTED]]
            if len(cases) > LISTED:
                lines.append(f"    * and {len(cases) - LISTED} more")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """An outcome as text that a page can show."""
    return text[:200].replace("|", "/").replace("`", "'").replace("<", "‹")
