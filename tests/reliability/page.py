"""docs/reliability.md, from what was measured: a file of each row in `results/`."""

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
LISTED = 12
"""Cases that were not survived, of a row, that the page names."""

HEAD = """\
# Reliability

What happens to a run when something else goes wrong, tried rather than argued. Each row injects faults into short runs
(a text of 2 KB, 40 pictures or tones, one graph; one layer of width 16, dropout 0.2). Survived means: the run goes on,
or ends with one line that says what to do, and nothing is lost, resumed or loaded wrongly. *Silent*: something wrong
was taken for right, and nothing was said.

    python -m tests.reliability

What the table does not cover: machines that lose power (a kill is not a power failure: what was not synced survives
it), file systems of networks, GPUs, runs of more than three processes or of more than one machine, and trainings of
more than a few seconds (`python -m tests.reliability.soak` kills a long one). Changed modules that a plug-in imports,
and installed packages, are not noticed: only the file that registers a component is. Rows that were added later say so
below the table until they are measured.

"""


def machine() -> str:
    """In words."""
    system, cores = platform.system(), os.cpu_count()
    names = (("torch", "torch"), ("Lightning", "pytorch-lightning"))
    versions = ", ".join(f"{shown} {version(name).split('+')[0]}" for shown, name in names)
    return f"{system}, {platform.machine()}, {cores} cores; Python {platform.python_version()}, {versions}"


def write_row(name: str, outcomes: Sequence[dict[str, Any]], seconds: float) -> None:
    """Keep what was measured of a row."""
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
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_page() -> None:
    """The page, of all rows that were measured."""
    files = {name: RESULTS / f"{name}.json" for name in ROWS}
    found = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items() if path.exists()}
    PAGE.write_text(_page(found), encoding="utf-8")


def _page(found: dict[str, dict[str, Any]]) -> str:
    lines = [HEAD + "| fault | tried | survived | of those lost, silent |\n|---|---:|---:|---:|"]
    for name, row in found.items():
        title = f"*{ROWS[name].title}*" if ROWS[name].stock else ROWS[name].title
        lines.append(f"| {title} | {row['tried']} | {row['survived']} | {row['silent']} |")
    ours = [row for name, row in found.items() if not ROWS[name].stock]
    tried, survived = sum(row["tried"] for row in ours), sum(row["survived"] for row in ours)
    silent = sum(row["silent"] for row in ours)
    lines.append(f"| **all, without Lightning's own** | **{tried}** | **{survived}** | **{silent}** |")
    share = f"{100 * survived / tried:.1f} %" if tried else "–"
    lines += ["", f"{share} survived. Rows in italics put the same fault to Lightning's own, for comparison.", ""]
    for where in sorted({(row["date"], row["machine"]) for row in found.values()}):
        lines.append(f"Measured on {where[0]}: {where[1]}; other work ran beside it.")
    if missing := [ROWS[name].title for name in ROWS if name not in found]:
        lines += ["", f"Not measured: {'; '.join(missing)}."]
    lost = {name: row["lost"] for name, row in found.items() if row["lost"]}
    if lost:
        lines += ["", "## Not survived", ""]
        for name, cases in lost.items():
            lines.append(f"* {ROWS[name].title}: {len(cases)}")
            lines += [f"  * {case}: {_plain(why)}" for case, why in cases[:LISTED]]
            if len(cases) > LISTED:
                lines.append(f"  * and {len(cases) - LISTED} more")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Of an outcome, what a page can show."""
    return text[:200].replace("|", "/").replace("`", "'").replace("<", "‹")
