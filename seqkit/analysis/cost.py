"""Parameters, FLOPs and memory of a model, measured on device meta: shapes without data, so GPT-3 takes no memory.

b batch · n tokens · f features · p axes · h heads · c channels of one head
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from seqkit.backbones.presets import PUBLISHED, Published
from seqkit.errors import suggest
from seqkit.generation.decode import select_examples
from seqkit.interfaces import Adjacency, Backbone, Cache, TokenBatch, TokenSpec
from seqkit.nn.embedder import Embedder
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.position.absolute import Learned


@dataclass(frozen=True, slots=True)
class Description:
    """Cost of one example of `context_length` tokens, in an encoder–decoder as many of the target; bytes are of fp32.

    has_source: True: an encoder–decoder. parameters: all; embedding: those of the embedding layer; active: those that
    one token uses (all but the experts that it is not routed to).
    flops: of the forward pass; a multiplication and an addition are two; attention counts all pairs of tokens, those
    that a causal mask excludes too; sums, norms and activations do not count, but where a module is made of them
    (`uncounted_flops`). activations: bytes saved for the backward pass without the loss, where attention
    runs in a fused kernel, which saves no scores. cache: bytes for generating `context_length` tokens; None: no cache.
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
        """Of the forward pass; training takes three times that (the backward pass has two products for each)."""
        return self.flops / self.tokens

    @property
    def weights_and_adam(self) -> int:
        """Bytes of weights, their gradients and the two moments of Adam."""
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
        wide = max(len(label) for label, _ in self.rows())
        return "\n".join([self.name, *(f"{label:{wide}}  {value}" for label, value in self.rows())])


def describe(preset: str, *, context_length: int | None = None) -> Description:
    """Cost of a preset with the tokens, positions and head that it was published with; nothing is allocated.

    context_length: in tokens; None: as published. Raises ValueError for an unknown preset, no tokens, or more than its
    table of positions has.
    """
    if preset not in PUBLISHED:
        raise ValueError(f"there is no preset called {preset!r}; {suggest(preset, PUBLISHED)}")
    published = PUBLISHED[preset]
    with torch.device("meta"):
        model = PresetModel(published)
    context_length = published.context_length if context_length is None else context_length
    position = model.embedder.position
    if isinstance(position, Learned) and context_length > position.sizes[0]:
        raise ValueError(
            f"{preset} has positions for {position.sizes[0]} tokens; context_length={context_length} is more"
        )
    return describe_model(model, context_length, name=preset)


class PresetModel(nn.Module):
    """A preset with the embedder and head that it was published with; source and target share the embedder."""

    def __init__(self, published: Published):
        super().__init__()
        self.backbone: Backbone = published.build()
        self.embedder = Embedder(published.spec, self.backbone.dim, position=published.position)
        self.source_embedder = self.embedder if self.backbone.is_encoder_decoder else None
        self.head = None if published.head is None else published.head(self.embedder)

    def forward(self, batch: TokenBatch, masked: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        embedded = self.embedder(batch, masked)
        if batch.source is not None:
            embedded = embedded.replace(source=self.embedder(batch.source))
        hidden = self.backbone(embedded, cache)
        return hidden if self.head is None else self.head(hidden, embedded.valid)


def describe_model(
    model: nn.Module, context_length: int, *, adjacency: Adjacency | None = None, name: str = "model"
) -> Description:
    """Cost of a `seqkit.model.Model` at `context_length` tokens, by a copy on device meta.

    adjacency: of the one example (of the source, in an encoder–decoder), for tokens that have one; None: a path, each
    token joined to the next both ways. Only what computes along edges counts them.
    Raises ValueError for no tokens, or an adjacency for tokens that have none.
    """
    if context_length < 1:
        raise ValueError(f"context_length={context_length} counts tokens; make it 1 or more")
    model = copy.deepcopy(model).to("meta")
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
    flops, activations = _forward_pass(model, batch)
    first = sum(p.numel() for p in {*embedder.parameters(), *(source.parameters() if source is not None else ())})
    total = sum(p.numel() for p in model.parameters())
    return Description(
        name,
        context_length,
        source is not None,
        total,
        first,
        total - sum(_inactive(module) for module in model.modules() if isinstance(module, MixtureOfExperts)),
        flops,
        activations,
        _cache_bytes(model, backbone, batch) if backbone.causal else None,
    )


def describe_recipe(config: Mapping[str, Any], *, context_length: int | None = None) -> Description:
    """Cost of the model of a complete configuration, its tokenizer fitted on its data; nothing is trained.

    context_length: in tokens; None: those of the longest example of the first batch, with its adjacency if it has one.
    Raises as `seqkit.runs.run.run`.
    """
    from seqkit.runs.prepare import untrained  # seconds to import, and no preset needs it

    model, data = untrained(config)
    batch, _ = next(iter(data.train_dataloader()))
    adjacency = None
    if batch.adjacency is not None and not model.ignores_adjacency and context_length is None:
        longest = select_examples(batch, batch.valid.sum(dim=1).argmax()[None])
        adjacency = longest.adjacency
    return describe_model(model, context_length or batch.valid.shape[1], adjacency=adjacency, name=config["recipe"])


def training_flops(model: nn.Module, batch: TokenBatch) -> int:
    """FLOPs of one training step of a `seqkit.model.Model` on a given batch, by a copy on device meta.

    batch: as the objective prepares it (`ModelInput.batch`). Its padded shape counts, and its edges.
    Three times the forward pass: the backward pass has two products for each of it (Kaplan et al. 2020, section 2.1).
    Loss and optimizer are left out, and so is what a model computes again to save memory; what counts is what
    `Description.flops` says.
    """
    flops, _ = _forward_pass(copy.deepcopy(model).to("meta"), batch.to("meta"))
    return 3 * flops


def _batch(spec: TokenSpec, context_length: int, adjacency: Adjacency | None = None) -> TokenBatch:
    """One example. adjacency: None: a path, where the spec has edges."""
    fields = [len(spec.vocab_sizes)] if spec.vocab_sizes else []
    content = (
        torch.zeros(1, context_length, *fields, dtype=torch.int64, device="meta")
        if spec.is_categorical
        else torch.zeros(1, context_length, spec.num_features, device="meta")
    )
    has_features = bool(fields) and spec.num_features > 0
    features = torch.zeros(1, context_length, spec.num_features, device="meta") if has_features else None
    positions = torch.zeros(1, context_length, spec.num_axes, device="meta")
    valid = torch.ones(1, context_length, dtype=torch.bool, device="meta")
    if spec.num_edge_types and adjacency is None:
        both_ways = 2 * (context_length - 1)
        adjacency = Adjacency(torch.zeros(2, both_ways, dtype=torch.int64), torch.ones(both_ways, dtype=torch.int64))
    on_meta = None if adjacency is None else adjacency.to("meta")
    return TokenBatch(content, positions, valid, on_meta, features=features)


def _inactive(experts: MixtureOfExperts) -> int:
    """Parameters that one token does not use."""
    each = sum(p.numel() for p in experts.experts[0].parameters())
    return (len(experts.experts) - experts.top_k) * each


def _forward_pass(model: nn.Module, batch: TokenBatch) -> tuple[int, int]:
    """FLOPs of a training step's forward pass, and bytes of all tensors that autograd saves.

    torch counts products of matrices and convolutions. A module whose work is neither (an elementwise recurrence, an
    FFT, a scatter-add) has a method `uncounted_flops(x) -> int`: the FLOPs of one call, x being its first input.
    A storage counts once, parameters and buffers not at all.
    """
    own = {storage_of(t) for t in (*model.parameters(), *model.buffers())}
    saved: dict[int, Tensor] = {}

    def save(t: Tensor) -> Tensor:
        if storage_of(t) not in own:
            saved.setdefault(storage_of(t), t)  # held, so that no other storage takes its address
        return t

    uncounted: list[int] = []

    def count(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _output: Any) -> None:
        uncounted.append(int(module.uncounted_flops(next(iter((*args, *kwargs.values()))))))

    hooks = torch.autograd.graph.saved_tensors_hooks(save, lambda t: t)
    with ExitStack() as stack:
        for module in model.modules():
            if hasattr(module, "uncounted_flops"):
                stack.callback(module.register_forward_hook(count, with_kwargs=True).remove)
        counter = stack.enter_context(FlopCounterMode(display=False))
        attention = stack.enter_context(FusedAttention())
        with hooks:
            model.train()(batch)
    num_bytes = sum(t.untyped_storage().nbytes() for t in saved.values())
    return int(counter.get_total_flops()) + attention.flops + sum(uncounted), num_bytes


def storage_of(t: Tensor) -> int:
    return t.untyped_storage()._cdata


class _Fused(torch.autograd.Function):
    """Saves what a fused attention kernel saves: queries, keys, values, output, a number per row (Dao et al. 2022)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None) -> Tensor:
        output = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, attn_mask, output, q.new_empty(q.shape[:3]))
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise NotImplementedError("this attention has shapes only")


class FusedAttention(TorchFunctionMode):
    """On device meta torch runs unfused attention, which saves the scores; this counts the fused kernel instead."""

    flops = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            q, k, v, *rest = args
            self.flops += 2 * 2 * q.numel() * k.shape[2]  # scores, then sums of values: n m c products a head each
            return _Fused.apply(q, k, v, rest[0] if rest else None)
        return func(*args, **(kwargs or {}))


def _cache_bytes(model: nn.Module, backbone: Backbone, batch: TokenBatch) -> int | None:
    """Bytes of a full cache; None: the backbone has none."""
    try:
        cache = backbone.init_cache(batch.valid.shape[1])
    except ValueError:
        return None
    with torch.no_grad():
        model.eval()(batch, cache=cache)
    held = {storage_of(t): t for t in tensors_in(cache)}
    return sum(t.untyped_storage().nbytes() for t in held.values())


def tensors_in(thing: Any) -> Iterator[Tensor]:
    """All tensors that an object holds, through lists, tuples, attributes and the fields of dataclasses."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for inner in thing:
            yield from tensors_in(inner)
    elif is_dataclass(thing):
        yield from tensors_in([getattr(thing, field.name) for field in fields(thing)])
    elif hasattr(thing, "__dict__"):
        yield from tensors_in(list(vars(thing).values()))


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
