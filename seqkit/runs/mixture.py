"""Runs of a mixture: the folder of each task, `RUN/tasks/NAME`, is that of an ordinary run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from seqkit.errors import DataError, UsageError
from seqkit.pretrained.folder import is_foreign, located
from seqkit.runs.evaluate import Scorer, baseline, evaluate, finish
from seqkit.runs.folder import opened
from seqkit.runs.imported import import_model
from seqkit.runs.prepare import Prepared
from seqkit.runs.reopened import check_one
from seqkit.runs.summary import Summary, read_summary, state, task_folders
from seqkit.runs.trained_model import TrainedModel, load_one
from seqkit.training.loggers import log_test_metrics

log = logging.getLogger("seqkit")


def load(
    folder: str | Path, device: str | torch.device = "cpu", dtype: str | torch.dtype | None = None
) -> TrainedModel | dict[str, TrainedModel]:
    """The trained model of a run, or of a mixture those of all tasks by name, with one backbone; else as `load_one`.

    folder: also that of a model of another library, which is then as `seqkit import` would write it, or `hf:NAME` of
    the hub, such a model or a run that was published.
    Raises DataError where the backbones of a mixture's tasks differ.
    """
    if is_foreign(place := located(folder)):
        with TemporaryDirectory() as scratch:
            import_model(place, Path(scratch) / "run", str(folder))
            return replace(load_one(Path(scratch) / "run", device, dtype), folder=place)
    folders = task_folders(place)
    if not folders:
        return load_one(place, device, dtype)
    tasks = {name: load_one(place, device, dtype) for name, place in folders.items()}
    # has weights of all
    first = max(tasks.values(), key=lambda trained: len(trained.model.backbone.state_dict()))
    shared = first.model.backbone.state_dict()
    for trained in tasks.values():
        own = trained.model.backbone.state_dict()
        if not all(key in shared and own[key].equal(shared[key]) for key in own):
            raise DataError(
                f"{trained.folder} has another backbone than {first.folder}; copy the run whole again"
            )
        trained.model.backbone = first.model.backbone
    return tasks


def constants(prepared: Prepared) -> dict[str, float]:
    """Loss of the best constant prediction on the validation split of each task.

    Raises UsageError for a task whose objective knows no constant.
    """
    found: dict[str, float] = {}
    for name, task in prepared.tasks.items():
        metrics, _ = baseline(task.data.objective, task.model.spec, task.data, "valid")
        if not metrics.get("loss"):
            raise UsageError(
                f"trainer.weights is best, but the loss of the task {name} has no best constant to compare it with; "
                "give --trainer.weights last"
            )
        found[name] = metrics["loss"]
    return found


def finish_tasks(
    folder: Path, prepared: Prepared, scorer: Scorer | None, loggers: Sequence[Any] = ()
) -> Summary:
    """Test every task of a trained mixture, and write it to the summaries; gives that of the mixture."""
    metrics: dict[str, float] = {}
    for name, task in prepared.tasks.items():
        log.info("testing %s", name)
        place = task_folders(folder)[name]
        tested = finish(place, read_summary(place), task.model, task.data, task.config, scorer)
        metrics |= {f"{name}/{metric}": value for metric, value in tested.metrics.items()}
    summary = _finished(folder)
    log_test_metrics(loggers, metrics, summary.steps)
    return summary


def evaluate_run(
    folder: Path, split: str, scorer: Scorer | None = None, moved_to: str | None = None
) -> dict[str, dict[str, float]]:
    """Metrics on a split as of `evaluate`: of each task of a mixture by name, of another run by the empty name."""
    finishes = split == "test" and state(folder) == "trained"
    with opened(folder, lambda: True) if finishes else nullcontext():
        places = task_folders(folder)
        check_one(folder, moved_to)
        found = {
            name: evaluate(place, split, scorer, moved_to=moved_to)
            for name, place in (places or {"": folder}).items()
        }
        if places and finishes:
            _finished(folder)
    return found


def _finished(folder: Path) -> Summary:
    """Summary of a mixture, whose tasks are all tested by now."""
    summary = read_summary(folder)
    if summary.state == "trained":
        date = datetime.now().isoformat(timespec="seconds")
        summary = summary.changed(state="finished", date=date)
        summary.write(folder)
    return summary
