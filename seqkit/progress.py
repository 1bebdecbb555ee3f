"""One bar over the whole training, by steps: how far, how fast, how well. rich draws it."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import Callback
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class StepProgress(Callback):
    """Shows training by optimiser step and evaluation by batch.

    title: what is being trained. num_steps: optimiser steps until the end.
    """

    def __init__(self, title: str, num_steps: int):
        self.title, self.num_steps = title, num_steps
        self._bar: Progress | None = None
        self._task: Any = None

    def _begin(self, title: str, total: int | None) -> None:
        self._end()
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        self._task = self._bar.add_task(title, total=total, note="")
        self._bar.start()

    def _advance(self, completed: int, note: str = "") -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=completed, note=note)

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin(self.title, self.num_steps)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step % 10 == 0 or trainer.global_step == self.num_steps:
            shown = {k: float(v) for k, v in trainer.callback_metrics.items() if k in ("train/loss", "valid/loss")}
            self._advance(trainer.global_step, " ".join(f"{k} {v:.3f}" for k, v in shown.items()))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end()

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin("test", sum(trainer.num_test_batches))

    def on_test_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if batch_idx % 10 == 0:
            self._advance(batch_idx + 1)

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        self._advance(sum(trainer.num_test_batches))
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end()
