"""A mixture beside each of its tasks trained alone, paired by seed and test example."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from seqkit.analysis.cost import training_flops
from seqkit.comparison.finished_runs import compare_runs
from seqkit.config import build, complete
from seqkit.config.mixture import task_configs
from seqkit.errors import UsageError
from seqkit.files import read_mapping
from seqkit.model import Model
from seqkit.runs.folder import CONFIG, SUMMARY, is_unfinished
from seqkit.runs.prepare import Prepared, prepare
from seqkit.runs.run import resume_run, run
from seqkit.training.checkpoint_files import FOLDER, checkpoints
from seqkit.training.trainer import count_steps

log = logging.getLogger("seqkit")

KINDS = {
    "separate": "the task alone: the same model, its share of the steps, so as many examples",
    "small": "the task alone in a model of 1/N of the mixture's parameters, for N tasks",
    "long": "the task alone for all steps of the mixture",
    "noise": "the mixture with inputs of the other tasks that are noise (`data.noise`)",
}
"""Runs that stand beside a mixture, by name; the mixture is trained anew for the noise of each task."""


def against_separate(
    recipe: str,
    preset: str | None,
    overrides: Sequence[str],
    *,
    seeds: int,
    out: Path,
    kinds: Sequence[str] = ("separate", "small", "long"),
) -> dict[str, dict[str, Any]]:
    """Train a mixture and each of its tasks alone, with the seeds 1, 2, …, and compare them task by task.

    kinds: names of KINDS. Runs are kept in `out`/runs: the same command goes on where it was stopped. The page of each
    task is `out`/TASK; separate runs are its reference. Returns results.json of each task.
    Raises UsageError for a recipe of one task, and as `compare_runs`.
    """
    config = complete(recipe, preset, overrides, may_mix=True)
    if len(config.get("tasks", ())) < 2:
        raise UsageError(f"{recipe} trains one task; give a mixture, such as mixture/four, or --backbones A,B")
    if config["trainer"]["max_steps"] < 1:
        raise UsageError("runs of a task alone get its share of the steps; give the mixture trainer.max_steps")
    prepared = prepare(config)
    runs, names = out / "runs", list(config["tasks"])
    for seed in range(1, seeds + 1):
        _train({**config, "seed": seed}, runs / f"mixture-{seed}")
        for name, kind, alone in _alone(config, prepared, kinds):
            _train({**alone, "seed": seed}, runs / f"{name}-{kind}-{seed}")
        for name in names if "noise" in kinds else ():
            _train({**_noisy(config, but=name), "seed": seed}, runs / f"{name}-noise-{seed}")
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        places = {kind: Path("tasks", name) if kind == "noise" else Path() for kind in kinds}
        groups = {
            kind: [runs / f"{name}-{kind}-{seed}" / place for seed in range(1, seeds + 1)]
            for kind, place in places.items()
        }
        groups["mixture"] = [runs / f"mixture-{seed}" / "tasks" / name for seed in range(1, seeds + 1)]
        found[name] = compare_runs(groups, out / name)
    return found


def _alone(config: Mapping[str, Any], prepared: Prepared, kinds: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield (task, kind, configuration) of each run of a task by itself, as a recipe of its own."""
    trainer = config["trainer"]
    total = count_steps(trainer, len(prepared.data.train_dataloader()))
    own = prepared.data.steps(total)
    for name, task in task_configs(config).items():
        for kind in [kind for kind in kinds if kind != "noise"]:
            steps = total if kind == "long" else own[name]
            alone = {**task, "trainer": {**trainer, "max_steps": steps, "max_epochs": None}}
            if isinstance(every := trainer["val_check_interval"], int):
                alone["trainer"]["val_check_interval"] = max(1, round(every * steps / total))
            if kind == "small":
                dim = _narrower(prepared.tasks[name], prepared.model.num_parameters / len(prepared.tasks))
                alone["model"] = {**task["model"], "backbone": {**task["model"]["backbone"], "dim": dim}}
            yield name, kind, alone


def _noisy(config: Mapping[str, Any], *, but: str) -> dict[str, Any]:
    """A mixture in which inputs of all tasks but that one are noise."""
    tasks = {
        name: task if name == but else {**task, "data": {**task["data"], "noise": True}}
        for name, task in config["tasks"].items()
    }
    return {**config, "tasks": tasks}


def _narrower(task: Prepared, parameters: float) -> int:
    """Width of the backbone with which the model of a task comes nearest to that many parameters."""
    backbone = task.config["model"]["backbone"]
    step = 2 * int(backbone.get("num_heads") or 1)
    best, smallest = step, float("inf")
    for dim in range(step, int(backbone["dim"]) + 1, step):
        narrow = {**task.config["model"], "backbone": {**backbone, "dim": dim}}
        try:
            with torch.random.fork_rng(devices=[]):
                built = build({**task.config, "model": narrow})
                model = Model(task.data.tokenizer.spec, **{**built.model, "objective": task.data.objective})
        except ValueError:  # too narrow for its heads or axes
            continue
        if (gap := abs(model.num_parameters - parameters)) < smallest:
            best, smallest = dim, gap
    return best


def _without_decided(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without arguments of data sources, some of which a run has decided itself."""
    tasks = {name: _without_decided(task) for name, task in config.get("tasks", {}).items()}
    data = {**config.get("data", {})}
    data["source"] = data.get("source", {}).get("type")
    return {**config, "tasks": tasks, "data": data}


def _train(config: Mapping[str, Any], folder: Path) -> None:
    """Train a configuration, or go on with it; nothing where the folder holds it finished.

    Raises UsageError where the folder holds another configuration.
    """
    settings = {**config, "trainer": {**config["trainer"], "enable_progress_bar": None}}
    if (folder / CONFIG).is_file():
        known = complete(read_mapping(folder / CONFIG), may_mix=True)
        if _without_decided(known) != _without_decided(settings):
            raise UsageError(f"{folder} holds a run of another configuration; give another --out")
        if (folder / SUMMARY).is_file() and read_mapping(folder / SUMMARY).get("state") == "finished":
            return
        if is_unfinished(folder) and checkpoints(folder / FOLDER):
            resume_run(folder, {}, training_flops)
            return
        shutil.rmtree(folder)
    log.warning("%s", f"training {folder.name}")
    run(settings, folder, count_flops=training_flops)
