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
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from seqkit.backbones.reversible import Reversible
from seqkit.errors import UsageError
from seqkit.training.checkpoint_io import VerifiedCheckpointIO, read_sharded
from seqkit.training.optim import AdamW, Muon, OptimizerFactory, TorchOptimizer
from seqkit.training.recompute import blocks_of

ELEMENTWISE = ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "SGD")
"""Optimizers of torch whose step on a part of a weight is that part of the step on the weight.

Of the others, Muon multiplies whole matrices, which `DTensor` gathers for it; it rounds them to bfloat16, so its steps
are equal to that precision. Rprop and Adafactor of torch 2.11 raise on a `DTensor`.
"""


class ShardedStrategy(ModelParallelStrategy):
    """`trainer.strategy fsdp`: all processes are one group over which weights are sharded; none is tensor parallel.

    A resume point is a folder, to which each process writes its part. Weights alone, such as the best ones, are
    gathered to one file. `checkpoint_io` is a VerifiedCheckpointIO.
    """

    def __init__(self) -> None:
        super().__init__(tensor_parallel_size=1)

    def setup_environment(self) -> None:
        """Shard over all processes; Lightning would by itself over hosts."""
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    @property
    def mesh(self) -> DeviceMesh:
        """The processes over which weights are sharded."""
        return self.device_mesh["data_parallel"]

    @property
    def lightning_restore_optimizer(self) -> bool:
        """True: `load_checkpoint` returns the optimizer's state, sharded as the optimizer wants it."""
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The weights, sharded."""
        assert self.lightning_module is not None
        return self.lightning_module.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The optimizer's state, sharded."""
        return optimizer.state_dict()

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """As for a module that is not sharded: parts are copied to parts."""
        Strategy.load_model_state_dict(self, checkpoint, strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """As for an optimizer of weights that are not sharded."""
        Strategy.load_optimizer_state_dict(self, checkpoint)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a resume point as a folder, and weights alone as one file; all processes take part."""
        if storage_options is not None:
            raise TypeError("storage_options are of other strategies; this one takes none")
        path, io = Path(self.broadcast(str(filepath))), cast(VerifiedCheckpointIO, self.checkpoint_io)
        if "optimizer_states" in checkpoint:
            io.save_sharded(checkpoint, path)
            return
        checkpoint["state_dict"] = gathered(checkpoint["state_dict"], keep=self.is_global_zero)
        if self.is_global_zero:
            io.save_checkpoint(checkpoint, path)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """What `save_checkpoint` wrote as a resume point, each process its part. It was verified when it was chosen."""
        return read_sharded(Path(self.broadcast(str(checkpoint_path))), self.mesh)


def shard(model: nn.Module, mesh: DeviceMesh) -> None:
    """Shard each block of the backbone, then what is left: embedder, norm and head. It changes the model in place."""
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def is_sharded(model: nn.Module) -> bool:
    """Whether `shard` was applied."""
    return isinstance(model, FSDPModule)


def without_weights(model: nn.Module) -> nn.Module:
    """A copy whose parameters have no elements yet; weights that are tied in the model are tied in it."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(torch.empty(0, dtype=p.dtype), requires_grad=p.requires_grad) for p in model.parameters()
    }
    return copy.deepcopy(model, memo)


def gather_weights(sharded: nn.Module, whole: nn.Module, *, keep: bool) -> None:
    """Fill a copy that `without_weights` made, on the CPU. All processes take part; keep: this one gets the weights."""
    weights = gathered(dict(sharded.named_parameters()), keep=keep)
    if not keep:
        return
    for name, parameter in whole.named_parameters():
        parameter.data = weights[name]
    buffers = dict(sharded.named_buffers())
    for name, buffer in whole.named_buffers():
        buffer.data = buffers[name].detach().cpu()


def gathered(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Whole tensors on the CPU where `keep`, else nothing; gathered one after the other, so one at a time is whole."""
    whole: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            whole[name] = full.detach().cpu()
    return whole


def local_part(tensor: Tensor) -> Tensor:
    """The part of a weight that this process holds; the weight itself where it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def check_sharding(
    model: nn.Module, optimizer: OptimizerFactory | None, settings: Mapping[str, Any], *, generates: bool
) -> None:
    """Raise UsageError, with what to use instead, for what is not known to be right with sharded weights.

    generates: validation generates, with a number of forward passes that differs from process to process.
    """
    name, is_known = type(optimizer).__name__, isinstance(optimizer, AdamW | Muon | None)
    if isinstance(optimizer, TorchOptimizer):
        name = optimizer.cls.__name__
        is_known = any(optimizer.cls is getattr(torch.optim, one) for one in ELEMENTWISE)
    refused = {
        f"the optimizer {name} is not known to work on parts of weights; "
        f"use AdamW, Muon, or of torch.optim one of {', '.join(ELEMENTWISE)}": not is_known,
        "trainer.compile is not known to be right with sharded weights; leave it out": bool(settings["compile"]),
        "EMA copies whole weights; leave it out, or give --trainer.strategy ddp": any(
            isinstance(one, WeightAveraging) for one in settings["callbacks"] or ()
        ),
        "the validation generates, which takes each process another number of forward passes; "
        "give --trainer.limit_val_batches 0, or --trainer.strategy ddp": generates,
        "Reversible calls the parts of its blocks; use Transformer with --trainer.activation_checkpointing true": any(
            isinstance(module, Reversible) for module in model.modules()
        ),
        "a weight without axes cannot be sharded; give --trainer.strategy ddp": any(
            p.ndim == 0 for p in model.parameters()
        ),
    }
    for why, is_refused in refused.items():
        if is_refused:
            raise UsageError(f"trainer.strategy fsdp: {why}")
