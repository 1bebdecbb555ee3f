"""Attention along the edges of graphs, in O(edges).

b batch · n tokens · h heads · g key/value heads · r query heads that share one · c channels of one head
N = b n tokens of the whole batch · e edges
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange, reduce
from torch import Tensor

from seqkit.interfaces import Adjacency
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.mechanism import AttentionMechanism
from seqkit.nn.dropout import InheritedDropout
from seqkit.nn.position.bias import bias_of_types
from seqkit.nn.precision import float32_or_more


class EdgeAttention(AttentionMechanism, InheritedDropout):
    """Softmax of scaled dot products over a token's neighbours and itself, without an [n n] tensor.

    The result is that of `ScaledDotProductAttention`. It aggregates along edges as graph attention networks do
    (Velickovic et al. 2018, section 2.2), with scaled dot products and `edge_bias` as scores: the target of an edge
    attends to its source. dropout: dropout of attention weights; None: the backbone's.
    Time and memory O((n + e) width). On graphs of some hundred tokens ScaledDotProductAttention is as fast
    (docs/efficient.md).
    Raises ValueError for a dropout outside [0, 1), and in `forward` for tokens without adjacency.
    """

    supports = (
        AttentionFeature.BIDIRECTIONAL
        | AttentionFeature.CAUSAL
        | AttentionFeature.UNORDERED
        | AttentionFeature.ADJACENCY
        | AttentionFeature.ROTARY
        | AttentionFeature.GROUPED_QUERY
    )
    needs_mask = False
    needs_adjacency = True

    def __init__(self, num_heads: int, head_dim: int, *, dropout: float | None = None):
        super().__init__(dropout)
        self.scale = head_dim**-0.5

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: Any = None
    ) -> Tensor:
        """[b h n c]; sums are made in float32 at least."""
        adjacency = _adjacency(context)
        source, target = adjacency.edge_index
        own, edge = self._scores(q, k, context)
        highest = _highest(own.detach(), target, edge.detach())
        own = (own - highest).exp()
        edge = (edge - highest[target]).exp()
        total = own.index_add(0, target, edge)
        own, edge = (
            rearrange(F.dropout(x, self.dropout, self.training), "e g r -> e g r 1")
            for x in (own, edge)
        )
        values = _flat(v.to(own.dtype), v.shape[1])
        output = (own * values).index_add(0, target, edge * values.index_select(0, source))
        output = output / rearrange(total, "N g r -> N g r 1")
        return rearrange(output, "(b n) g r c -> b (g r) n c", b=q.shape[0]).to(v.dtype)

    def attention_weights(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """[b h n m], without dropout; O(n^2) memory."""
        n = q.shape[2]
        source, target = _adjacency(context).edge_index
        own, edge = (rearrange(x, "e g r -> e (g r)") for x in self._scores(q, k, context))
        scores = own.new_full((len(own), n, own.shape[1]), -torch.inf)
        token = torch.arange(len(own), device=q.device)
        scores = scores.index_put((target, source % n), edge).index_put((token, token % n), own)
        return rearrange(scores.softmax(dim=1), "(b n) m h -> b h n m", n=n).to(q.dtype)

    def _scores(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """Scores of each token with itself, [N g r], and of each edge, [e g r]; -inf where an edge is masked."""
        adjacency = _adjacency(context)
        source, target = adjacency.edge_index
        wide = float32_or_more(q.dtype)
        queries = _flat(q.to(wide) * self.scale, k.shape[1])
        keys = _flat(k.to(wide), k.shape[1])
        own = reduce(queries * keys, "N g r c -> N g r", "sum")
        edge = reduce(
            queries.index_select(0, target) * keys.index_select(0, source),
            "e g r c -> e g r",
            "sum",
        )
        itself = source == target
        if context.edge_bias is not None:
            bias = context.edge_bias.to(wide)
            # an edge from a token to itself adds no attention, it sets the type of the token's own score
            own_type = adjacency.edge_type.new_zeros(own.shape[0]).index_add(
                0, target, adjacency.edge_type * itself
            )
            by_type = (bias_of_types(bias, types) for types in (own_type, adjacency.edge_type))
            own_bias, edge_bias = (rearrange(x, "e (g r) -> e g r", g=k.shape[1]) for x in by_type)
            own = own + own_bias
            edge = edge + edge_bias
        masked = itself
        if context.is_causal:
            masked = masked | (source > target)
        if context.key_valid is not None:
            masked = masked | ~rearrange(context.key_valid, "b n -> (b n)")[source]
        return own, edge.masked_fill(rearrange(masked, "e -> e 1 1"), -torch.inf)


def _adjacency(context: AttentionContext) -> Adjacency:
    if context.adjacency is None:
        raise ValueError(
            "EdgeAttention attends along edges, and these tokens have no adjacency; use ScaledDotProductAttention"
        )
    return context.adjacency


def _highest(own: Tensor, target: Tensor, edge: Tensor) -> Tensor:
    """The highest score of each query, [N g r]."""
    return own.scatter_reduce(0, rearrange(target, "e -> e 1 1").expand_as(edge), edge, "amax")


def _flat(x: Tensor, num_groups: int) -> Tensor:
    """Heads [b h n c] of all examples in a row, by the keys that they share, [N g r c]."""
    # an exported graph knows the strides of a copy at every length
    return rearrange(x, "b (g r) n c -> (b n) g r c", g=num_groups).contiguous()
