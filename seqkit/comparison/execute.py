"""Runs the cells of a plan, side by side, until all have ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqkit.comparison.ledger import Ledger
from seqkit.comparison.plan import Plan
from seqkit.comparison.workers import Workers
from seqkit.progress import ProgressBar

POLL_SECONDS = 1.0
"""How often other machines' results are looked for."""


def execute(plan: Plan, ledger: Ledger, root: Path, *, jobs: int, threads: int, title: str) -> dict[str, Any]:
    """Results of all cells by id; a cell that fails has {"error": …}, and the others go on.

    A cell whose process is killed is run once more: the system may have been short of memory for a moment.
    Stopped by Ctrl-C, it ends its processes; what ended before is kept.
    """
    workers = Workers(jobs, root, threads, plan.settings.plugins)
    deaths: dict[str, int] = {}
    results = ledger.results()
    with ProgressBar(title, len(plan.steps)) as bar:
        try:
            while len(done := {key for key in results if key in plan.steps}) < len(plan.steps):
                failed = sum("error" in results[key] for key in done)
                bar.update(len(done), f"{failed} failed" if failed else "")
                _submit(plan, ledger, workers, results)
                for cell, result in workers.finished(POLL_SECONDS):
                    if result.pop("killed", False) and deaths.setdefault(cell.id, 0) < 1:
                        deaths[cell.id] += 1
                        ledger.release(cell.id)
                    else:
                        ledger.store(cell.id, result)
                results = ledger.results()
            bar.update(len(plan.steps))
        finally:
            for key in workers.running:
                ledger.release(key)
            workers.stop()
    return results


def _submit(plan: Plan, ledger: Ledger, workers: Workers, results: dict[str, Any]) -> None:
    """Give ready cells to idle workers. What is measured is measured alone."""
    if any(plan.steps[key].kind == "measure" for key in workers.running):
        return
    for step in plan.ready(results):
        if not workers.num_idle:
            return
        if step.id in workers.running or (step.kind == "measure" and workers.num_busy):
            continue
        if ledger.claim(step.id):
            workers.submit(plan.cell(step, results))
            if step.kind == "measure":
                return
