"""A comparison from its settings to its results: candidates, trials, runs, statistics."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

from seqkit.comparison.candidates import candidates
from seqkit.comparison.execute import Executor, locked
from seqkit.comparison.results import summarise, write_results
from seqkit.comparison.scores import metric_of
from seqkit.comparison.settings import Settings
from seqkit.comparison.stages import Plan, slug_of, train
from seqkit.comparison.types import Failure, Results
from seqkit.config import build
from seqkit.data.notes import said_once
from seqkit.data.workers import available_cores
from seqkit.errors import DataError, UsageError
from seqkit.files import read_mapping, write_json

SETTINGS = "comparison.json"
"""File of a comparison's folder with its settings and the digest of its plan."""


def make_plan(settings: Settings) -> Plan:
    """Build every candidate. Raises UsageError or DataError where one is refused."""
    with said_once():
        found = candidates(settings)
    if len({slug_of(one.name) for one in found}) < len(found):
        raise UsageError(
            f"two candidates would share a folder: {', '.join(c.name for c in found)}; rename one"
        )
    objective = build(found[0].config).model["objective"]
    tokenizers = {json.dumps(one.config["tokenizer"], sort_keys=True) for one in found}
    metric = metric_of(objective, len(tokenizers))
    limits = [one.config["data"]["limit"] for one in found]
    if metric.name == "bits_per_byte" and any(limit is not None for limit in limits):
        raise UsageError(
            f"tokenizers are compared by bits per byte of the whole test text, and data.limit is {limits[0]}; "
            "add --data.limit null"
        )
    return Plan(settings, found, metric, generates=bool(objective.generation_metrics()))


def compare(plan: Plan, folder: Path, *, jobs: int = 1) -> Results:
    """Run what has no result yet, write results.json and scores.npz into `folder`, and return the results.

    Other processes that do the same in the same folder share the work. jobs: runs at a time in this one.
    Raises UsageError where the folder holds another comparison.
    """
    check_jobs(jobs)
    with locked(folder):
        started = check_folder(folder, plan)
    threads = num_threads(plan.settings, jobs)
    execute = Executor(
        folder,
        jobs=jobs,
        threads=threads,
        plugins=plan.settings.plugins,
        total=plan.num_cells,
        at_most=plan.settings.until_sure is not None,
    )
    try:
        trained = train(plan, execute)
    finally:
        execute.stop()
    failures = []
    for key, one in execute.failed.items():
        cell = execute.cells[key]
        failures.append(
            Failure(candidate=cell.candidate, stage=cell.kind, what=key, error=one.error or "")
        )
    results, scores = summarise(
        plan,
        trained,
        failures=failures,
        started=started,
        run_minutes=round(sum(one.seconds for one in execute.ended.values()) / 60, 1),
    )
    write_results(folder, results, scores)
    return results


def default_folder(settings: Settings, root: Path = Path("runs/compare")) -> Path:
    """Folder of a comparison: the same for the same settings, so that a repeated command goes on or shares the work."""
    return root / f"{slug_of(Path(settings.recipe).with_suffix('').as_posix())}-{settings.digest}"


def num_threads(settings: Settings, jobs: int) -> int:
    """torch's threads of each run: as set, as OMP_NUM_THREADS says, or the cores that each job has."""
    if settings.threads is not None:
        return settings.threads
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdigit() and int(named) > 0:
        return int(named)
    return max(1, available_cores() // jobs)


def check_jobs(jobs: int) -> None:
    """Raise UsageError below one."""
    if jobs < 1:
        raise UsageError(f"--jobs is {jobs}; give 1 or more")


def check_whole(folder: Path) -> None:
    """Raise UsageError for a file, and a folder that holds something, but no settings of a comparison."""
    is_folder = folder.is_dir()
    begun = is_folder and (folder / SETTINGS).exists()
    held = [one for one in folder.iterdir() if one.name != ".lock"] if is_folder else []
    if (held and not begun) or (folder.exists() and not is_folder):
        raise UsageError(
            f"{folder} holds something else than a whole comparison; give another --out"
        )


def check_folder(folder: Path, plan: Plan) -> str:
    """When the comparison in the folder began; its settings and plan are written there if the folder is new.

    Raises UsageError where it holds something else, naming the first setting that differs, or the same comparison of a
    recipe or plug-in that has changed since.
    """
    path = folder / SETTINGS
    settings = json.loads(json.dumps(plan.settings.identity))
    check_whole(folder)
    if not path.exists():
        started = datetime.now().isoformat(timespec="seconds")
        write_json(path, {"settings": settings, "sha256": plan.sha256, "started": started})
        return started
    try:
        known = read_mapping(path, "settings", "sha256", "started")
        earlier = dict(known["settings"])
    except (DataError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is damaged ({error}); give another --out") from error
    for name, value in settings.items():
        if earlier.get(name) != value:
            held = f"{folder} holds a comparison with {name} {earlier.get(name)}"
            raise UsageError(f"{held}, not {value}; give another --out")
    if known["sha256"] != plan.sha256:
        raise UsageError(
            f"the recipe, a plug-in or the rules of tuning have changed since the comparison in {folder} began, and "
            "runs of before and after do not go into one table; give another --out"
        )
    ran = [int(one.stem.removeprefix("seed-")) for one in folder.glob("cells/*/seed-*.json")]
    if max(ran, default=0) > plan.settings.seeds:
        raise UsageError(
            f"{folder} has {max(ran)} seeds, of which none may be left out: give --seeds {max(ran)} or more"
        )
    return str(known["started"])
