"""Weights, gradients and optimizer state sharded over processes: FSDP2 through Lightning's ModelParallelStrategy.

Every process holds a part of each weight along its first axis, a `DTensor`. Before a block computes, its weights are
gathered from all processes, and freed after it; its gradients are averaged and dealt out again (Zhao et al. 2023,
arXiv 2304.11277; `torch.distributed.fsdp.fully_shard`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from pytorch_lightning.callbacks import WeightAveraging
from pytorch_lightning.strategies import ModelParallelStrategy, Strategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.optim import Optimizer

from seqkit.backbones.reversible import Reversible
from seqkit.errors import UsageError
from seqkit.training.checkpoint_files import Content
from seqkit.training.checkpoint_io import read_checkpoint
from seqkit.training.optim import AdamW, Muon, OptimizerFactory, TorchOptimizer
from seqkit.training.recompute import blocks_of

ELEMENTWISE = (
    "ASGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "SGD",
)
"""Optimizers of torch whose step on a part of a weight is that part of the step on the weight.

Of the others, Muon multiplies whole matrices, which `DTensor` gathers for it; its steps are equal to the precision of
these products: float32 on a CPU, bfloat16 elsewhere. Rprop and Adafactor of torch 2.11 raise on a `DTensor`.
"""


SHARDED_TENSOR = "seqkit.sharded"
"""Key that marks, in a checkpoint, a tensor that was sharded."""


class ShardedStrategy(ModelParallelStrategy):
    """`trainer.strategy fsdp`: weights are sharded over one group of all processes; none is tensor parallel.

    A checkpoint is one file as without sharding: tensors are gathered one after the other in the memory of the first
    process's host, which has to hold weights and optimizer state for that time.
    """

    lightning_restore_optimizer = True
    """`load_checkpoint` returns the optimizer's state, sharded as the optimizer wants it."""

    def __init__(self) -> None:
        super().__init__(tensor_parallel_size=1)

    def setup_environment(self) -> None:
        """Shard over all processes; Lightning would by itself over hosts."""
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    @property
    def mesh(self) -> DeviceMesh:
        """Processes over which weights are sharded."""
        return self.device_mesh["data_parallel"]

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return self.lightning_module.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        return optimizer.state_dict()

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Copy parts of weights to parts, as of a module that is not sharded."""
        Strategy.load_model_state_dict(self, checkpoint, strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        Strategy.load_optimizer_state_dict(self, checkpoint)

    def save_checkpoint(
        self, checkpoint: Content, filepath: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write one file with whole tensors; all processes take part in gathering them."""
        if "optimizer_states" in checkpoint:
            checkpoint = whole_tensors(checkpoint, keep=self.is_global_zero)
        else:  # weights alone, which are read as those of any run
            checkpoint["state_dict"] = gathered(checkpoint["state_dict"], keep=self.is_global_zero)
        Strategy.save_checkpoint(self, checkpoint, filepath, storage_options)

    def load_checkpoint(
        self, checkpoint_path: str | Path, weights_only: bool | None = None
    ) -> Content:
        """Content of a resume point, of which each process takes its part."""
        path = Path(self.broadcast(str(checkpoint_path)))
        return cast(Content, sharded_tensors(read_checkpoint(path, mmap=True), self.mesh))


def whole_tensors(value: Any, *, keep: bool) -> Any:
    """Nested value with each sharded tensor whole, and marked, on the CPU where `keep`. All processes take part."""
    if isinstance(value, DTensor):
        (placement,) = value.placements
        dim = placement.dim if isinstance(placement, Shard) else None
        whole = value.full_tensor()
        return {SHARDED_TENSOR: whole.detach().cpu() if keep else None, "dim": dim}
    if isinstance(value, dict):
        return {key: whole_tensors(item, keep=keep) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(whole_tensors(item, keep=keep) for item in value)
    return value


def sharded_tensors(value: Any, mesh: DeviceMesh) -> Any:
    """Nested value with each tensor that `whole_tensors` marked sharded over a mesh; nothing is sent."""
    if isinstance(value, dict) and SHARDED_TENSOR in value:
        placement = Replicate() if value["dim"] is None else Shard(value["dim"])
        part = distribute_tensor(value[SHARDED_TENSOR], mesh, [placement], src_data_rank=None)
        return part.clone()  # not a view of the file
    if isinstance(value, dict):
        return {key: sharded_tensors(item, mesh) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(sharded_tensors(item, mesh) for item in value)
    return value


def shard(model: nn.Module, mesh: DeviceMesh) -> None:
    """Shard each block of the backbone, then what is left: embedder, norm and head. It changes the model in place."""
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def is_sharded(model: nn.Module) -> bool:
    """Whether `shard` was applied."""
    return isinstance(model, FSDPModule)


def without_weights(model: nn.Module) -> nn.Module:
    """Copy whose parameters have no elements yet; tied weights stay tied."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(torch.empty(0, dtype=p.dtype), requires_grad=p.requires_grad)
        for p in model.parameters()
    }
    return copy.deepcopy(model, memo)


def gather_weights(sharded: nn.Module, whole: nn.Module, *, keep: bool) -> None:
    """Fill a copy that `without_weights` made, on the CPU, if `keep`. All processes take part."""
    weights = gathered(dict(sharded.named_parameters()), keep=keep)
    if not keep:
        return
    for name, parameter in whole.named_parameters():
        parameter.data = weights[name]
    buffers = dict(sharded.named_buffers())
    for name, buffer in whole.named_buffers():
        buffer.data = buffers[name].detach().cpu()


def gathered(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Whole tensors on the CPU if `keep`, else nothing; gathered one after the other, so one at a time is whole."""
    whole: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        full = whole_tensor(tensor)
        if keep:
            whole[name] = full.detach().cpu()
    return whole


def whole_tensor(tensor: Tensor) -> Tensor:
    """A sharded tensor from the parts of all processes, which all take part; any other tensor as it is."""
    if isinstance(tensor, DTensor):
        return tensor.full_tensor()
    return tensor


def local_part(tensor: Tensor) -> Tensor:
    """Part of a weight that this process holds; the weight itself if it is not sharded."""
    if isinstance(tensor, DTensor):
        return tensor.to_local()
    return tensor


def check_sharding(
    model: nn.Module,
    optimizer: OptimizerFactory | None,
    settings: Mapping[str, Any],
    *,
    generates: bool,
) -> None:
    """Raise UsageError, with what to use instead, for what is not known to be right with sharded weights.

    generates: whether validation generates, with another number of forward passes in each process.
    """
    name = type(optimizer).__name__
    is_known = isinstance(optimizer, AdamW | Muon | None)
    if isinstance(optimizer, TorchOptimizer):
        name = optimizer.cls.__name__
        is_known = any(optimizer.cls is getattr(torch.optim, one) for one in ELEMENTWISE)
    refused = [
        (
            not is_known,
            f"the optimizer {name} is not known to work on parts of weights; "
            f"use AdamW, Muon, or of torch.optim one of {', '.join(ELEMENTWISE)}",
        ),
        (
            settings["compile"] is True,
            "trainer.compile is not known to be right with sharded weights; leave it out",
        ),
        (
            any(isinstance(one, WeightAveraging) for one in settings["callbacks"] or ()),
            "EMA copies whole weights; leave it out, or give --trainer.strategy ddp",
        ),
        (
            generates,
            "the validation generates, which takes each process another number of forward passes; "
            "give --trainer.limit_val_batches 0, or --trainer.strategy ddp",
        ),
        (
            any(isinstance(module, Reversible) for module in model.modules()),
            "Reversible calls the parts of its blocks; use Transformer with --trainer.activation_checkpointing true",
        ),
        (
            any(p.ndim == 0 for p in model.parameters()),
            "a weight without axes cannot be sharded; give --trainer.strategy ddp",
        ),
    ]
    for is_refused, why in refused:
        if is_refused:
            raise UsageError(f"trainer.strategy fsdp: {why}")
