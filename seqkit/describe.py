"""How large a model is and what it costs, measured on device meta: shapes without numbers, so GPT-3 takes no memory.

b batch · n tokens · f features · p axes · h heads · c channels of one head
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from seqkit.contract import Backbone, Cache, TokenBatch, TokenSpec
from seqkit.embed import Embedder
from seqkit.layers.experts import MixtureOfExperts
from seqkit.layers.position import Learned
from seqkit.presets import PUBLISHED, Published
from seqkit.registry import suggest


@dataclass(frozen=True, slots=True)
class Description:
    """What one example of `context` tokens costs (and as many written, if two is True). Bytes are of fp32.

    parameters: all; embedding: of them in tables and first layer; active: those that one token uses (all but the
    experts it is not sent to). flops: of the forward pass, a multiplication and an addition counted as two, all pairs
    of tokens counted in attention, also those that a causal mask hides. activations: bytes kept for the backward pass,
    attention by a kernel that keeps no scores; without the loss. cache: bytes for generating `context` tokens; None:
    it keeps none.
    """

    name: str
    context: int
    two: bool
    parameters: int
    embedding: int
    active: int
    flops: int
    activations: int
    cache: int | None

    @property
    def tokens(self) -> int:
        """How many tokens pass through it, read and written."""
        return self.context * (2 if self.two else 1)

    @property
    def flops_per_token(self) -> float:
        """Of the forward pass; of training three times that (the backward pass is two products for each)."""
        return self.flops / self.tokens

    @property
    def weights_and_adam(self) -> int:
        """Bytes of weights, their gradients and the two moments of Adam."""
        return 4 * 4 * self.parameters

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, line by line."""
        said = f"{self.context:,} tokens" + (" read and as many written" if self.two else "")
        rows = [
            ("described at", said),
            ("parameters", number(self.parameters)),
            ("  of them embedding", number(self.embedding)),
        ]
        if self.active != self.parameters:
            rows.append(("  of them used by a token", number(self.active)))
        rows += [
            ("FLOPs a token, forward", number(self.flops_per_token)),
            ("FLOPs a token, training", number(3 * self.flops_per_token)),
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


def describe(preset: str, *, context: int | None = None) -> Description:
    """A preset with the tokens, positions and head that it was published with; nothing is allocated.

    context: tokens; None: those it was published with. Raises ValueError for an unknown preset, no tokens, or more than
    its positions reach.
    """
    if preset not in PUBLISHED:
        raise ValueError(f"there is no preset called {preset!r}; {suggest(preset, PUBLISHED)}")
    published = PUBLISHED[preset]
    with torch.device("meta"):
        whole = Whole(published)
    context, position = published.context if context is None else context, whole.embedder.position
    if isinstance(position, Learned) and context > position.sizes[0]:
        raise ValueError(f"{preset} has positions for {position.sizes[0]} tokens; context={context} is more")
    return describe_model(whole, context, name=preset)


class Whole(nn.Module):
    """A preset with the embedder and the head that it was published with; two sequences share the embedder."""

    def __init__(self, published: Published):
        super().__init__()
        self.backbone: Backbone = published.build()
        self.embedder = Embedder(published.spec, self.backbone.dim, position=published.position)
        self.source_embedder = self.embedder if self.backbone.reads_memory else None
        self.head = None if published.head is None else published.head(self.embedder)

    def forward(self, batch: TokenBatch, hide: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        embedded = self.embedder(batch, hide)
        if batch.memory is not None:
            embedded = replace(embedded, memory=self.embedder(batch.memory))
        hidden = self.backbone(embedded, cache)
        return hidden if self.head is None else self.head(hidden, embedded.valid)


def describe_model(model: nn.Module, context: int, *, name: str = "model") -> Description:
    """A `seqkit.model.Model` at `context` tokens, by a copy on device meta; links are left out, which changes no count.

    Raises ValueError for no tokens.
    """
    if context < 1:
        raise ValueError(f"context={context} counts tokens; make it 1 or more")
    model = copy.deepcopy(model).to("meta")
    embedder, backbone, source = model.embedder, model.backbone, model.source_embedder
    assert isinstance(embedder, Embedder)
    assert isinstance(backbone, Backbone)
    batch = _batch(embedder.spec, context)
    if source is not None:
        assert isinstance(source, Embedder)
        batch = replace(batch, memory=_batch(source.spec, context))
    flops, activations = _forward_pass(model, batch)
    first = sum(p.numel() for p in {*embedder.parameters(), *(source.parameters() if source is not None else ())})
    total = sum(p.numel() for p in model.parameters())
    return Description(
        name,
        context,
        source is not None,
        total,
        first,
        total - sum(_idle(module) for module in model.modules() if isinstance(module, MixtureOfExperts)),
        flops,
        activations,
        _kept_for_generation(model, backbone, batch) if backbone.causal else None,
    )


def describe_recipe(config: Any, *, context: int | None = None) -> Description:
    """The model of a recipe (`configure.parse`d), its tokenizer fitted on its data; nothing is trained.

    context: tokens; None: those of the first batch's longest example. Raises as `seqkit.run.fit`.
    """
    from seqkit.run import untrained  # seconds to import, and no preset needs it

    model, data = untrained(config)
    batch, _ = next(iter(data.train_dataloader()))
    return describe_model(model, context or batch.valid.shape[1], name=config.recipe)


def _batch(spec: TokenSpec, context: int) -> TokenBatch:
    content = (
        torch.zeros(1, context, dtype=torch.int64, device="meta")
        if spec.ids
        else torch.zeros(1, context, spec.num_features, device="meta")
    )
    positions = torch.zeros(1, context, spec.num_axes, device="meta")
    return TokenBatch(content, positions, torch.ones(1, context, dtype=torch.bool, device="meta"))


def _idle(experts: MixtureOfExperts) -> int:
    """Parameters that one token does not use."""
    each = sum(p.numel() for p in experts.experts[0].parameters())
    return (len(experts.experts) - experts.num_active) * each


def _forward_pass(model: nn.Module, batch: TokenBatch) -> tuple[int, int]:
    """FLOPs of a training step's forward pass, and bytes of all that autograd keeps of it.

    A storage counts once, parameters and buffers not at all.
    """
    own = {_storage(t) for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, Tensor] = {}

    def keep(t: Tensor) -> Tensor:
        if _storage(t) not in own:
            kept.setdefault(_storage(t), t)  # held, so that no other storage takes its address
        return t

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t)
    with hooks, FlopCounterMode(display=False) as counter, _FusedAttention() as attention:
        model.train()(batch)
    num_bytes = sum(t.untyped_storage().nbytes() for t in kept.values())
    return int(counter.get_total_flops()) + attention.flops, num_bytes


def _storage(t: Tensor) -> int:
    return t.untyped_storage()._cdata


class _Fused(torch.autograd.Function):
    """What a fused kernel of attention keeps: queries, keys, values, output, a number per row (Dao et al. 2022)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, attend: Tensor | None) -> Tensor:
        read = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, attend, read, q.new_empty(q.shape[:3]))
        return read

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise NotImplementedError("this attention has shapes only")


class _FusedAttention(TorchFunctionMode):
    """On device meta torch takes its plain attention, which keeps the scores; here the fused one's shapes and FLOPs."""

    flops = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            q, k, v, *rest = args
            self.flops += 2 * 2 * q.numel() * k.shape[2]  # scores, then sums of values: n m c products a head each
            return _Fused.apply(q, k, v, rest[0] if rest else None)
        return func(*args, **(kwargs or {}))


def _kept_for_generation(model: nn.Module, backbone: Backbone, batch: TokenBatch) -> int | None:
    """Bytes of the cache when it is full; None: it cannot be kept."""
    try:
        cache = backbone.init_cache(batch.valid.shape[1])
    except ValueError:
        return None
    with torch.no_grad():
        model.eval()(batch, cache=cache)
    held = {_storage(t): t for t in _tensors(cache)}
    return sum(t.untyped_storage().nbytes() for t in held.values())


def _tensors(thing: Any) -> Iterator[Tensor]:
    """All tensors that an object holds, through lists, tuples, attributes and the fields of dataclasses."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for inner in thing:
            yield from _tensors(inner)
    elif is_dataclass(thing):
        yield from _tensors([getattr(thing, field.name) for field in fields(thing)])
    elif hasattr(thing, "__dict__"):
        yield from _tensors(list(vars(thing).values()))


def number(count: float) -> str:
    """A count in words: 175 B, 124.4 M."""
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
