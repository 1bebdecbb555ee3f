"""Lightning callback that feeds `seqkit.progress`: training by optimizer step, the test by batch."""

from __future__ import annotations

import time
from typing import Any

from pytorch_lightning import Callback

from seqkit.progress import ProgressBar
from seqkit.training.module import RELATIVE_LOSS

EVERY = 10
"""Steps between two updates of the bar. The loss beside it is read where it is logged: a reading waits for a GPU."""

SLOW_SECONDS = 2.0
"""Seconds after which the bar is updated in any case."""


class StepProgress(Callback):
    """Progress bar for the whole training, and one for the test. title: what is being trained."""

    def __init__(self, title: str):
        self.title = title
        self._bar: ProgressBar | None = None
        self._updated = 0.0
        self._note = ""

    def _start(self, title: str, total: int) -> None:
        self._stop()
        self._bar = ProgressBar(title, total)
        self._bar.start()

    def _update(self, done: int, note: str = "") -> None:
        if self._bar is not None:
            self._bar.update(done, note)

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._start(self.title, pl_module.num_steps)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        now = time.monotonic()
        is_logged = step % (trainer.log_every_n_steps or EVERY) == 0 or step == pl_module.num_steps
        if is_logged:
            known = (f"train/{pl_module.task}loss", "valid/loss", RELATIVE_LOSS)
            shown = [(k, v) for k, v in trainer.callback_metrics.items() if k in known]
            self._note = " ".join(f"{k} {float(v):.3f}" for k, v in shown)
        # a step that takes seconds is shown by itself
        if is_logged or step % EVERY == 0 or now - self._updated >= SLOW_SECONDS:
            self._updated = now
            self._update(step, self._note)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn != "fit":  # a validation by itself, not one of a training
            self._start("validation", sum(trainer.num_val_batches))

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._start("test", sum(trainer.num_test_batches))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._stop()

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if trainer.state.fn == "fit":
            self._update(trainer.global_step, "validating")
        else:
            self._update(batch_idx + 1)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn != "fit":
            self._stop()

    on_test_batch_end = on_validation_batch_end
    on_test_end = on_validation_end

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._stop()
