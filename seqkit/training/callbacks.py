"""Callbacks beside Lightning's own: averaged weights, the best weights, and a validation after the last step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import callbacks as lightning

from seqkit.errors import UsageError, suggest
from seqkit.interfaces import IGNORE
from seqkit.objectives.metric import primary_metric
from seqkit.training.checkpoint_files import BEST
from seqkit.training.module import RELATIVE_LOSS, Task
from seqkit.training.private_names import averaged_model

FEW_LABELS = 200
"""Validation labels below which the loss chooses the best weights, as accuracy then has few values and jumps."""


class EMA(lightning.EMAWeightAveraging):
    """Exponential moving average of the weights, which are validated and become the run's (Polyak and Juditsky 1992).

    decay: share of the average that an update keeps. every_n_steps: optimizer steps between updates. start_step: first
    step that may update the average.
    """

    def __init__(
        self, decay: float = 0.999, *, every_n_steps: int = 1, start_step: int = 0
    ) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"decay is {decay}; give a share above 0 and below 1")
        if every_n_steps < 1 or start_step < 0:
            raise ValueError(
                f"every_n_steps is {every_n_steps} and start_step {start_step}; "
                "give every_n_steps >= 1 and start_step >= 0"
            )
        super().__init__(
            decay=decay, update_every_n_steps=every_n_steps, update_starting_at_step=start_step
        )

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Before the first update there is no average: validate the current weights."""
        average = averaged_model(self)
        if average is not None and int(average.n_averaged) == 0:
            average.module.load_state_dict(pl_module.state_dict())
        super().on_validation_epoch_start(trainer, pl_module)

    def check_steps(self, num_steps: int) -> None:
        """Raise UsageError if no step updates the average: the run's weights would be the initial ones."""
        if not any(self.should_update(step_idx=step) for step in range(num_steps)):
            raise UsageError(
                f"trainer.callbacks: EMA would average nothing in {num_steps} steps (start_step "
                f"{self.update_starting_at_step}, every_n_steps {self.update_every_n_steps}); give smaller numbers"
            )


def best_weights(
    folder: Path, tasks: Mapping[str, Task], *, averages: bool, labels: Sequence[Any]
) -> lightning.ModelCheckpoint:
    """Callback that keeps the weights with the best validation metric: the objective's primary one, the loss in place
    of accuracy where labels are few (`FEW_LABELS`), or `RELATIVE_LOSS` of several tasks.

    labels: of the validation examples of a single task.
    averages: whether another callback averages the weights and validates the average. It writes the average into
    complete checkpoints only; a checkpoint of weights alone would hold others than those that were validated.
    """
    monitor = RELATIVE_LOSS
    mode = "min"
    if len(tasks) == 1:
        ((prefix, task),) = tasks.items()
        name = task.objective.primary_metric
        if name == "accuracy" and _number(labels) < FEW_LABELS:
            name = "loss"
        else:
            mode = primary_metric(task.objective, task.model.spec).mode
        monitor = f"valid/{prefix}{name}"
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


def _number(labels: Sequence[Any]) -> int:
    """Labels that count: of a graph those of its nodes that are known, of a text those of its tokens."""
    return sum(int((torch.as_tensor(label) != IGNORE).sum()) for label in labels)


class _BestWeights(lightning.ModelCheckpoint):
    """ModelCheckpoint that decides between equally good weights: the lower validation loss wins, then the later step.

    Ties are common, since a metric such as accuracy has few values on few examples.
    """

    loss = math.inf
    """Validation loss of the best weights so far."""

    def check_monitor_top_k(self, trainer: Any, current: torch.Tensor | None = None) -> bool:
        """Whether these weights are to be kept."""
        prefix = str(self.monitor).rpartition("/")[0]
        loss = float(trainer.callback_metrics.get(f"{prefix}/loss", math.inf))
        is_as_good = (
            current is not None
            and bool(self.best_model_path)
            and bool(current == self.best_model_score)
        )
        if is_as_good:
            is_better = loss <= self.loss
        else:
            is_better = super().check_monitor_top_k(trainer, current)
        if is_better:
            self.loss = loss
        return is_better

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "loss": self.loss}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as if its files had always been in this folder, since the run folder may have been moved.

        In another folder, Lightning would forget the best score, and worse weights would replace the best.
        """

        def here(path: str) -> str:
            if path:
                return str(Path(self.dirpath or "") / Path(path).name)
            return path

        paths = {
            name: here(state_dict[name])
            for name in ("best_model_path", "kth_best_model_path", "last_model_path")
        }
        best = {here(path): score for path, score in state_dict["best_k_models"].items()}
        self.loss = state_dict["loss"]
        super().load_state_dict(
            {**state_dict, **paths, "dirpath": self.dirpath, "best_k_models": best}
        )


class FinalValidation(lightning.Callback):
    """Validates after the last step, even if no validation is due there.

    Without it, a training that ends before its first validation would have no best weights.
    """

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """At the last step, ask Lightning to stop: it validates before it stops, unless it just has."""
        trainer.should_stop = trainer.should_stop or trainer.global_step >= pl_module.num_steps


def check_monitors(callbacks: list[Any], known: list[str]) -> None:
    """Raise UsageError if a callback monitors something other than the known metrics."""
    for callback in callbacks:
        monitor = getattr(callback, "monitor", None)
        if monitor is not None and monitor not in known:
            what = f"trainer.callbacks: {type(callback).__name__} monitors {monitor!r}"
            raise UsageError(f"{what}; {suggest(monitor, known)} (valid/ needs a validation split)")
