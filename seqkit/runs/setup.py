"""Callbacks, loggers and checkpoints that a run adds to Lightning's Trainer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqkit.errors import UsageError
from seqkit.mixture import Mixture
from seqkit.model import Model
from seqkit.runs.folder import CONFIG, rank, sha256
from seqkit.runs.prepare import Prepared
from seqkit.training.checkpoint_files import BEST, FOLDER, newest_good
from seqkit.training.checkpoint_io import read_checkpoint
from seqkit.training.interrupt import StopSignals
from seqkit.training.metrics_csv import MetricsCSV
from seqkit.training.module import RELATIVE_LOSS, Task
from seqkit.training.trainer import SHARDED, make_trainer

log = logging.getLogger("seqkit")


def keeps_best(prepared: Prepared, *, validates: bool) -> bool:
    """Whether a run keeps its best weights: as `trainer.weights` says or, where it says nothing, of a training that
    validates one task.
    """
    settings = prepared.built.trainer
    if settings["weights"] is not None:
        return bool(settings["weights"] == "best")
    return validates and settings["limit_val_batches"] != 0 and len(prepared.tasks) < 2


class RunSetup:
    """Callbacks, loggers and CheckpointIO of one training, and the Trainer that gets them."""

    def __init__(self, prepared: Prepared, folder: Path, signals: StopSignals):
        from seqkit.training.resume import RunFacts
        from seqkit.training.step_log import StepLog

        self.prepared, self.folder, self.signals = prepared, folder, signals
        self.facts = RunFacts(self._digests)
        self.step_log = StepLog()
        self.best: BestOfValidation | None = None
        self.loggers: list[Any] = []

    def _digests(self) -> dict[str, Any]:
        """Digests of data and configuration; the first process alone has the file, and writes the checkpoint."""
        config = sha256(self.folder / CONFIG) if rank() == 0 else ""
        return {"data_sha256": self.prepared.data.sha256(), "config_sha256": config}

    def trainer(self, validates: bool) -> Any:
        """Lightning's Trainer. validates: whether there is a validation split."""
        from seqkit.training.callbacks import check_monitors
        from seqkit.training.health import LossSpikes
        from seqkit.training.progress import StepProgress
        from seqkit.training.resume import RandomState, ResumePoints

        settings, folder, prepared = self.prepared.built.trainer, self.folder, self.prepared
        users, wants_best = list(settings["callbacks"] or ()), keeps_best(prepared, validates=validates)
        check_monitors(users, list(_columns(prepared.objectives(), validates=validates)))
        # losses of tasks in turn jump in every step
        callbacks = [*users, *([] if prepared.tasks else [LossSpikes()]), self.step_log, self.facts, RandomState()]
        if settings["enable_progress_bar"] is not False and rank() == 0:
            callbacks.append(StepProgress(prepared.config["recipe"]))
        lacks = next((name for name, task in prepared.tasks.items() if not task.data.val_dataloader()), "")
        if validates and not lacks and (wants_best or len(prepared.tasks) < 2):  # else there is no metric of all tasks
            self.best = BestOfValidation(prepared, folder / FOLDER, users)
            callbacks += self.best.callbacks if wants_best else self.best.callbacks[:1]
        elif wants_best and not prepared.tasks and prepared.data.valid_fraction > 0:
            log.warning("the data is too small for a validation split, so the weights are those of the last step")
        elif wants_best:
            which, of_task = (f"the task {lacks}", f"tasks.{lacks}.") if lacks else ("the data", "")
            raise UsageError(
                f"trainer.weights is best, but {which} has no validation split; give --{of_task}data.valid_fraction "
                "0.1, or --trainer.weights last"
            )
        points = ResumePoints(
            folder / FOLDER,
            signals=self.signals,
            keep=settings["checkpoint_keep"],
            every_n_steps=settings["checkpoint_every_n_steps"],
            every_minutes=settings["checkpoint_every_minutes"],
        )
        self.loggers = [one.build(folder, prepared.config["recipe"]) for one in settings["logger"] or ()]
        return make_trainer(
            {**settings, "enable_progress_bar": False},
            logger=[MetricsCSV(folder), *self.loggers],
            callbacks=[*callbacks, points],
            default_root_dir=folder,
            profiler=_profiler(settings["profiler"], folder),
        )

    def check_steps(self, num_steps: int) -> None:
        """Raise UsageError if the training is too short for one of its callbacks."""
        from seqkit.training.callbacks import EMA

        for callback in self.prepared.built.trainer["callbacks"] or ():
            if isinstance(callback, EMA):
                callback.check_steps(num_steps)

    def use_best_weights(self, model: Any) -> str:
        """Load the best weights into the run's model, if it keeps them; gives a description of what the model has."""
        if self.best is None or not keeps_best(self.prepared, validates=True):
            return "last"
        return self.best.load_into(model)


def begin_fine_tuning(settings: Mapping[str, Any], model: Model | Mixture, initial: Mapping[str, Any] | None) -> None:
    """Prepare a model for training as the trainer's settings say, and log how many of its parameters train.

    initial: where its weights come from, as a run's summary says it; None: they are random.
    Raises UsageError where a method cannot do its work: silently, all parameters would train.
    """
    method = settings.get("fine_tuning")  # a setting that older runs have not
    if method is None:
        return
    if isinstance(model, Mixture) or settings["strategy"] == SHARDED:
        what = "a mixture" if isinstance(model, Mixture) else f"trainer.strategy {SHARDED}"
        raise UsageError(f"trainer.fine_tuning: {what} trains all parameters; leave it out")
    total = sum(p.numel() for p in model.parameters())
    method.begin(model, () if initial is None else initial["taken"])
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    log.info("%s trains %s parameters; the model has %s", type(method).__name__, f"{trained:,}", f"{total:,}")


def end_fine_tuning(settings: Mapping[str, Any], model: Model | Mixture) -> dict[str, int]:
    """Give a trained model the parameters that it had before `begin_fine_tuning`; gives, for the summary, how many of
    them trained, if a method chose them."""
    if (method := settings.get("fine_tuning")) is None:
        return {}
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    method.end(model)
    return {"trained_parameters": trained}


class BestOfValidation:
    """The rule by which a training chooses its weights, on disk in `folder`. users: the recipe's own callbacks."""

    def __init__(self, prepared: Prepared, folder: Path, users: Sequence[Any]):
        from pytorch_lightning.callbacks import WeightAveraging

        from seqkit.training.callbacks import FinalValidation, best_weights

        averages = any(isinstance(one, WeightAveraging) for one in users)
        self.folder = folder
        self._best = best_weights(folder, prepared.objectives(), averages=averages)
        self.callbacks = [self._best, FinalValidation()]

    def load_into(self, model: Any) -> str:
        """Load the best weights; gives their description."""
        found = newest_good(self.folder, BEST)
        chosen = Path(self._best.best_model_path).name if self._best.best_model_path else None
        if found is None and chosen is None:
            log.warning("no validation ran, so the weights are those of the last step; see trainer.val_check_interval")
            return "last"
        if chosen is not None and (found is None or found.path.name != chosen):
            instead = "those of the last step" if found is None else f"the best before them, of step {found.step}"
            log.warning("the best weights (%s) are not on the disk as they were; the run's are %s", chosen, instead)
        if found is None:
            return "last"
        weights = read_checkpoint(found.path)["state_dict"]
        own = {name.removeprefix("model."): value for name, value in weights.items() if name.startswith("model.")}
        model.load_state_dict(own)
        return f"best, of step {found.step}"


def _columns(tasks: Mapping[str, Task], *, validates: bool) -> Iterator[str]:
    """Yield the columns of metrics that a callback may monitor."""
    for prefix, task in tasks.items():
        yield f"train/{prefix}loss"
        objective = task.objective
        names = ["loss", *objective.metrics(task.model.spec), *objective.generation_metrics()] if validates else []
        yield from (f"valid/{prefix}{name}" for name in names)
    if validates and len(tasks) > 1:
        yield RELATIVE_LOSS


def _profiler(name: str | None, folder: Path) -> Any:
    """Lightning's profiler of this name, which writes to the run folder."""
    from pytorch_lightning import profilers

    if name is None:
        return None
    kinds = {
        "simple": profilers.SimpleProfiler,
        "advanced": profilers.AdvancedProfiler,
        "pytorch": profilers.PyTorchProfiler,
    }
    return kinds[name](dirpath=folder, filename="profile")
