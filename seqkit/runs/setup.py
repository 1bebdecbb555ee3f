"""Callbacks, loggers and checkpoints that a run adds to Lightning's Trainer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seqkit.errors import UsageError
from seqkit.mixture import Mixture
from seqkit.model import Model
from seqkit.runs.folder import digests
from seqkit.runs.launcher import check_world, rank
from seqkit.runs.prepare import Prepared
from seqkit.runs.summary import Initial
from seqkit.training.checkpoint_files import BEST, FOLDER, newest_good
from seqkit.training.checkpoint_io import read_checkpoint
from seqkit.training.interrupt import StopSignals
from seqkit.training.loggers import build_loggers
from seqkit.training.metrics_csv import MetricsCSV
from seqkit.training.module import RELATIVE_LOSS, Task
from seqkit.training.trainer import SHARDED, make_trainer

log = logging.getLogger("seqkit")


class RunSetup:
    """Callbacks, loggers and CheckpointIO of one training, and the Trainer that gets them."""

    def __init__(self, prepared: Prepared, folder: Path, signals: StopSignals):
        from seqkit.training.resume import RunFacts

        self.prepared = prepared
        self.folder = folder
        self.signals = signals
        self.facts = RunFacts(self._digests)
        self.best: Any = None
        self.loggers: list[Any] = []

    def _digests(self) -> dict[str, Any]:
        """Digests of data, configuration and state; the first process alone has files, and writes the checkpoint."""
        return {
            "data_sha256": self.prepared.data.sha256(),
            **(digests(self.folder) if rank() == 0 else {}),
        }

    def trainer(self, validates: bool) -> Any:
        """Lightning's Trainer. validates: whether there is a validation split."""
        from pytorch_lightning.callbacks import WeightAveraging

        from seqkit.training.callbacks import FinalValidation, best_weights, check_monitors
        from seqkit.training.progress import StepProgress
        from seqkit.training.resume import RandomState, ResumePoints
        from seqkit.training.step_graph import StepGraph
        from seqkit.training.step_log import StepLog

        settings = self.prepared.built.trainer
        folder = self.folder
        prepared = self.prepared
        users = list(settings["callbacks"] or ())
        check_monitors(users, list(_columns(prepared.objectives(), validates=validates)))
        callbacks = [*users, StepLog(), self.facts, RandomState()]
        callbacks.append(StepGraph(settings["cuda_graph"]))
        if settings["enable_progress_bar"] is not False and rank() == 0:
            callbacks.append(StepProgress(prepared.config["recipe"]))
        asked = settings["weights"]
        loaders = [task.data.val_dataloader() for task in prepared.tasks.values()]
        wants_best = asked == "best" or (
            asked is None and settings["limit_val_batches"] != 0 and len(loaders) < 2
        )
        if wants_best and validates and all(loaders):
            averages = any(isinstance(one, WeightAveraging) for one in users)
            labels = () if prepared.tasks else prepared.data.splits().valid.labels
            self.best = best_weights(
                folder / FOLDER, prepared.objectives(), averages=averages, labels=labels
            )
            callbacks += [self.best, FinalValidation()]
        elif asked == "best":
            log.warning(
                "there is no validation split of each task, so the weights are those of the last step"
            )
        points = ResumePoints(
            folder / FOLDER,
            signals=self.signals,
            keep=settings["checkpoint_keep"],
            every_n_steps=settings["checkpoint_every_n_steps"],
            every_minutes=settings["checkpoint_every_minutes"],
        )
        self.loggers = build_loggers(settings["logger"], folder, prepared.config["recipe"])
        trainer = make_trainer(
            {**settings, "enable_progress_bar": False},
            logger=[MetricsCSV(folder), *self.loggers],
            callbacks=[*callbacks, points],
            default_root_dir=folder,
            profiler=settings["profiler"],
        )
        # else Lightning logs its report, where few would see it
        if settings["profiler"] is not None:
            trainer.profiler.dirpath = folder
            trainer.profiler.filename = "profile"
        check_world(trainer.world_size)
        return trainer

    def use_best_weights(self, model: Any) -> str:
        """Load the best weights into the run's model, if it keeps them; gives a description of what the model has."""
        if self.best is None:
            return "last"
        best = Path(self.best.best_model_path)
        found = newest_good(self.folder / FOLDER, BEST, until=best.name)
        if found is None:
            log.warning(
                "no best weights were kept, so it has those of the last step; see trainer.val_check_interval"
            )
            return "last"
        if best.name != found.path.name:
            log.warning(
                "%s is damaged; the run has the best weights before, of step %d", best, found.step
            )
        weights = read_checkpoint(found.path)["state_dict"]
        own = {
            name.removeprefix("model."): value
            for name, value in weights.items()
            if name.startswith("model.")
        }
        model.load_state_dict(own)
        return f"best, of step {found.step}"


def begin_fine_tuning(
    settings: Mapping[str, Any], model: Model | Mixture, initial: Initial | None
) -> None:
    """Prepare a model for training as the trainer's settings say, and log how many of its parameters train.

    initial: where its weights come from; None: they are random.
    Raises UsageError where a method cannot do its work: silently, all parameters would train.
    """
    method = settings["fine_tuning"]
    if method is None:
        return
    if isinstance(model, Mixture) or settings["strategy"] == SHARDED:
        if isinstance(model, Mixture):
            what = "a mixture"
        else:
            what = f"trainer.strategy {SHARDED}"
        raise UsageError(f"trainer.fine_tuning: {what} trains all parameters; leave it out")
    total = sum(p.numel() for p in model.parameters())
    method.begin(model, () if initial is None else initial.taken)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    log.info(
        "%s trains %s parameters; the model has %s",
        type(method).__name__,
        f"{trained:,}",
        f"{total:,}",
    )


def end_fine_tuning(settings: Mapping[str, Any], model: Model | Mixture) -> dict[str, int]:
    """Give a trained model the parameters that it had before `begin_fine_tuning`; gives, for the summary, how many of
    them trained, if a method chose them."""
    if (method := settings["fine_tuning"]) is None:
        return {}
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    method.end(model)
    return {"trained_parameters": trained}


def _columns(tasks: Mapping[str, Task], *, validates: bool) -> Iterator[str]:
    """Yield the columns of metrics that a callback may monitor."""
    for prefix, task in tasks.items():
        yield f"train/{prefix}loss"
        objective = task.objective
        if validates:
            names = ["loss", *objective.metrics(task.model.spec), *objective.generation_metrics()]
        else:
            names = []
        yield from (f"valid/{prefix}{name}" for name in names)
    if validates and len(tasks) > 1:
        yield RELATIVE_LOSS
