"""Private names of Lightning and torch for which no public one exists; no other file of the training asks for any.

Hooks and attributes that a subclass overrides stand in the subclass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.optim.swa_utils import AveragedModel

multiply_all = torch._foreach_mul_
add_to_all = torch._foreach_add_
lerp_all = torch._foreach_lerp_
lerped = torch._foreach_lerp
"""Operations on many tensors at once, with few kernels: in place, but for `lerped`."""


def compiler_error() -> type[Exception]:
    """Error of `torch.compile` where it cannot compile; a function, since its module takes a second to import."""
    return torch._dynamo.exc.TorchDynamoException


def is_attached(module: Any) -> bool:
    """Whether a LightningModule has a Trainer; its `trainer` raises if it has none."""
    return module._trainer is not None


def is_accumulating(trainer: Any) -> bool:
    """Whether the optimizer did not step in this training batch."""
    return bool(trainer.fit_loop.epoch_loop._should_accumulate())


def validation_follows(trainer: Any) -> bool:
    """Whether a validation follows this training batch."""
    loop = trainer.fit_loop
    return bool(loop.epoch_loop._should_check_val_fx(loop._data_fetcher))


def end_epoch(trainer: Any, pl_module: Any) -> None:
    """Call the hooks of the end of a training epoch, as Lightning's loop does."""
    from pytorch_lightning.trainer import call

    trainer._logger_connector.epoch_end_reached()
    call._call_callback_hooks(trainer, "on_train_epoch_end", monitoring_callbacks=False)
    pl_module.on_train_epoch_end()
    call._call_callback_hooks(trainer, "on_train_epoch_end", monitoring_callbacks=True)


def averaged_model(callback: Any) -> AveragedModel | None:
    """The average that a `WeightAveraging` callback keeps; None before it is set up."""
    average: AveragedModel | None = callback._average_model
    return average


def skips_by_itself(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer skips a step where its attribute `found_inf` is 1, as torch's fused ones do."""
    return getattr(optimizer, "_step_supports_amp_scaling", False)


def unfuse(optimizer: torch.optim.Optimizer) -> None:
    """Make a gradient scaler unscale before the step of a fused optimizer, so that clipping sees the true norm."""
    optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]
    for group in optimizer.param_groups:
        if group.get("fused"):
            group["fused"] = False
