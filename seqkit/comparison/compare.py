"""A comparison from its settings to its page: plan, run what is missing, gather, write."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup

from seqkit.comparison.candidates import candidates
from seqkit.comparison.duration import Estimate, estimate, minutes
from seqkit.comparison.ledger import SETTINGS, Ledger, check_whole, locked
from seqkit.comparison.plan import RULES, TUNING_SEED, Plan, slug_of
from seqkit.comparison.results import gather, write_results
from seqkit.comparison.scores import METRICS, metric_of
from seqkit.comparison.settings import Settings
from seqkit.comparison.workers import execute
from seqkit.config import build
from seqkit.data.notes import said_once
from seqkit.data.workers import available_cores
from seqkit.errors import DataError, UsageError
from seqkit.files import read_mapping, write_atomic, write_json
from seqkit.report.comparison import write_comparison
from seqkit.report.templates import fill

PLAN = "plan.md"

ADDED = ("run_shares", "least")
"""Settings that may differ from those of a comparison that is there: they change no run of it."""


@dataclass(frozen=True)
class Prepared:
    """A comparison that is ready to run: its plan, and what it is expected to take."""

    settings: Settings
    plan: Plan
    estimates: dict[str, Estimate]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the plan's rules, all configurations and plug-ins: a recipe may change under the same settings."""
        configs = json.dumps({name: c.config for name, c in self.plan.candidates.items()}, sort_keys=True)
        digest = hashlib.sha256(f"{RULES} {configs}".encode())
        for plugin in self.settings.plugins:
            digest.update(Path(plugin).read_bytes())
        return digest.hexdigest()


def default_folder(settings: Settings, root: Path = Path("runs/compare")) -> Path:
    """Folder of a comparison: the same for the same settings, so that a repeated command goes on or shares the work."""
    return root / f"{slug_of(Path(settings.recipe).with_suffix('').as_posix())}-{settings.digest}"


def prepare(settings: Settings, jobs: int = 1) -> Prepared:
    """Build every candidate, and time a few steps of it with the threads that it has as one of so many jobs.

    Raises UsageError or DataError where one is refused.
    """
    check_jobs(jobs)
    with said_once():
        return _prepared(settings, jobs)


def _prepared(settings: Settings, jobs: int) -> Prepared:
    found = candidates(settings)
    for candidate in found:
        _check_one_device(candidate.config["trainer"])
    torch.set_num_threads(num_threads(settings, jobs))
    estimates = estimate(found)
    objective = build(found[0].config).model["objective"]
    tokenizers = {json.dumps(c.config["tokenizer"], sort_keys=True) for c in found}
    metric = metric_of(objective, len(tokenizers))
    if metric.name == "bits_per_byte" and any(candidate.config["data"]["limit"] is not None for candidate in found):
        raise UsageError("tokenizers are compared by bits per byte of the whole test text; leave data.limit out")
    plan = Plan(
        settings,
        found,
        {name: own.num_steps for name, own in estimates.items()},
        metric=metric.name,
        generates=bool(objective.generation_metrics()),
    )
    return Prepared(settings, plan, estimates)


def write_plan(prepared: Prepared, folder: Path) -> Path:
    """Write what will be run, and how it will be decided, before anything is; `run` in this folder then keeps to it.

    Raises UsageError where the folder holds another comparison, or the runs of this one have begun.
    """
    settings, plan = prepared.settings, prepared.plan
    with locked(folder):
        first = check_folder(folder, settings, prepared.fingerprint)
        if Ledger(folder / "cells").results():
            raise UsageError(f"the comparison in {folder} has begun, and a plan is written before; give another --out")
        pairs = len(plan.candidates) * (len(plan.candidates) - 1) // 2
        grids = {}
        for name, candidate in plan.candidates.items():
            steps = [step for step in plan.steps({}).values() if step.candidate == name and step.what == "lr"]
            grids[name] = ["; ".join(f"{k} {v}" for k, v in plan.values(step, {}).items()) for step in steps]
            grids[name] += [f"{one.depth} layers of width {one.width}" for one in candidate.depths]
        text = fill(
            "plan.md",
            settings=settings,
            command=Markup(settings.command()),  # noqa: S704 - in a code block
            candidates=plan.candidates.values(),
            num_steps=plan.num_steps,
            least="one in the last digit shown" if settings.least is None else f"{settings.least:g}",
            grids=grids,
            metric=METRICS[plan.metric],
            pairs=pairs,
            started=first["started"],
            fingerprint=prepared.fingerprint,
            tuning_seed=TUNING_SEED,
        )
        write_atomic(folder / PLAN, text.encode())
    return folder / PLAN


def _check_one_device(settings: Mapping[str, Any]) -> None:
    """Raise UsageError for several devices: a worker's runs are not started by a command that ranks could repeat."""
    devices = settings["devices"]
    several = len(devices) > 1 if isinstance(devices, list) else str(devices).isdigit() and int(devices) > 1
    if several or settings["num_nodes"] != 1:
        raise UsageError(
            f"trainer.devices is {devices} and trainer.num_nodes {settings['num_nodes']}; "
            "a run of a comparison takes one device: give --trainer.devices 1, and use --jobs"
        )


def run(prepared: Prepared, folder: Path, *, jobs: int = 1) -> dict[str, Any]:
    """Run the cells that have no result yet, write results and page into `folder`, and return the results.

    Other processes that do the same in the same folder share the cells. jobs: cells at a time in this one.
    Raises UsageError where the folder holds another comparison.
    """
    check_jobs(jobs)
    settings = prepared.settings
    with locked(folder):
        first = check_folder(folder, settings, prepared.fingerprint)
    threads = num_threads(settings, jobs)
    title = f"compare {settings.recipe}"
    ended = execute(prepared.plan, Ledger(folder / "cells"), folder, jobs=jobs, threads=threads, title=title)
    for unfinished in folder.glob("runs/*/.*"):  # of processes that were killed
        shutil.rmtree(unfinished, ignore_errors=True)
    results = {**gather(prepared.plan, ended, started=first["started"]), "jobs": jobs}
    results["planned"] = first["started"] if (folder / PLAN).exists() else None
    write_results(folder, results)
    write_comparison(folder)
    return results


def num_threads(settings: Settings, jobs: int) -> int:
    """torch's threads of each run: as set, as OMP_NUM_THREADS says, or the cores that each job has."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    return settings.threads or (int(named) if named.isdigit() else 0) or max(1, available_cores() // jobs)


def check_jobs(jobs: int) -> None:
    """Raise UsageError below one."""
    if jobs < 1:
        raise UsageError(f"--jobs is {jobs}; give 1 or more")


def check_folder(folder: Path, settings: Settings, fingerprint: str) -> dict[str, Any]:
    """Settings and start of the comparison in the folder; written there if the folder is new.

    Raises UsageError where it holds another comparison, naming the first setting that differs, or the same one of a
    recipe or plug-in that has changed since.
    """
    path = folder / SETTINGS
    asked = json.loads(json.dumps(asdict(settings)))
    check_whole(folder)
    if not path.exists():
        started = datetime.now().isoformat(timespec="seconds")
        value = {"settings": asked, "fingerprint": fingerprint, "started": started}
        write_json(path, value)
        return value
    try:
        known = read_mapping(path, "settings", "fingerprint", "started")
        earlier = dict(known["settings"])
    except (DataError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is damaged ({error}); give another --out") from error
    for name, value in asked.items():
        if earlier.get(name) != value and name not in ADDED:
            held = f"{folder} holds a comparison with {name} {earlier.get(name)}"
            raise UsageError(f"{held}, not {value}; give another --out")
    if known["fingerprint"] != fingerprint:
        raise UsageError(
            f"the recipe, a plug-in or the rules of tuning have changed since the comparison in {folder} began, and "
            "runs of before and after do not go into one table; give another --out"
        )
    if earlier != asked:
        known = {**known, "settings": asked}
        write_json(path, known)
    return known


def remaining_minutes(prepared: Prepared, folder: Path, jobs: int) -> tuple[float, int]:
    """Minutes expected, and how many cells have a result already."""
    results = Ledger(folder / "cells").results()
    known = {key: results[key] for key in prepared.plan.steps(results) if key in results}
    return minutes(prepared.plan, prepared.estimates, known, jobs), len(known)
