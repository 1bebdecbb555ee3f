"""Lightning's Trainer as a run uses it: its settings, the number of steps, its refusals, and its warnings."""

from __future__ import annotations

import logging
import os
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from seqkit.errors import UsageError
from seqkit.training.fine_tuning import FineTuning

log = logging.getLogger("seqkit")

SHARDED = "fsdp"
"""Strategy that shards weights: the word of `torch.distributed.fsdp`."""

Steps = Annotated[int, Field(ge=1)]
Batches = Steps | Annotated[float, Field(gt=0, le=1)]
"""Number of batches, or a share of them: 1 is a batch, 1.0 all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerSettings:
    """Settings of training in a recipe: arguments of `pytorch_lightning.Trainer`, and a few of our own.

    Defaults that differ: max_epochs None (Lightning: 1000 epochs), so that a recipe says when training ends; devices 1
    (Lightning: all), as more devices make larger batches; log_every_n_steps 20. enable_progress_bar: seqkit's bar, in
    place of Lightning's. logger: loggers beside metrics.csv, which is always written. profiler: simple, advanced or
    pytorch, to a file.
    Our own: min_steps: optimizer steps that max_epochs is raised to, in whole epochs, where data is small; a recipe's
    own is left out where a preset or an override says how long training is. checkpoint_every_minutes,
    checkpoint_every_n_steps: intervals between points to resume from; null: none. checkpoint_keep: number of them that
    stay. weights: weights of the run: `last`, or `best` by the objective's metric on the validation split; null: best
    if there is a validation split, last for several tasks. skip_nonfinite: optimizer steps that may be left out because
    loss or gradient are not finite. allow_broken_laws: train a model that breaks a law, too.
    precision: `auto` is bf16-mixed on a GPU that has bfloat16, else 32-true, as null.
    compile: torch.compile model and loss as one; `auto`: on a GPU, for a training that repays it
    (`seqkit.training.compiled`).
    cuda_graph: replay steps as CUDA graphs; `auto`: where it pays (`seqkit.training.step_graph`).
    activation_checkpointing: keep only the inputs of each block for the backward pass, and compute the rest again.
    fine_tuning: which parameters train, in a training that begins with the weights of another model; null: all.
    strategy: `ddp`, or `fsdp`, which is FSDP2 (not Lightning's class of that name, which is FSDP1): weights, gradients
    and optimizer state sharded over the devices.
    """

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    accelerator: str = "auto"
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    devices: list[int] | str | int = 1
    num_nodes: int = 1
    precision: (
        Literal["auto", "32-true", "bf16-mixed", "bf16-true", "16-mixed", "32", 32] | None
    ) = "auto"
    compile: Literal["auto"] | bool = "auto"
    cuda_graph: Literal["auto"] | bool = "auto"
    activation_checkpointing: bool = False
    max_epochs: Steps | Literal[-1] | None = None
    max_steps: Steps | Literal[-1] = -1
    min_steps: Steps | None = None
    limit_val_batches: int | float | None = None
    val_check_interval: Batches | None = None
    check_val_every_n_epoch: Steps | None = 1
    log_every_n_steps: Annotated[int, Field(ge=0)] = 20
    logger: Sequence[Any] | None = None
    callbacks: Sequence[Any] | None = None
    fine_tuning: FineTuning | None = None
    profiler: Literal["simple", "advanced", "pytorch"] | None = None
    enable_progress_bar: bool | None = None
    checkpoint_every_minutes: Annotated[float, Field(gt=0)] | None = 10
    checkpoint_every_n_steps: Steps | None = None
    checkpoint_keep: Steps = 1
    weights: Literal["last", "best"] | None = None
    skip_nonfinite: Annotated[int, Field(ge=0)] = 0
    allow_broken_laws: bool = False
    accumulate_grad_batches: Steps = 1
    gradient_clip_val: Annotated[float, Field(ge=0)] | None = None

    @classmethod
    def of(cls, settings: TrainerSettings | Mapping[str, Any]) -> TrainerSettings:
        """Settings from a mapping; missing keys have their defaults. Raises UsageError for a wrong one."""
        if isinstance(settings, TrainerSettings):
            return settings
        try:
            return TypeAdapter(TrainerSettings).validate_python(dict(settings))
        except ValidationError as error:
            fault = error.errors()[0]
            raise UsageError(
                f"trainer.{fault['loc'][0]} is {fault['input']!r}: {fault['msg']}"
            ) from None


OWN = (
    "checkpoint_every_minutes", "checkpoint_every_n_steps", "checkpoint_keep", "weights", "skip_nonfinite", "compile",
    "cuda_graph", "activation_checkpointing", "allow_broken_laws", "callbacks", "fine_tuning", "logger", "min_steps",
    "profiler",
)  # fmt: skip
"""Settings that are not passed to Lightning's Trainer as they are."""


def make_trainer(settings: TrainerSettings | Mapping[str, Any], **more: Any) -> Any:
    """Lightning's Trainer, without checkpoints unless they are among `callbacks`. Raises UsageError if it refuses.

    more: arguments of Lightning's Trainer that are not a recipe's (logger, callbacks, …).
    """
    import pytorch_lightning as pl
    from pytorch_lightning.callbacks import Checkpoint

    given = TrainerSettings.of(settings)
    _check_devices(given.devices)
    arguments = {name: getattr(given, name) for name in given.__slots__ if name not in OWN}
    arguments |= {"enable_model_summary": False, **more}
    arguments["enable_checkpointing"] = any(
        isinstance(one, Checkpoint) for one in more.get("callbacks") or ()
    )
    arguments["use_distributed_sampler"] = False  # our loaders deal batches to ranks
    if given.strategy == SHARDED:
        from seqkit.training.parallel import ShardedStrategy

        arguments["strategy"] = ShardedStrategy()
        # weights that are gathered in inference mode could not be trained after it
        arguments["inference_mode"] = False
    arguments["precision"] = resolved_precision(given.precision, given.accelerator)
    if given.precision == "bf16-true":
        from seqkit.training.precision import BFloat16

        arguments["precision"] = None
        arguments["plugins"] = [*(more.get("plugins") or ()), BFloat16()]
    try:
        with silence_lightning():
            return pl.Trainer(**arguments)
    # a package that is missing for a precision or an accelerator, among others
    except Exception as error:
        raise _refused(error) from error


def resolved_precision(precision: Any, accelerator: str) -> Any:
    """The precision that `auto` stands for on this machine; any other stays."""
    import torch

    if precision != "auto":
        return precision
    uses_cuda = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    if uses_cuda and torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16-mixed"
    return "32-true"


@contextmanager
def _tf32(trainer: Any) -> Iterator[None]:
    """Inside, matrix products that a lower precision leaves in float32 may round to TF32 on CUDA, as torch's "high"."""
    import torch

    if trainer.strategy.root_device.type != "cuda" or trainer.precision == "32-true":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _check_devices(devices: Any) -> None:
    """Raise UsageError for more devices than accelerators and than cores: on the CPU each is a process."""
    import torch

    most = max(os.cpu_count() or 1, torch.accelerator.device_count())
    if isinstance(devices, int) and devices > most:
        raise UsageError(
            f"trainer.devices is {devices}, but this machine has {most} cores; give {most} or fewer"
        )


def _refused(error: Exception) -> UsageError:
    """Lightning's error in one line."""
    return UsageError(f"trainer: {' '.join(str(error).split())}")


def count_steps(
    settings: TrainerSettings | Mapping[str, Any], num_batches: int, world_size: int = 1
) -> int:
    """Optimizer steps of the whole training, with `num_batches` an epoch, dealt to `world_size` processes.

    Raises UsageError if an epoch has no batch, or nothing bounds them.
    """
    given = TrainerSettings.of(settings)
    steps = given.max_steps
    epochs = given.max_epochs
    per_process = num_batches // world_size
    if per_process == 0:
        raise UsageError(
            f"the training split has {num_batches} batches, too few for {world_size} devices; give a smaller "
            "--data.batch_size, or fewer --trainer.devices"
        )
    bounds = [steps] if steps > 0 else []
    if epochs is not None and epochs > 0:
        per_epoch = -(-per_process // given.accumulate_grad_batches)
        bounds.append(per_epoch * max(epochs, -(-(given.min_steps or 0) // per_epoch)))
    if not bounds:
        raise UsageError("training has no end; give --trainer.max_steps or --trainer.max_epochs")
    if min(bounds) < (given.min_steps or 0):
        raise UsageError(
            f"trainer.min_steps is {given.min_steps}, but trainer.max_steps {steps}; leave one out"
        )
    return min(bounds)


def train(
    trainer: Any, module: Any, train_loader: Any, val_loader: Any, *, checkpoint: Path | None = None
) -> None:
    """Train to the end. checkpoint: to go on from.

    Raises UsageError where Lightning refuses a setting before the first optimizer step.
    """
    try:
        with _tf32(trainer):
            trainer.fit(
                module,
                train_dataloaders=train_loader,
                val_dataloaders=val_loader,
                ckpt_path=checkpoint,
                weights_only=True,
            )
    except Exception as error:
        if trainer.global_step == 0 and _is_lightnings(error):
            raise _refused(error) from error
        raise


def _is_lightnings(error: Exception) -> bool:
    """Whether Lightning itself raised an error about its arguments."""
    from pytorch_lightning.utilities.exceptions import MisconfigurationException

    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    is_lightnings = str(frame.f_globals.get("__name__")).startswith(
        ("pytorch_lightning", "lightning_fabric")
    )
    return is_lightnings and isinstance(error, MisconfigurationException | ValueError)


ADVICE = (
    "does not have many workers",
    "isinstance.treespec, LeafSpec",
    "exists and is not empty",
    "smaller than the logging interval",
    "no `val_dataloader`",
    "Total length of `list`",
    "sync_dist=True",
    "overrides the configure_model callback",
    # of torchmetrics: a class without examples has no ROC curve, and is left out of the mean
    "Ignoring these classes in macro-average",
    "No positive samples",
    "No negative samples",
)
"""Parts of the warnings that are silenced: about workers, logs, data loaders, and classes without examples."""


@contextmanager
def silence_lightning() -> Iterator[None]:
    """Silence ADVICE and Lightning's notes about devices inside this context; errors pass."""
    loggers = [
        logging.getLogger(name)
        for name in ("pytorch_lightning", "pytorch_lightning.utilities.rank_zero")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for advice in ADVICE:
                warnings.filterwarnings("ignore", message=f".*{advice}.*")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
