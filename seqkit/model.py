"""Embedder, backbone and head as one module, checked when it is built.

b batch · n tokens
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from torch import Tensor, nn

from seqkit.contract import Backbone, Cache, Objective, TokenBatch, TokenSpec
from seqkit.embed import Embedder, default_position
from seqkit.layers.position import AddedPosition


class Model(nn.Module):
    """One tokenizer's tokens through one backbone for one objective; or one sequence written from another.

    position: what the Embedder adds, `(dim, num_axes) -> AddedPosition`; None: nothing where the backbone reads
    positions itself, or goes along the tokens and they have one axis; else sinusoids. dropout: of embedded tokens.
    links: "read", or "ignore": drop them, for backbones that cannot read them (a comparison should say so).
    Raises ValueError, with what to change, where tokenizer, backbone and objective do not fit.
    """

    def __init__(
        self,
        spec: TokenSpec,
        backbone: Backbone,
        objective: Objective,
        *,
        position: Callable[[int, int], AddedPosition] | None = None,
        dropout: float = 0.0,
        links: Literal["read", "ignore"] = "read",
    ):
        super().__init__()
        self.ignores_links = links == "ignore" and spec.num_links > 0
        if self.ignores_links:
            spec = replace(spec, num_links=0)
        check_fit(spec, backbone, objective)

        def embedder(spec: TokenSpec, reader: Backbone | None, hides: bool = False) -> Embedder:
            heads = reader.num_heads if reader is not None and reader.reads_links else 0
            added = position or default_position(reader, spec)
            return Embedder(spec, backbone.dim, position=added, dropout=dropout, hides=hides, num_heads=heads)

        target = objective.target_spec
        self.source_embedder = None if target is None else embedder(spec, backbone.source_reader())
        self.spec = spec if target is None else target
        self.embedder = embedder(self.spec, backbone, objective.hides)
        self.backbone = backbone
        self.head = objective.head(self.embedder)

    def forward(self, batch: TokenBatch, hide: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """The head's prediction.

        hide: [b n], True: the token must be rebuilt. cache: `batch` continues what it has read.
        """
        if self.ignores_links:
            memory = None if batch.memory is None else replace(batch.memory, links=None)
            batch = replace(batch, links=None, memory=memory)
        embedded = self.embedder(batch, hide)
        if batch.memory is not None:
            if self.source_embedder is None:
                raise ValueError("this model reads one sequence; a batch with memory is for an objective that has two")
            embedded = replace(embedded, memory=self.source_embedder(batch.memory))
        hidden = self.backbone(embedded, cache)
        return self.head(hidden, embedded.valid)

    @property
    def num_parameters(self) -> int:
        """How many numbers are trained; shared ones count once."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


def check_fit(spec: TokenSpec, backbone: Backbone, objective: Objective) -> None:
    """Raise ValueError, with what to change, if these three cannot give right results together."""
    name, aim = type(backbone).__name__, type(objective).__name__
    if objective.causal is not None and objective.causal != backbone.causal:
        does = (
            "reads later tokens, which it would have to predict"
            if objective.causal
            else "cannot read what follows a token"
        )
        raise ValueError(f"{aim} does not fit this {name}, which {does}; build it with causal={objective.causal}")
    if spec.num_links and not backbone.reads_links:
        kinds = "1 kind" if spec.num_links == 1 else f"{spec.num_links} kinds"
        raise ValueError(
            f"{name} cannot honour who reads whom (the tokens have links of {kinds}); "
            "use the backbone Transformer, or set the model's links to ignore"
        )
    two = objective.target_spec is not None
    if two != backbone.reads_memory:
        raise ValueError(
            f"{aim} writes one sequence from another, and {name} reads only one; use the backbone Seq2Seq"
            if two
            else f"{name} writes one sequence from another, and {aim} has only one; use the objective Translate, "
            "or a backbone that is not an encoder with a decoder"
        )
    if spec.num_links and objective.causal and not two:
        raise ValueError(
            f"{aim} goes from left to right, and linked tokens have no such order; use Masked, Classify or Regress"
        )
    backbone.check(spec)
