"""Lightning's trainer as a run uses it: what it refuses in one line, how long it goes on, how it ends when stopped."""

from __future__ import annotations

import logging
import signal
from typing import Any

from seqkit.quiet import quiet
from seqkit.recipe import UsageError

log = logging.getLogger("seqkit")


def make_trainer(**settings: Any) -> Any:
    """Lightning's trainer, without checkpoints of its own. Raises UsageError where it refuses a setting."""
    import pytorch_lightning as pl
    from pytorch_lightning.utilities.exceptions import MisconfigurationException

    try:
        with quiet():
            return pl.Trainer(**settings, enable_checkpointing=False)
    except (ValueError, TypeError, MisconfigurationException) as error:
        raise UsageError(f"trainer: {' '.join(str(error).split())}") from error


def train(trainer: Any, learner: Any, batches: Any, valid: Any) -> bool:
    """Train to the end; False where Ctrl-C or SIGTERM ended it."""
    try:
        trainer.fit(learner, train_dataloaders=batches, val_dataloaders=valid)
    except SystemExit:  # so Lightning ends an interrupted run, from then on deaf to Ctrl-C
        if not trainer.interrupted:
            raise
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log.info("stopped in step %d", trainer.global_step)
        return False
    return True


def count_steps(trainer: Any, num_batches: int) -> int:
    """Optimiser steps that the trainer will take. Raises UsageError where there are none, or nothing bounds them."""
    steps, epochs, every = trainer.max_steps, trainer.max_epochs, trainer.accumulate_grad_batches
    if steps == 0 or epochs == 0:
        raise UsageError(f"trainer.max_steps={steps}, trainer.max_epochs={epochs}: give 1 or more of either")
    if every < 1 or (trainer.gradient_clip_val or 0) < 0:
        raise UsageError(
            f"trainer.accumulate_grad_batches={every}, trainer.gradient_clip_val={trainer.gradient_clip_val}: "
            "they should be >= 1 and >= 0"
        )
    per_epoch = -(-num_batches // every)
    bounds = [steps] if steps > 0 else []
    bounds += [epochs * per_epoch] if epochs is not None and epochs > 0 else []
    if not bounds:
        raise UsageError("training has no end; give --trainer.max_steps or --trainer.max_epochs")
    return min(bounds)
