"""Log of a training: loss, gradient norm, learning rate, speed."""

from __future__ import annotations

import time
from typing import Any

from pytorch_lightning import Callback

from seqkit.training.optim import CombinedOptimizer
from seqkit.training.private_names import is_accumulating


class StepLog(Callback):
    """Writes one row to every logger each `log_every_n_steps` optimizer steps, and one for the last step.

    Columns: train/loss (nats, or the objective's unit, per prediction, over all devices; of a mixture train/TASK/loss,
    of the last step of each task), train/grad_norm (before clipping), lr (lr/TASK where each task has an optimizer),
    what modules such as a mixture of experts report, and train/tokens_per_second: real tokens of this process since the
    row before, over the time; the first row, which holds warm-up, and one after a validation have none.
    Rows are written here and not by `LightningModule.log`, which would write them after the step's checkpoint.
    """

    def __init__(self) -> None:
        self._tokens = 0
        self._since: float | None = None
        self._rates: dict[str, float] = {}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to measure."""
        self._since = None

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave a validation out of the speed."""
        self._since = None

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Note the learning rates of this step: the schedule sets the next ones before the batch ends."""
        if pl_module.logs_this_step:
            self._rates = _learning_rates(optimizer)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write a row if one is due."""
        step = trainer.global_step
        if not pl_module.is_logged(step) or is_accumulating(trainer):
            return
        row: dict[str, float] = {
            **{f"train/{task}loss": float(loss) for task, loss in pl_module.losses.items()},
            "train/grad_norm": float(pl_module.gradient_norm),
            **self._rates,
            **pl_module.statistics,
            **self._speed(pl_module.tokens_here),
            "epoch": trainer.current_epoch,
        }
        pl_module.losses.clear()
        for logger in trainer.loggers:
            logger.log_metrics(row, step=step - 1)

    def _speed(self, tokens: int) -> dict[str, float]:
        """Tokens per second since the last row. tokens: number of real tokens so far."""
        now = time.perf_counter()
        speed = {}
        if self._since is not None:
            seconds = max(now - self._since, 1e-9)
            speed["train/tokens_per_second"] = (tokens - self._tokens) / seconds
        self._since = now
        self._tokens = tokens
        return speed


def _learning_rates(optimizer: Any) -> dict[str, float]:
    """`lr` of the first group of parameters, and `lr/1`, … of those that differ from all before.

    Where each task of a mixture has an optimizer, `lr/TASK` and `lr/TASK/1`, ….
    """
    rates: dict[str, float] = {}
    if isinstance(optimizer, CombinedOptimizer) and optimizer.task is not None:
        for name, one in optimizer.by_name.items():
            own = _learning_rates(one)
            prefix = f"lr/{name.rstrip('/')}"
            rates |= {prefix + key.removeprefix("lr"): rate for key, rate in own.items()}
        return rates
    for i, group in enumerate(optimizer.param_groups):
        rate = float(group["lr"])
        if rate not in rates.values():
            rates[f"lr/{i}" if rates else "lr"] = rate
    return rates
