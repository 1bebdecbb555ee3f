"""`seqkit compare screen --backbones MINE --plugin mine.py`: a comparison for each small task, and a page of all."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seqkit.errors import UsageError, one_line

if TYPE_CHECKING:
    from seqkit.comparison.settings import Settings
    from seqkit.comparison.stages import Plan
    from seqkit.comparison.types import Results

PAGE = {"report.html", "results.csv", "results.md"}
"""Files of a screen's folder beside the folders of its tasks."""


def run_screen(tasks: Mapping[str, Settings], out: Path | None, jobs: int, *, dry: bool) -> int:
    """Print the candidates, run the tasks, print the table and where the page is. 1 where a task has no result."""
    from seqkit.comparison.compare import check_jobs, make_plan
    from seqkit.report.comparison import number_of_runs, plan_table
    from seqkit.report.screen import LIMITS, overview
    from seqkit.report.sentences import trial_sentence
    from seqkit.report.table import Cell, Table, print_table

    check_jobs(jobs)
    folder = _folder(tasks, out)
    plans = {task: make_plan(one) for task, one in tasks.items()}
    tables = {task: plan_table(plan) for task, plan in plans.items()}
    rows = [[Cell(task), *row] for task, table in tables.items() for row in table.rows]
    head = next(iter(tables.values())).head
    print_table(Table(["task", *head], rows, name=1))
    broken = {
        f"{one.name}: {line}"
        for plan in plans.values()
        for one in plan.candidates
        for line in one.broken
    }
    for line in sorted(broken):
        print(one_line(line))
    print(f"{number_of_runs(plans.values())}\nfolder  {one_line(folder)}")
    if dry:
        return 0
    results = carry_out(plans, folder, jobs)
    print_table(overview(results))
    for sentence in dict.fromkeys(filter(None, (trial_sentence(one) for one in results.values()))):
        print(sentence)
    print(LIMITS)
    print(f"report  {one_line(folder / 'report.html')}")
    for task, one in results.items():
        for failure in one.failures:
            said = one_line(f"{task}/{failure.what} failed: {failure.error}")
            print(f"seqkit compare: {said}", file=sys.stderr)
    return int(any(all(row.mean is None for row in one.candidates) for one in results.values()))


def screen(tasks: Mapping[str, Settings], out: Path | None, jobs: int) -> dict[str, Results]:
    """Results of each task. Raises UsageError where the folder holds something else."""
    from seqkit.comparison.compare import make_plan

    folder = _folder(tasks, out)
    return carry_out({task: make_plan(one) for task, one in tasks.items()}, folder, jobs)


def carry_out(plans: Mapping[str, Plan], folder: Path, jobs: int) -> dict[str, Results]:
    """Run what has no result yet. A task's page is in the folder of its name; that of all is anew after every task."""
    from seqkit.comparison.compare import compare
    from seqkit.report.comparison import write_comparison
    from seqkit.report.screen import write_screen

    command = _whole({task: plan.settings for task, plan in plans.items()}).command()
    results = {}
    for task, plan in plans.items():
        results[task] = compare(plan, folder / task, jobs=jobs)
        write_comparison(folder / task, results[task])
        write_screen(folder, results, command, len(plans))
    return results


def _whole(tasks: Mapping[str, Settings]) -> Settings:
    """Settings of all tasks together: those of one, with the word that names a screen as the recipe."""
    from seqkit.comparison.screen import SCREEN

    return replace(next(iter(tasks.values())), recipe=SCREEN, preset=None)


def _folder(tasks: Mapping[str, Settings], out: Path | None) -> Path:
    """The folder of a screen. Raises UsageError where it holds something else."""
    from seqkit.comparison.compare import check_whole, default_folder

    folder = out or default_folder(_whole(tasks))
    if folder.exists() and not folder.is_dir():
        check_whole(folder)
    held = {one.name for one in folder.iterdir()} if folder.is_dir() else set()
    if held - PAGE - tasks.keys():
        raise UsageError(f"{folder} holds something else than a screen; give another --out")
    for task in tasks:
        check_whole(folder / task)
    return folder
