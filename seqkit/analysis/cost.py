"""Parameters, FLOPs and memory of a model by shapes: it runs on device meta, without data, so GPT-3 takes no memory.

A model that looks at values (`.item()`, NumPy) does not run there, and is counted on the CPU.

b batch · n tokens · f features · p axes · h heads · c channels of a head · v numbers that the head predicts for a token
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from seqkit.analysis.forward_pass import bytes_of, counted, storage_of, tensors_in
from seqkit.analysis.units import number, size
from seqkit.backbones.presets import PUBLISHED, Published
from seqkit.errors import suggest
from seqkit.interfaces import (
    Adjacency,
    Backbone,
    Cache,
    LabeledBatch,
    Objective,
    TokenBatch,
    TokenSpec,
)
from seqkit.nn.embedder import Embedder, TokenEmbedder
from seqkit.nn.join_embedder import JoinEmbedder
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.position.absolute import Learned


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
        tokens = f"{self.context_length:,} tokens" + (
            " of the source and as many of the target" * self.has_source
        )
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
        rows = self.rows()
        width = max(len(label) for label, _ in rows)
        return "\n".join([self.name, *(f"{label:{width}}  {value}" for label, value in rows)])


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
    if context_length is None:
        context_length = published.context_length
    position = model.embedder.position
    if isinstance(position, Learned):
        num_positions = position.sizes[0] - position.first
    else:
        num_positions = context_length
    if context_length > num_positions:
        raise ValueError(
            f"{preset} has {num_positions} positions; context_length={context_length} is more"
        )
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

    def forward(
        self, batch: TokenBatch, masked: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        embedded = self.embedder(batch, masked)
        if batch.source is not None:
            embedded = embedded.replace(source=self.embedder(batch.source))
        hidden = self.backbone(embedded, cache)
        if self.head is None:
            return hidden
        return self.head(hidden, embedded)


def describe_model(model: nn.Module, context_length: int, *, name: str = "model") -> Description:
    """Cost of a `seqkit.model.Model` at `context_length` tokens, by a copy on device meta or, if need be, on the CPU.

    The tokens of a graph are a path, in which each is joined to the next both ways; only modules that compute along
    edges count them. Raises ValueError for no tokens.
    """
    if context_length < 1:
        raise ValueError(f"context_length={context_length} counts tokens; make it 1 or more")
    embedders = [
        each for each in (model.embedder, model.source_embedder) if isinstance(each, nn.Module)
    ]
    copied, batch, forward = counted(model, _example_batch(model, context_length))
    first = sum(p.numel() for p in {p for each in embedders for p in each.parameters()})
    total = sum(p.numel() for p in model.parameters())
    unused = 0  # experts that a token is not routed to
    for experts in (module for module in model.modules() if isinstance(module, MixtureOfExperts)):
        unused += (len(experts.experts) - experts.top_k) * sum(
            p.numel() for p in experts.experts[0].parameters()
        )
    return Description(
        name,
        context_length,
        len(embedders) == 2,
        total,
        first,
        total - unused,
        forward.flops,
        forward.activations,
        _cache_bytes(copied, batch) if model.causal else None,
    )


def _example_batch(model: nn.Module, context_length: int) -> TokenBatch:
    """One example of so many random tokens for a `seqkit.model.Model`, and as many of its source if it has one."""
    embedder = model.embedder
    source = model.source_embedder
    assert isinstance(embedder, TokenEmbedder)
    assert source is None or isinstance(source, TokenEmbedder)
    encoders = embedder.encoders.items() if isinstance(embedder, JoinEmbedder) else ()
    graphs = [name for name, encoder in encoders if getattr(encoder, "num_edge_types", 0)]
    batch = _batch(embedder.spec if source is None else source.spec, context_length, graphs)
    if source is None:
        return batch
    return _batch(embedder.spec, context_length).replace(source=batch)


def describe_recipe(config: Mapping[str, Any], *, context_length: int | None = None) -> Description:
    """Cost of the model of a complete configuration, its tokenizer fitted on its data; nothing is trained.

    context_length: number of tokens; None: length of the longest example of the first batch. Raises as
    `seqkit.runs.run.run`.
    """
    from seqkit.runs.prepare import untrained  # seconds to import, and no preset needs it

    model, data = untrained(config)
    batch, _ = next(iter(data.train_dataloader()))
    return describe_model(model, context_length or batch.valid.shape[1], name=config["recipe"])


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
        self.head = head
        self.spec = model.spec
        # in a list: it is no module of this one
        self._model = [model]
        self.flops = 0

    def forward(self, batch: TokenBatch, masked: Tensor | None = None) -> Any:
        with torch.no_grad():
            _, _, one = counted(self._model[0], batch, masked)
        self.flops += one.flops
        return tree_map(partial(torch.zeros_like, device=batch.valid.device), one.prediction)


def _batch(spec: TokenSpec, context_length: int, graphs: Iterable[str] = ()) -> TokenBatch:
    """One example. graphs: parts of joined tokens that have a path, whatever the spec says."""
    tokens = spec.without_edges().random(context_length, torch.Generator().manual_seed(0))
    if tokens.parts:
        graphs = {*graphs, *(name for name, part in spec.parts if part.num_edge_types)}
        runs = [
            (name, replace(x, adjacency=_path(len(x))) if name in graphs else x)
            for name, x in tokens.parts
        ]
        return TokenBatch.collate([spec.join(runs)])
    return TokenBatch.collate([tokens]).replace(
        adjacency=_path(context_length) if spec.num_edge_types else None
    )


def _path(n: int) -> Adjacency:
    """Edges from each of n tokens to the next, and back."""
    node = torch.arange(n)
    path = torch.stack([node[:-1], node[1:]])
    both_ways = torch.cat([path, path.flip(0)], dim=1)
    return Adjacency(both_ways, torch.ones_like(both_ways[0]))


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
    held = {storage_of(t): t for t in tensors_in(cache)}
    return bytes_of(held.values())
