"""Lightning's callbacks: as a recipe names them (`trainer.callbacks`), and those by which a run chooses its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import callbacks as lightning
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from seqkit.errors import UsageError, suggest
from seqkit.interfaces import Objective, TokenSpec
from seqkit.training.checkpoint_files import BEST
from seqkit.training.module import RELATIVE_LOSS, Task


class EarlyStopping(lightning.EarlyStopping):
    """Ends training when a metric has stopped to improve for `patience` validations.

    monitor: a column of metrics.csv, such as valid/loss or valid/accuracy. mode: min or max. min_delta: the smallest
    change that counts.
    """

    def __init__(
        self, monitor: str = "valid/loss", *, patience: int = 3, min_delta: float = 0.0, mode: str = "min"
    ) -> None:
        _check_mode(mode)
        super().__init__(monitor=monitor, patience=patience, min_delta=min_delta, mode=mode)


class ModelCheckpoint(lightning.ModelCheckpoint):
    """Further weights beside the run's own checkpoints, in the run's folder `checkpoints`.

    monitor: a column of metrics.csv; None: the newest. save_top_k: how many are kept. mode: min or max.
    every_n_epochs: how often one is looked for.
    """

    def __init__(
        self, monitor: str | None = None, *, save_top_k: int = 1, mode: str = "min", every_n_epochs: int = 1
    ) -> None:
        _check_mode(mode)
        try:
            super().__init__(
                monitor=monitor,
                save_top_k=save_top_k,
                mode=mode,
                every_n_epochs=every_n_epochs,
                filename="user-{epoch}-{step}",
                save_weights_only=True,
            )
        except MisconfigurationException as error:
            raise ValueError(" ".join(str(error).split())) from error

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back in a run folder that may have been moved."""
        super().load_state_dict(in_folder(state_dict, self.dirpath))


class EMA(lightning.EMAWeightAveraging):
    """Exponential moving average of the weights, which are validated and become the run's (Polyak and Juditsky 1992).

    decay: decay of the average in an update. every_n_steps: optimizer steps between updates. start_step: first update.
    """

    def __init__(self, decay: float = 0.999, *, every_n_steps: int = 1, start_step: int = 0) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"decay is {decay}; give a share above 0 and below 1")
        if every_n_steps < 1 or start_step < 0:
            raise ValueError(f"every_n_steps is {every_n_steps} and start_step {start_step}; give >= 1 and >= 0")
        super().__init__(decay=decay, update_every_n_steps=every_n_steps, update_starting_at_step=start_step)

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Validate the weights as they are before the first update, when there is no average."""
        average = self._average_model
        if average is not None and int(average.n_averaged) == 0:
            average.module.load_state_dict(pl_module.state_dict())
        super().on_validation_epoch_start(trainer, pl_module)

    def check_steps(self, num_steps: int) -> None:
        """Raise UsageError if no step updates the average: the run's weights would be the first ones."""
        first = next((step for step in range(num_steps) if self.should_update(step_idx=step)), None)
        if first is None:
            raise UsageError(
                f"trainer.callbacks: EMA has start_step {self.update_starting_at_step} and every_n_steps "
                f"{self.update_every_n_steps}, but training has {num_steps} steps, so nothing would be averaged; "
                "give a smaller start_step, or train longer"
            )


def mode_of(objective: Objective, spec: TokenSpec) -> str:
    """Whether more of an objective's primary metric is better, `max`, or less, `min`, as the metric itself says."""
    metric = (objective.metrics(spec) | objective.generation_metrics()).get(objective.primary_metric)
    return "max" if getattr(metric, "higher_is_better", False) else "min"


def best_weights(folder: Path, tasks: Mapping[str, Task], *, averages: bool) -> lightning.ModelCheckpoint:
    """Callback that keeps the weights with the best validation metric: the objective's primary one, or `RELATIVE_LOSS`
    of several tasks.

    averages: whether a callback validates averaged weights. It puts them into complete checkpoints alone, so weights
    by themselves would be others than those that were validated.
    """
    monitor, mode = RELATIVE_LOSS, "min"
    if len(tasks) == 1:
        ((prefix, task),) = tasks.items()
        monitor, mode = f"valid/{prefix}{task.objective.primary_metric}", mode_of(task.objective, task.model.spec)
    return _BestWeights(
        dirpath=folder,
        filename=f"{BEST}-{{step}}",
        monitor=monitor,
        mode=mode,
        save_top_k=1,
        save_weights_only=not averages,
        save_on_train_epoch_end=False,
        enable_version_counter=False,
    )


class _BestWeights(lightning.ModelCheckpoint):
    """Keeps the later of equally good weights: a share of few examples is often the same, and they have learned longer.

    FSDD: 270 validation examples, 98.5 % after 8 of 20 epochs and at the end.
    """

    def check_monitor_top_k(self, trainer: Any, current: torch.Tensor | None = None) -> bool:
        """Whether these weights are to be kept."""
        is_as_good = current is not None and bool(self.best_model_path) and bool(current == self.best_model_score)
        return is_as_good or super().check_monitor_top_k(trainer, current)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back in a run folder that may have been moved."""
        super().load_state_dict(in_folder(state_dict, self.dirpath))


class FinalValidation(lightning.Callback):
    """Validates the weights of the last step, at which no validation need be due.

    Without it, a training of fewer steps than lie between two validations would have no best weights.
    """

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Ask Lightning to stop, before which it validates if it has not just done so."""
        trainer.should_stop = trainer.should_stop or trainer.global_step >= pl_module.num_steps


def in_folder(state: Mapping[str, Any], folder: str | Path | None) -> dict[str, Any]:
    """State of a Lightning `ModelCheckpoint` as if its files had always been in `folder`.

    If the run folder was moved, Lightning forgets the best score, so that worse weights replace the best.
    """

    def here(path: str) -> str:
        return str(Path(folder or "") / Path(path).name) if path else path

    paths = ("best_model_path", "kth_best_model_path", "last_model_path")
    return {
        **state,
        "dirpath": None if folder is None else str(folder),
        **{name: here(state[name]) for name in paths if name in state},
        "best_k_models": {here(path): score for path, score in state.get("best_k_models", {}).items()},
    }


def check_monitors(callbacks: list[Any], known: list[str]) -> None:
    """Raise UsageError if a callback monitors something other than the known metrics."""
    for callback in callbacks:
        monitor = getattr(callback, "monitor", None)
        if monitor is not None and monitor not in known:
            fault = f"trainer.callbacks: {type(callback).__name__} monitors {monitor!r}"
            if monitor.startswith("valid/") and not any(name.startswith("valid/") for name in known):
                raise UsageError(f"{fault}, but the data has no validation split; give --data.valid_fraction 0.1")
            raise UsageError(f"{fault}; {suggest(monitor, known)}")


def _check_mode(mode: str) -> None:
    if mode not in ("min", "max"):
        raise ValueError(f"mode is {mode!r}; give min or max")
