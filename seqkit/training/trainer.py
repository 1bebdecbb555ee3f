"""Lightning's Trainer as a run uses it: its settings, the number of steps, and how training ends when interrupted."""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from seqkit.errors import UsageError
from seqkit.training.silence import silence_lightning

log = logging.getLogger("seqkit")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerSettings:
    """Arguments of `pytorch_lightning.Trainer` that a recipe may set, with its defaults.

    Defaults of our own: max_epochs None (Lightning: 1000 epochs), so that a recipe says when training ends;
    enable_model_summary False; log_every_n_steps 20. enable_progress_bar: of seqkit's bar, in place of Lightning's.
    """

    accelerator: str = "auto"
    strategy: str = "auto"
    devices: list[int] | str | int = "auto"
    num_nodes: int = 1
    precision: str | int | None = None
    max_epochs: int | None = None
    min_epochs: int | None = None
    max_steps: int = -1
    min_steps: int | None = None
    max_time: str | dict[str, int] | None = None
    limit_train_batches: int | float | None = None
    limit_val_batches: int | float | None = None
    val_check_interval: int | float | str | dict[str, int] | None = None
    check_val_every_n_epoch: int | None = 1
    num_sanity_val_steps: int | None = None
    log_every_n_steps: int | None = 20
    enable_progress_bar: bool | None = None
    enable_model_summary: bool | None = False
    accumulate_grad_batches: int = 1
    gradient_clip_val: int | float | None = None
    gradient_clip_algorithm: str | None = None
    deterministic: bool | str | None = None
    benchmark: bool | None = None
    inference_mode: bool = True
    use_distributed_sampler: bool = True
    detect_anomaly: bool = False
    barebones: bool = False
    sync_batchnorm: bool = False
    reload_dataloaders_every_n_epochs: int = 0
    enable_autolog_hparams: bool = True

    @classmethod
    def of(cls, settings: TrainerSettings | Mapping[str, Any]) -> TrainerSettings:
        """The same, or made of a mapping; missing keys have their defaults. Raises UsageError for an unknown key."""
        if isinstance(settings, TrainerSettings):
            return settings
        try:
            return cls(**settings)
        except TypeError as error:
            raise UsageError(f"trainer: {' '.join(str(error).split())}") from error


def make_trainer(settings: TrainerSettings | Mapping[str, Any], **more: Any) -> Any:
    """Lightning's Trainer, without checkpoints of its own. Raises UsageError where it refuses a setting.

    more: arguments of Lightning's Trainer that are not a recipe's (logger, callbacks, …).
    """
    import pytorch_lightning as pl
    from pytorch_lightning.utilities.exceptions import MisconfigurationException

    arguments = {**asdict(TrainerSettings.of(settings)), **more, "enable_checkpointing": False}
    try:
        with silence_lightning():
            return pl.Trainer(**arguments)
    except (ValueError, TypeError, MisconfigurationException) as error:
        raise UsageError(f"trainer: {' '.join(str(error).split())}") from error


def count_steps(settings: TrainerSettings | Mapping[str, Any], num_batches: int) -> int:
    """Optimiser steps of the whole training, with `num_batches` an epoch.

    Raises UsageError where there are none, or nothing bounds them.
    """
    given = TrainerSettings.of(settings)
    steps, epochs, every = given.max_steps, given.max_epochs, given.accumulate_grad_batches
    if steps == 0 or epochs == 0:
        raise UsageError(f"trainer.max_steps={steps}, trainer.max_epochs={epochs}: give 1 or more of either")
    if every < 1 or (given.gradient_clip_val or 0) < 0:
        raise UsageError(
            f"trainer.accumulate_grad_batches={every}, trainer.gradient_clip_val={given.gradient_clip_val}: "
            "make them >= 1 and >= 0"
        )
    per_epoch = -(-num_batches // every)
    bounds = [steps] if steps > 0 else []
    bounds += [epochs * per_epoch] if epochs is not None and epochs > 0 else []
    if not bounds:
        raise UsageError("training has no end; give --trainer.max_steps or --trainer.max_epochs")
    return min(bounds)


def train(trainer: Any, module: Any, train_loader: Any, val_loader: Any) -> bool:
    """Train to the end; False where Ctrl-C or SIGTERM ended it."""
    try:
        trainer.fit(module, train_dataloaders=train_loader, val_dataloaders=val_loader)
    except SystemExit:  # Lightning ends an interrupted run so, and ignores Ctrl-C from then on
        if not trainer.interrupted:
            raise
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log.info("stopped in step %d", trainer.global_step)
        return False
    return True
