"""Memory of one device in a training on several, by shapes alone, so that no such device is needed.

b batch · n tokens · v numbers that the head predicts for a token
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqkit.analysis.cost import FusedAttention, size, storage_of, tensors_in
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import TokenBatch
from seqkit.training.optim import OptimizerFactory
from seqkit.training.recompute import blocks_of, checked_blocks

STRATEGIES = ("ddp", "fsdp")
PRIMES = (2, 3, 5, 7, 11, 13)
"""Sizes of the axes of a parameter that stands for one of any size."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes on one of `num_devices` while it trains on a batch of its own.

    P bytes of weights, R of them outside of blocks, B those of the largest block, S of the optimizer's state, N devices.

    | | ddp | fsdp |
    |---|---|---|
    | weights | P | P / N |
    | gradients | P | P / N |
    | optimizer | S | S / N |
    | transfers, N > 1 | P (the buckets that gradients are summed in) | 2 R + 4 B (weights and gradients that are whole for a moment: of embedder, norm and head, of one block, and of the block before or after it) |

    activations: what autograd saves in the forward pass, and 3 b n v numbers of the loss (log-probabilities, their
    gradient, and that of the prediction). recomputed: the same where blocks are computed again: the inputs of all blocks, what is saved outside of
    them, what the largest block saves, and those of the loss; None where the model has no such blocks.
    `total` is the highest of three moments, each with weights, optimizer and transfers: the end of the forward pass
    (activations), the optimizer's step (gradients), and the backward pass between them, in which gradients come as
    activations go: `max(activations, gradients)`. It leaves out what a kernel takes for itself, and what an allocator
    keeps beside.
    """  # noqa: E501  (a table)

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
        """At the highest, without activation checkpointing."""
        return self.weights + self.optimizer + self.transfers + max(self.activations, self.gradients)

    @property
    def total_recomputed(self) -> int | None:
        """At the highest, with activation checkpointing."""
        if self.recomputed is None:
            return None
        return self.weights + self.optimizer + self.transfers + max(self.recomputed, self.gradients)

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
        wide = max(len(label) for label, _ in self.rows())
        return "\n".join(f"{label:{wide}}  {value}" for label, value in self.rows())


def device_memory(
    model: nn.Module,
    batch: TokenBatch,
    optimizer: OptimizerFactory,
    *,
    masked: Tensor | None = None,
    num_devices: int = 1,
    strategy: str = "ddp",
) -> DeviceMemory:
    """Memory of a training step of a `seqkit.model.Model`; the model and batch are copied to device meta.

    batch, masked: of one device, as the objective prepares them. The formulas are in `DeviceMemory`.
    Raises UsageError for fewer than one device, or an unknown strategy.
    """
    if num_devices < 1:
        raise UsageError(f"{num_devices} devices; give 1 or more")
    if strategy not in STRATEGIES:
        raise UsageError(f"the memory of strategy {strategy!r} is not known; give {' or '.join(STRATEGIES)}")
    model, batch = copy.deepcopy(model).to("meta"), batch.to("meta")
    weights = sum(p.nbytes for p in model.parameters())
    state = optimizer_bytes(model, optimizer)
    activations, recomputed = activation_bytes(model, batch, None if masked is None else masked.to("meta"))
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
        activations=activations,
        recomputed=recomputed,
    )


def recipe_memory(config: Mapping[str, Any], *, num_devices: int, strategy: str) -> DeviceMemory:
    """Memory a device for the recipe's model, optimizer and first batch. Raises as `seqkit.runs.run.run`."""
    from seqkit.config import build, build_model
    from seqkit.data.module import DataModule

    # the model alone is built without memory: the tokenizer has to encode a batch
    rest = build({name: value for name, value in config.items() if name != "model"})
    with torch.device("meta"):
        parts = build({"model": config["model"]})
    objective = parts.model["objective"]
    try:
        data = DataModule(**rest.data, tokenizer=rest.tokenizer, objective=objective, seed=config["seed"])
    except DataError:
        raise
    except ValueError as error:
        raise UsageError(f"data: {error}") from error
    data.setup()
    with torch.device("meta"):
        model = build_model(parts, rest.tokenizer.spec)
    if str(config["trainer"]["precision"]) == "bf16-true":
        model = model.to(torch.bfloat16)
    inputs = objective.prepare(*next(iter(data.train_dataloader())))
    return device_memory(
        model,
        inputs.batch,
        rest.optimizer,
        masked=inputs.masked,
        num_devices=num_devices,
        strategy=strategy,
    )


def optimizer_bytes(model: nn.Module, optimizer: OptimizerFactory) -> int:
    """Bytes of the optimizer's state, which is as large as weights are, or as their rows or columns.

    A step is made on a copy whose parameters are tiny, each axis of another size, which tells how the state's axes go
    with a parameter's. Numbers that do not grow with it, such as a count of steps, are left out.
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


def activation_bytes(model: nn.Module, batch: TokenBatch, masked: Tensor | None) -> tuple[int, int | None]:
    """Bytes alive at the end of a forward pass on device meta, and the same where blocks are computed again.

    Both with three tensors of the loss that are as large as the prediction. The second is None where no block can be.
    """
    own = {storage_of(t) for t in (*model.parameters(), *model.buffers())}
    saved: dict[int, tuple[int, nn.Module | None]] = {}  # storage: its bytes, and the block that saved it first
    inputs: dict[int, int] = {}
    held: list[Tensor] = []  # so that no other storage takes an address
    inside: list[nn.Module | None] = [None]

    def save(t: Tensor) -> Tensor:
        if storage_of(t) not in own:
            held.append(t)
            saved.setdefault(storage_of(t), (t.untyped_storage().nbytes(), inside[-1]))
        return t

    def enter(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inside.append(block)
        for t in tensors_in([*args, *kwargs.values()]):
            if storage_of(t) not in own:
                held.append(t)
                inputs[storage_of(t)] = t.untyped_storage().nbytes()

    def leave(*_: Any) -> None:
        inside.pop()

    try:
        blocks = checked_blocks(model)
    except UsageError:
        blocks = []
    handles = [block.register_forward_pre_hook(enter, with_kwargs=True) for block in blocks]
    handles += [block.register_forward_hook(leave) for block in blocks]
    try:
        with FusedAttention(), torch.autograd.graph.saved_tensors_hooks(save, lambda t: t):
            prediction = model.train()(batch, masked)
    finally:
        for handle in handles:
            handle.remove()
    loss = 3 * prediction.nbytes
    everything = sum(num_bytes for num_bytes, _ in saved.values()) + loss
    if not blocks:
        return everything, None
    kept = inputs | {storage: num_bytes for storage, (num_bytes, block) in saved.items() if block is None}
    in_block = {id(block): 0 for block in blocks}
    for storage, (num_bytes, block) in saved.items():
        if block is not None and storage not in kept:
            in_block[id(block)] += num_bytes
    return everything, sum(kept.values()) + max(in_block.values()) + loss
