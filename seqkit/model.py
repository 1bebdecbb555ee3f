"""Embedder, backbone and head as one module, checked when it is built.

b batch · n tokens
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from torch import Tensor, nn

from seqkit.contract import Backbone, Cache, Objective, TokenBatch, TokenSpec
from seqkit.embed import Embedder
from seqkit.layers.position import AddedPosition, NoPosition, Sinusoidal


class Model(nn.Module):
    """One tokenizer's tokens through one backbone for one objective.

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
        if position is None:
            told = backbone.reads_positions or spec.num_axes == 0 or (backbone.ordered and spec.num_axes == 1)
            position = NoPosition if told else Sinusoidal
        check_fit(spec, backbone, objective)
        self.spec = spec
        self.embedder = Embedder(
            spec,
            backbone.dim,
            position=position,
            dropout=dropout,
            hides=objective.hides,
            num_heads=backbone.num_heads if backbone.reads_links else 0,
        )
        self.backbone = backbone
        self.head = objective.head(self.embedder)

    def forward(self, batch: TokenBatch, hide: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """The head's prediction.

        hide: [b n], True: the token must be rebuilt. cache: `batch` continues what it has read.
        """
        if self.ignores_links:
            batch = replace(batch, links=None)
        embedded = self.embedder(batch, hide)
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
    if spec.num_links and objective.causal:
        raise ValueError(
            f"{aim} goes from left to right, and linked tokens have no such order; use Masked, Classify or Regress"
        )
    backbone.check(spec)
