"""Parameters, FLOPs and memory of a model by shapes: it runs on device meta, without data, so GPT-3 takes no memory.

A model that looks at values (`.item()`, NumPy) does not run there, and is counted on the CPU.

b batch · n tokens · f features · p axes · h heads · c channels of a head · v numbers that the head predicts for a token
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from seqkit.backbones.presets import PUBLISHED, Published
from seqkit.errors import UsageError, one_line, suggest
from seqkit.interfaces import Adjacency, Backbone, Cache, LabeledBatch, Objective, TokenBatch, TokenSpec
from seqkit.model import first_call
from seqkit.nn.embedder import Embedder
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.position.absolute import Learned
from seqkit.training.optim import OptimizerFactory
from seqkit.training.recompute import blocks_of, checked_blocks

STRATEGIES = ("ddp", "fsdp")
"""Strategies of training on several devices whose memory is known."""

PRIMES = (2, 3, 5, 7, 11, 13)
"""Sizes of the axes of a parameter that stands for one of any size."""

# ── one example ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Description:
    """Cost of one example of `context_length` tokens, in an encoder–decoder with as many of the target; bytes in fp32.

    name: name of the preset or recipe. has_source: whether the model is an encoder–decoder. parameters: number of
    parameters, of which `embedding` are in the embedding layer, and `active` are used by one token (without the experts
    that it is not routed to).
    flops: FLOPs of the forward pass. A multiplication and an addition are two; attention counts all pairs of tokens,
    also those that a causal mask excludes; sums, norms and activations do not count, except in modules that are made of
    them (`uncounted_flops`). activations: bytes saved for the backward pass, without the loss, if attention runs in a
    fused kernel, which saves no scores. cache: bytes for generating `context_length` tokens; None: there is no cache.
    """

    name: str
    context_length: int
    has_source: bool
    parameters: int
    embedding: int
    active: int
    flops: int
    activations: int
    cache: int | None

    @property
    def tokens(self) -> int:
        """Number of tokens, of source and target together."""
        return self.context_length * (2 if self.has_source else 1)

    @property
    def flops_per_token(self) -> float:
        """FLOPs of the forward pass per token; training takes three times that, as a backward pass has two products."""
        return self.flops / self.tokens

    @property
    def weights_and_adam(self) -> int:
        """Bytes of weights, gradients and the two moments of Adam."""
        return 4 * 4 * self.parameters

    def rows(self) -> list[tuple[str, str]]:
        """Label and value, line by line."""
        tokens = f"{self.context_length:,} tokens" + (" of the source and as many of the target" * self.has_source)
        rows = [
            ("context length", tokens),
            ("parameters", number(self.parameters)),
            ("  of which embedding", number(self.embedding)),
        ]
        if self.active != self.parameters:
            rows.append(("  of which active per token", number(self.active)))
        rows += [
            ("FLOPs per token, forward", number(self.flops_per_token)),
            ("FLOPs per token, training", number(3 * self.flops_per_token)),
            ("weights, fp32", size(4 * self.parameters)),
            ("weights, bf16", size(2 * self.parameters)),
            ("weights, gradients, AdamW, fp32", size(self.weights_and_adam)),
            ("activations of one example, training, fp32", size(self.activations)),
        ]
        if self.cache is not None:
            rows.append(("cache of one example, generating, fp32", size(self.cache)))
        return rows

    def __str__(self) -> str:
        return f"{self.name}\n{_aligned(self.rows())}"


def describe(preset: str, *, context_length: int | None = None) -> Description:
    """Cost of a preset with the tokens, positions and head that it was published with; nothing is allocated.

    context_length: number of tokens; None: as published. Raises ValueError for an unknown preset, no tokens, or more
    tokens than its table of positions has.
    """
    if preset not in PUBLISHED:
        raise ValueError(f"there is no preset called {preset!r}; {suggest(preset, PUBLISHED)}")
    published = PUBLISHED[preset]
    with torch.device("meta"):
        model = PresetModel(published)
    context_length = published.context_length if context_length is None else context_length
    position = model.embedder.position
    if isinstance(position, Learned) and context_length > position.sizes[0]:
        raise ValueError(f"{preset} has {position.sizes[0]} positions; context_length={context_length} is more")
    return describe_model(model, context_length, name=preset)


class PresetModel(nn.Module):
    """A preset with the embedder and head that it was published with; source and target share the embedder."""

    def __init__(self, published: Published):
        super().__init__()
        self.backbone: Backbone = published.build()
        self.causal = self.backbone.causal
        self.embedder = Embedder(published.spec, self.backbone.dim, position=published.position)
        self.source_embedder = self.embedder if self.backbone.is_encoder_decoder else None
        self.head = None if published.head is None else published.head(self.embedder)

    def forward(self, batch: TokenBatch, masked: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        embedded = self.embedder(batch, masked)
        if batch.source is not None:
            embedded = embedded.replace(source=self.embedder(batch.source))
        hidden = self.backbone(embedded, cache)
        return hidden if self.head is None else self.head(hidden, embedded)


def describe_model(
    model: nn.Module, context_length: int, *, adjacency: Adjacency | None = None, name: str = "model"
) -> Description:
    """Cost of a `seqkit.model.Model` at `context_length` tokens, by a copy on device meta or, if need be, on the CPU.

    adjacency: adjacency of the example (in an encoder–decoder, of the source); None: a path, in which each token is
    joined to the next both ways. Only modules that compute along edges count them.
    Raises ValueError for no tokens, or an adjacency for tokens that have none.
    """
    if context_length < 1:
        raise ValueError(f"context_length={context_length} counts tokens; make it 1 or more")
    embedder, backbone, source = model.embedder, model.backbone, model.source_embedder
    assert isinstance(embedder, Embedder)
    assert isinstance(backbone, Backbone)
    assert source is None or isinstance(source, Embedder)
    first_spec = embedder.spec if source is None else source.spec
    if adjacency is not None and not first_spec.num_edge_types:
        raise ValueError(f"these tokens have no adjacency, but one of {len(adjacency)} edges was given; leave it out")
    batch = _batch(first_spec, context_length, adjacency)
    if source is not None:
        batch = _batch(embedder.spec, context_length).replace(source=batch)
    copied, batch, forward = _counted(model, batch)
    first = sum(p.numel() for p in {*embedder.parameters(), *(source.parameters() if source is not None else ())})
    total = sum(p.numel() for p in model.parameters())
    return Description(
        name,
        context_length,
        source is not None,
        total,
        first,
        total - sum(_inactive(module) for module in model.modules() if isinstance(module, MixtureOfExperts)),
        forward.flops,
        forward.activations,
        _cache_bytes(copied, batch) if model.causal else None,
    )


def describe_recipe(config: Mapping[str, Any], *, context_length: int | None = None) -> Description:
    """Cost of the model of a complete configuration, its tokenizer fitted on its data; nothing is trained.

    context_length: number of tokens; None: length of the longest example of the first batch, with its adjacency.
    Raises as `seqkit.runs.run.run`.
    """
    from seqkit.runs.prepare import untrained  # seconds to import, and no preset needs it

    model, data = untrained(config)
    batch, _ = next(iter(data.train_dataloader()))
    adjacency = None
    if batch.adjacency is not None and not model.ignores_adjacency and context_length is None:
        longest = batch.select(batch.valid.sum(dim=1).argmax()[None])
        adjacency = longest.adjacency
    return describe_model(model, context_length or batch.valid.shape[1], adjacency=adjacency, name=config["recipe"])


def training_flops(model: nn.Module, objective: Objective, batch: LabeledBatch) -> int:
    """FLOPs of one training step of a `seqkit.model.Model` on a given batch, by a copy of the model.

    All passes of the step count. The batch's padded shape counts, and its edges.
    A step takes three times the forward pass, as `Description.flops` counts it: the backward pass has two products for
    each (Kaplan et al. 2020, section 2.1). Loss, optimizer and activation checkpointing are left out.
    """
    counting = _Counting(model)
    objective.step(counting, batch, training=True)
    return 3 * counting.flops


class _Counting(nn.Module):
    """Stands in for a model in a step: it counts the FLOPs of each pass of a copy, and predicts zeros.

    head: the model's own, for a step that uses its parameters; zeros where those are on device meta.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        head = cast(nn.Module, model.head)
        if any(value.is_meta for value in head.state_dict().values()):
            head = copy.deepcopy(head).to_empty(device="cpu")
            for value in head.state_dict().values():
                value.zero_()
        self.head, self.spec = head, model.spec
        self._model, self.flops = [model], 0  # in a list: it is no module of this one

    def forward(self, batch: TokenBatch, masked: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            _, _, counted = _counted(self._model[0], batch, masked)
        self.flops += counted.flops
        return torch.zeros_like(counted.prediction, device=batch.valid.device)


def _batch(spec: TokenSpec, context_length: int, adjacency: Adjacency | None = None) -> TokenBatch:
    """One example. adjacency: edges of the example; None: a path, if the spec has edges."""
    if spec.num_edge_types and adjacency is None:
        node = torch.arange(context_length)
        path = torch.stack([node[:-1], node[1:]])
        both_ways = torch.cat([path, path.flip(0)], dim=1)
        adjacency = Adjacency(both_ways, torch.ones_like(both_ways[0]))
    tokens = replace(spec, num_edge_types=0).random(context_length, torch.Generator().manual_seed(0))
    return TokenBatch.collate([tokens]).replace(adjacency=adjacency)


def _inactive(experts: MixtureOfExperts) -> int:
    """Number of parameters that one token does not use."""
    each = sum(p.numel() for p in experts.experts[0].parameters())
    return (len(experts.experts) - experts.top_k) * each


@dataclass(frozen=True, slots=True)
class _ForwardPass:
    """Figures of a training step's forward pass; bytes are of the storages that autograd saves, each once.

    recomputed: bytes if blocks are computed again: the inputs of all blocks, what is saved outside of them, and what
    the largest block saves; None: the model has no blocks that can be. prediction: on the device of the pass.
    """

    flops: int
    activations: int
    recomputed: int | None
    prediction: Tensor


def _counted(
    model: nn.Module, batch: TokenBatch, masked: Tensor | None = None
) -> tuple[nn.Module, TokenBatch, _ForwardPass]:
    """Copies of model and batch on the device where the model runs, and its forward pass there.

    That is device meta or, for a model that looks at values, which device meta has none of, the CPU.
    """

    def on(device: str) -> tuple[nn.Module, TokenBatch, _ForwardPass]:
        copied, given = copy.deepcopy(model).to(device), batch.to(device)
        return copied, given, _forward_pass(copied, given, None if masked is None else masked.to(device))

    try:
        return on("meta")
    except Exception:  # whatever a user's own component raises where there are no values
        if any(p.is_meta for p in model.parameters()):
            raise
        with torch.random.fork_rng(devices=[]):
            return on("cpu")


def _forward_pass(model: nn.Module, batch: TokenBatch, masked: Tensor | None = None) -> _ForwardPass:
    """A forward pass in training mode.

    torch counts products of matrices and convolutions. A module whose work is neither (an elementwise recurrence, an
    FFT, a scatter-add) has a method `uncounted_flops(x) -> int`: the FLOPs of one call, x being its first input.
    Parameters and buffers are not activations.
    """
    own = {_storage(t) for t in (*model.parameters(), *model.buffers())}
    saved: dict[int, tuple[Tensor, nn.Module | None]] = {}  # by storage: a tensor, which keeps its address taken, ...
    inputs: dict[int, Tensor] = {}
    inside: list[nn.Module | None] = [None]  # ... and the block that saved it first
    uncounted: list[int] = []

    def save(t: Tensor) -> Tensor:
        if _storage(t) not in own:
            saved.setdefault(_storage(t), (t, inside[-1]))
        return t

    def enter(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inside.append(block)
        inputs.update({_storage(t): t for t in _tensors_in([*args, *kwargs.values()]) if _storage(t) not in own})

    def leave(*_: Any) -> None:
        inside.pop()

    def count(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _output: Any) -> None:
        uncounted.append(int(module.uncounted_flops(next(iter((*args, *kwargs.values()))))))

    try:
        blocks = checked_blocks(model)
    except UsageError:
        blocks = []
    with ExitStack() as stack:
        for block in blocks:
            stack.callback(block.register_forward_pre_hook(enter, with_kwargs=True).remove)
            stack.callback(block.register_forward_hook(leave).remove)
        for module in model.modules():
            if hasattr(module, "uncounted_flops"):
                stack.callback(module.register_forward_hook(count, with_kwargs=True).remove)
        counter = stack.enter_context(FlopCounterMode(display=False))
        attention = stack.enter_context(_FusedAttention(counter))
        with torch.autograd.graph.saved_tensors_hooks(save, lambda t: t):
            prediction = model.train()(batch, masked)
    in_block = {id(block): 0 for block in blocks}
    for storage, (t, owner) in saved.items():
        if owner is None:
            inputs[storage] = t
        elif storage not in inputs:
            in_block[id(owner)] += t.untyped_storage().nbytes()
    return _ForwardPass(
        int(counter.get_total_flops()) + attention.flops + sum(uncounted),
        _bytes(t for t, _ in saved.values()),
        _bytes(inputs.values()) + max(in_block.values()) if blocks else None,
        prediction.detach(),
    )


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages of tensors, no two of which share one."""
    return sum(t.untyped_storage().nbytes() for t in tensors)


def _storage(t: Tensor) -> int:
    return t.untyped_storage()._cdata


class _Fused(torch.autograd.Function):
    """Attention that saves what a fused kernel saves: queries, keys, values, output, a number per row (Dao 2022)."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, attend: Callable[[], Tensor]
    ) -> Tensor:
        if not q.is_meta:
            output = attend()
        elif q.shape[-1] == v.shape[-1]:
            output = torch.empty_like(q)  # in the layout of the queries, as the kernel gives it
        else:
            output = q.new_empty(*q.shape[:-1], v.shape[-1])
        ctx.save_for_backward(q, k, v, attn_mask, output, q.new_empty(q.shape[:3]))
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise NotImplementedError("this attention is for counting alone")


class _FusedAttention(TorchFunctionMode):
    """Replaces torch's attention, which on some devices is unfused and saves the scores, by a fused one; counts
    FLOPs.

    counter: what counts all else; what it counts inside attention is taken off.
    """

    def __init__(self, counter: FlopCounterMode):
        super().__init__()
        self.counter, self.flops = counter, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            q, k, v, *rest = args
            before = int(self.counter.get_total_flops())
            output = _Fused.apply(q, k, v, rest[0] if rest else None, lambda: func(*args, **kwargs))
            # scores, then sums of values: n m products a head for each channel of a key, and of a value
            own = 2 * k.shape[2] * (q.numel() + output.numel())
            self.flops += own - (int(self.counter.get_total_flops()) - before)
            return output
        return func(*args, **kwargs)


def _cache_bytes(model: nn.Module, batch: TokenBatch) -> int | None:
    """Bytes of a full cache; None if the backbone has none."""
    backbone = model.backbone
    assert isinstance(backbone, Backbone)
    try:
        cache = backbone.init_cache(batch.valid.shape[1])
    except ValueError:
        return None
    with torch.no_grad():
        model.eval()(batch, cache=cache)
    held = {_storage(t): t for t in _tensors_in(cache)}
    return _bytes(held.values())


def _tensors_in(thing: Any) -> Iterator[Tensor]:
    """All tensors in an object: in lists, tuples, attributes and fields of dataclasses, at any depth."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for inner in thing:
            yield from _tensors_in(inner)
    elif is_dataclass(thing):
        yield from _tensors_in([getattr(thing, field.name) for field in fields(thing)])
    elif hasattr(thing, "__dict__"):
        yield from _tensors_in(list(vars(thing).values()))


# ── one device of several ────────────────────────────────────────────────────────────────────────────────────────────


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
        return _aligned(self.rows())


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
        _, _, forward = _counted(model, batch, masked)
    except (RuntimeError, TypeError) as error:
        raise UsageError(
            f"the memory of a device is planned without weights (device meta), where {type(model.backbone).__name__} "
            f"does not run ({one_line(error)[:80]}): it looks at values; leave --devices and --strategy out"
        ) from error
    loss = 3 * forward.prediction.nbytes
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
    batch, masked = first_call(objective, model, next(iter(data.train_dataloader())))
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


# ── numbers as text ──────────────────────────────────────────────────────────────────────────────────────────────────


def _aligned(rows: list[tuple[str, str]]) -> str:
    """Labels and values in two columns."""
    wide = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:{wide}}  {value}" for label, value in rows)


def number(count: float) -> str:
    """A count with its unit: 175 B, 124.4 M."""
    for unit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:,.1f} {letter}"
    return f"{count:,.0f}"


def size(num_bytes: float) -> str:
    """Bytes in decimal units: 698.3 GB."""
    for unit, letters in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:,.1f} {letters}"
    return f"{num_bytes:,.0f} B"
