"""Memory of one device of several while it trains, by shapes."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from seqkit.analysis.forward_pass import counted
from seqkit.analysis.units import aligned, size
from seqkit.errors import UsageError, one_line
from seqkit.interfaces import TokenBatch
from seqkit.training.optim import OptimizerFactory
from seqkit.training.recompute import blocks_of

STRATEGIES = ("ddp", "fsdp")
"""Strategies of training on several devices whose memory is known."""

PRIMES = (2, 3, 5, 7, 11, 13)
"""Sizes of the axes of a parameter that stands for one of any size."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes on one of `num_devices` while it trains on a batch of its own.

    weights, gradients, optimizer: P, P and S bytes with ddp; with fsdp, each device has an N-th of them.
    transfers, if N > 1: P bytes with ddp (the buckets that gradients are summed in); 2 R + 4 B with fsdp (weights and
    gradients that are whole for a moment: R bytes of embedder, norm and head, B of one block, and of its neighbour).
    activations: bytes that autograd saves in the forward pass, and 3 b n v numbers of the loss (log-probabilities,
    their gradient, and the prediction's). recomputed: the same with activation checkpointing; None: the model has no
    blocks that can be computed again.
    `total` is the peak: weights, optimizer, transfers, and the larger of activations (at the end of the forward pass)
    and gradients (at the optimizer's step). Memory that kernels use inside or an allocator keeps is left out.
    """

    num_devices: int
    strategy: str
    weights: int
    gradients: int
    optimizer: int
    transfers: int
    activations: int
    recomputed: int | None

    @property
    def total(self) -> int:
        """Peak without activation checkpointing."""
        return self._peak(self.activations)

    @property
    def total_recomputed(self) -> int | None:
        """Peak with activation checkpointing."""
        return None if self.recomputed is None else self._peak(self.recomputed)

    def _peak(self, activations: int) -> int:
        return self.weights + self.optimizer + self.transfers + max(activations, self.gradients)

    def rows(self) -> list[tuple[str, str]]:
        """Label and value, line by line."""
        rows = [
            ("devices, strategy", f"{self.num_devices:,}, {self.strategy}"),
            ("a device: weights", size(self.weights)),
            ("a device: gradients", size(self.gradients)),
            ("a device: optimizer state", size(self.optimizer)),
            ("a device: transfers", size(self.transfers)),
            ("a device: activations of its batch", size(self.activations)),
        ]
        if self.recomputed is not None:
            rows.append(("  with activation checkpointing", size(self.recomputed)))
        rows.append(("a device: at the highest", size(self.total)))
        if self.total_recomputed is not None:
            rows.append(("  with activation checkpointing", size(self.total_recomputed)))
        return rows

    def __str__(self) -> str:
        return aligned(self.rows())


def device_memory(
    model: nn.Module,
    batch: TokenBatch,
    optimizer: OptimizerFactory,
    *,
    masked: Tensor | None = None,
    num_devices: int = 1,
    strategy: str = "ddp",
) -> DeviceMemory:
    """Memory of a training step of a `seqkit.model.Model`, by copies of the model and batch.

    batch, masked: input of one device, as the objective prepares it. The formulas are in `DeviceMemory`.
    Raises UsageError for fewer than one device, an unknown strategy, or a model on device meta that looks at values.
    """
    if num_devices < 1:
        raise UsageError(f"{num_devices} devices; give 1 or more")
    if strategy not in STRATEGIES:
        raise UsageError(f"the memory of strategy {strategy!r} is not known; give {' or '.join(STRATEGIES)}")
    weights = sum(p.nbytes for p in model.parameters())
    state = optimizer_bytes(model, optimizer)
    try:
        _, _, forward = counted(model, batch, masked)
    except (RuntimeError, TypeError) as error:
        raise UsageError(
            f"the memory of a device is planned without weights (device meta), where {type(model.backbone).__name__} "
            f"does not run ({one_line(error)[:80]}): it looks at values; leave --devices and --strategy out"
        ) from error
    loss = 3 * sum(x.nbytes for x in tree_leaves(forward.prediction))
    shares, transfers = num_devices if strategy == "fsdp" else 1, 0
    if num_devices > 1:
        by_block = [sum(p.nbytes for p in block.parameters()) for block in blocks_of(model)]
        outside = weights - sum(by_block)
        transfers = 2 * outside + 4 * max(by_block, default=0) if strategy == "fsdp" else weights
    return DeviceMemory(
        num_devices=num_devices,
        strategy=strategy,
        weights=math.ceil(weights / shares),
        gradients=math.ceil(weights / shares),
        optimizer=math.ceil(state / shares),
        transfers=transfers,
        activations=forward.activations + loss,
        recomputed=None if forward.recomputed is None else forward.recomputed + loss,
    )


def recipe_memory(config: Mapping[str, Any], *, num_devices: int, strategy: str) -> DeviceMemory:
    """Memory of a device for the recipe's model, optimizer and first batch. Raises as `seqkit.runs.run.run`."""
    from seqkit.config import build, build_model
    from seqkit.runs.prepare import data_module

    # the model alone is built without memory: the tokenizer has to encode a batch
    without_model = {name: value for name, value in config.items() if name != "model"}
    rest = build(without_model)
    with torch.device("meta"):
        parts = build({"model": config["model"]})
    objective = parts.model["objective"]
    data = data_module(without_model, rest.tokenizer, objective)
    with torch.device("meta"):
        model = build_model(parts, rest.tokenizer.spec)
    if str(config["trainer"]["precision"]) == "bf16-true":
        model = model.to(torch.bfloat16)
    batch, masked = objective.first_call(model, next(iter(data.train_dataloader())))
    return device_memory(model, batch, rest.optimizer, masked=masked, num_devices=num_devices, strategy=strategy)


def optimizer_bytes(model: nn.Module, optimizer: OptimizerFactory) -> int:
    """Bytes of the optimizer's state, whose tensors are as large as the weights, or as their rows or columns.

    A step on a copy with tiny parameters, whose axes have distinct prime sizes, shows which axes of the state grow with
    the parameter's. Numbers that do not grow, such as a count of steps, are left out.
    """
    tiny = {id(p): nn.Parameter(torch.ones(PRIMES[: p.ndim], dtype=p.dtype)) for p in model.parameters()}
    tiny_of = {id(tiny[id(p)]): p for p in model.parameters()}
    memo: dict[int, Any] = dict(tiny)
    small_model = copy.deepcopy(model, memo)
    built = optimizer.build(small_model)
    for parameter in tiny.values():
        parameter.grad = torch.ones_like(parameter)
    built.step()
    total = 0
    for one in getattr(built, "optimizers", [built]):
        for parameter, state in one.state.items():
            shape = tiny_of[id(parameter)].shape
            for value in state.values():
                if isinstance(value, Tensor) and value.ndim == parameter.ndim and value.numel() > 1:
                    axes = zip(value.shape, parameter.shape, shape)
                    total += value.element_size() * math.prod(real if s == p else s for s, p, real in axes)
    return total
