"""Lightning's Trainer as a run uses it: its settings, the number of steps, and how training ends when interrupted."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from seqkit.errors import UsageError
from seqkit.training.silence import silence_lightning

log = logging.getLogger("seqkit")


_CONVERTING = ("16-true", "bf16-true", "64-true", "64", "transformer-engine", "transformer-engine-float16")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerSettings:
    """Arguments of `pytorch_lightning.Trainer` that a recipe may set, with its defaults.

    Defaults of our own: max_epochs None (Lightning: 1000 epochs), so that a recipe says when training ends;
    enable_model_summary False; log_every_n_steps 20. enable_progress_bar: of seqkit's bar, in place of Lightning's.
    Raises UsageError for values that Lightning takes and fails at later, or makes nothing of.
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
    sync_batchnorm: bool = False
    reload_dataloaders_every_n_epochs: int = 0
    enable_autolog_hparams: bool = True

    def __post_init__(self) -> None:
        refused = {
            "limit_train_batches": (self.limit_train_batches == 0, "a number of batches from 1, or a share up to 1.0"),
            "val_check_interval": (
                self.val_check_interval == 0,
                "a number of batches from 1, a share of an epoch up to 1.0, or a time",
            ),
            "check_val_every_n_epoch": (_below(self.check_val_every_n_epoch, 1), "1 or more epochs, or null"),
            "num_sanity_val_steps": (_below(self.num_sanity_val_steps, -1), "0 or more steps, or -1 for all"),
            "log_every_n_steps": (_below(self.log_every_n_steps, 0), "1 or more steps, or 0 to log none"),
            "precision": (
                str(self.precision) in _CONVERTING,
                "32-true, 16-mixed or bf16-mixed (the others would round positions too)",
            ),
            "deterministic": (self.deterministic not in (None, True, False, "warn"), "true, false or warn"),
        }
        for name, (is_wrong, right) in refused.items():
            if is_wrong:
                raise UsageError(f"trainer.{name} is {getattr(self, name)!r}; give {right}")

    @classmethod
    def of(cls, settings: TrainerSettings | Mapping[str, Any]) -> TrainerSettings:
        """The same, or made of a mapping; missing keys have their defaults. Raises UsageError for a wrong one."""
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

    given = TrainerSettings.of(settings)
    _check_devices(given)
    arguments = {**asdict(given), **more, "enable_checkpointing": False}
    try:
        with silence_lightning():
            return pl.Trainer(**arguments)
    except Exception as error:  # a package that is missing for a precision or an accelerator among others
        raise _refused(error) from error


def _check_devices(settings: TrainerSettings) -> None:
    """Raise UsageError for more devices than cores on the CPU: each is a process."""
    import torch

    if settings.accelerator != "cpu" and (settings.accelerator != "auto" or torch.accelerator.is_available()):
        return
    try:
        devices = int(settings.devices)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # "auto", or what Lightning refuses
        return
    cores = os.cpu_count() or 1
    if devices > cores:
        raise UsageError(f"trainer.devices is {devices}, but this machine has {cores} cores; give {cores} or fewer")


def _below(value: int | None, least: int) -> bool:
    return value is not None and value < least


def _refused(error: Exception) -> UsageError:
    """Lightning's error in one line."""
    return UsageError(f"trainer: {' '.join(str(error).split())}")


def count_steps(settings: TrainerSettings | Mapping[str, Any], num_batches: int) -> int:
    """Optimizer steps of the whole training, with `num_batches` an epoch.

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
    per_epoch = -(-_limited(num_batches, given.limit_train_batches) // every)
    bounds = [steps] if steps > 0 else []
    bounds += [epochs * per_epoch] if epochs is not None and epochs > 0 else []
    if not bounds:
        raise UsageError("training has no end; give --trainer.max_steps or --trainer.max_epochs")
    return min(bounds)


def _limited(num_batches: int, limit: int | float | None) -> int:
    """Batches of an epoch that is limited to a number or a share (Lightning rounds down)."""
    if limit is None:
        return num_batches
    limited = min(num_batches, limit) if isinstance(limit, int) else int(num_batches * limit)
    if not 0 < limited <= num_batches:
        raise UsageError(
            f"trainer.limit_train_batches is {limit}, which leaves {limited} of {num_batches} batches; "
            f"give a number of batches from 1, or a share from {1 / num_batches:.2g} to 1.0"
        )
    return int(limited)


def train(trainer: Any, module: Any, train_loader: Any, val_loader: Any) -> bool:
    """Train to the end; False where Ctrl-C or SIGTERM ended it.

    Raises UsageError where Lightning refuses a setting before the first optimizer step.
    """
    try:
        trainer.fit(module, train_dataloaders=train_loader, val_dataloaders=val_loader)
    except SystemExit:  # Lightning ends an interrupted run so, and ignores Ctrl-C from then on
        if not trainer.interrupted:
            raise
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log.info("stopped in step %d", trainer.global_step)
        return False
    except Exception as error:
        if trainer.global_step == 0 and _is_lightnings(error):
            raise _refused(error) from error
        raise
    return True


def _is_lightnings(error: Exception) -> bool:
    """Whether Lightning itself raised this about its arguments or what it was given."""
    from pytorch_lightning.utilities.exceptions import MisconfigurationException

    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    is_lightnings = module.split(".")[0] in ("pytorch_lightning", "lightning_fabric")
    return is_lightnings and isinstance(error, MisconfigurationException | ValueError)
