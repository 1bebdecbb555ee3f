"""The page of a screen: the comparisons of its tasks in one table, by the verdicts of their own pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from seqkit.comparison.types import Results, Row
from seqkit.comparison.verdicts import untrained
from seqkit.errors import one_line
from seqkit.files import write_atomic
from seqkit.objectives.metric import DASH
from seqkit.report.comparison import is_best, made, ranked, values_are
from seqkit.report.numbers import format_number, listed, plural
from seqkit.report.sentences import answers, matched, tuning_sentence
from seqkit.report.table import Cell, Table, to_csv
from seqkit.report.templates import fill, tidied, write_page

ABILITIES = {
    "copy": "Repeat eight symbols in order. A state must hold them all; attention finds its way back by position.",
    "selective-copy": "Repeat three symbols that are scattered among blanks. A memory must choose what it keeps.",
    "associative-recall": "Find the value of each of six keys. A state must hold all pairs; attention looks them up.",
    "induction-heads": "Recall what followed a trigger; half the test has three times the trained length.",
    "parity": "Whether the number of ones is odd; two thirds of the test have two and four times the trained length, "
    "so that guessing them gives 67 % at best.",
}  # fmt: skip
"""The question of each task."""

LIMITS = (
    "These tasks are generated, short, and learned in a few hundred steps by models of some twenty thousand weights: a "
    "candidate that fails may learn the task with more steps or width, and none of this shows how it ranks on text, "
    "sound or images, at scale, or in speed and memory. A perfect score is what a mechanism that fits the task has."
)
"""Limits of what a screen shows."""


def write_screen(
    folder: Path, results: Mapping[str, Results], command: str, num_tasks: int
) -> Path:
    """Write `report.html`, `results.md` and `results.csv` of a screen; return the page.

    results: of each task that has ended, whose own page is in the folder of its name.
    """
    write_atomic(folder / "results.csv", to_csv(details(results)).encode())
    values = _values(results, command, num_tasks)
    shown = values | {"command": Markup(one_line(command))}  # noqa: S704 - in a code block
    write_atomic(folder / "results.md", tidied(fill("screen.md", **shown)).encode())
    return write_page("screen.html", folder / "report.html", **values)


def _values(results: Mapping[str, Results], command: str, num_tasks: int) -> dict[str, object]:
    """Values of both templates."""
    first = next(iter(results.values()))
    title = f"screen: {listed([row.name for row in first.candidates])}"
    subtitle = f"{made(first)} {len(results)} of {plural(num_tasks, 'task')}"
    entries: dict[tuple[str, str, str], list[str]] = {}
    for task, one in results.items():
        for found in one.unmatched:
            entries.setdefault((found.kind, found.what, found.text), []).append(task)
    return {
        "title": title,
        "subtitle": subtitle,
        "limits": LIMITS,
        "values": values_are(first),
        "table": overview(results),
        "details": details(results),
        "tasks": [(task, ABILITIES.get(task, ""), answers(one)) for task, one in results.items()],
        "matched": [f"{task}: {matched(one)}" for task, one in results.items()]
        + [tuning_sentence(first)],
        "unmatched": [
            (*key, listed(tasks)) for key, tasks in sorted(entries.items(), reverse=True)
        ],
        "failures": [(task, one) for task, found in results.items() for one in found.failures],
        "command": command,
    }


def overview(results: Mapping[str, Results]) -> Table:
    """A row for each task and a column for each candidate: its mean, interval, and whom it is better than.

    In bold: better than every other.
    """
    names = [row.name for row in next(iter(results.values())).candidates]
    rows = []
    for task, one in results.items():
        chance = next((row.constant for row in one.candidates if row.constant is not None), None)
        rows.append([
            Cell(task, one.metric.title), Cell(one.metric.number(chance)),
            *(_score(one, one.by_name[name]) for name in names),
        ])  # fmt: skip
    return Table(["task", "best constant", *names], rows)


def _score(results: Results, row: Row) -> Cell:
    metric = results.metric
    if row.mean is None:
        return Cell("failed", row.error or "", style="error")
    if row.broken:
        small = "breaks a law"
    else:
        is_untrained = untrained(row, metric)
        small = f"{'near chance ' if is_untrained else ''}{metric.interval(row.interval)}"
        if beaten := better_than(results, row.name):
            small = f"{small} better than {listed(beaten)}".lstrip()
    return Cell(
        metric.mean(row.mean, row.std), small, style="best" if is_best(results, row) else ""
    )


def better_than(results: Results, name: str) -> list[str]:
    """Candidates that it is better than, by the verdicts of the comparison."""
    pairs = [(one.a, one.b) for one in results.differences if one.better == name]
    return [b if a == name else a for a, b in pairs]


def details(results: Mapping[str, Results]) -> Table:
    """A row for each task and candidate, the best first."""
    rows = []
    for task, one in results.items():
        for row in ranked(one):
            score = _score(one, row)
            rate = row.chosen.get("optimizer.lr")
            rows.append([Cell(text) for text in (
                task, row.name, score.text, one.metric.interval(row.interval) or DASH,
                listed(better_than(one, row.name) or [DASH]), format_number(rate), f"{row.parameters:,}",
                str(len(row.sound)), row.error or "; ".join(row.broken),
            )])  # fmt: skip
    head = [
        "task",
        "candidate",
        "score",
        "95 % interval",
        "better than",
        "learning rate",
        "parameters",
    ]
    return Table([*head, "seeds", "error"], rows, name=1)
