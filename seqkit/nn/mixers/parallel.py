"""Attention and a mixer that carries a state, side by side over the same tokens.

b batch · n tokens · d width
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.kv_cache import LayerCache
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.checks import check_above_0
from seqkit.nn.mixers.base import BothDirections, Mixer, StateMixer
from seqkit.nn.mixers.mamba2 import Mamba2Mixer

OF_SCORES = AttentionFeature.ROTARY | AttentionFeature.BIAS
"""Features of attention that the mixer beside it has nothing to do with."""


class ParallelMixer(Mixer):
    """attention_scale attention(x) + beside_scale beside(x) (Falcon-H1; Zuo et al. 2025).

    attention: `(dim, num_heads) -> MultiHeadAttention`, which takes the positions. beside: `(dim, num_heads) ->
    StateMixer`. Raises ValueError for a scale that is not above 0.
    """

    needs_rows = True

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        attention: Callable[[int, int], MultiHeadAttention] = MultiHeadAttention,
        beside: Callable[[int, int], StateMixer] = Mamba2Mixer,
        attention_scale: float = 1.0,
        beside_scale: float = 1.0,
    ):
        super().__init__()
        check_above_0(attention_scale=attention_scale, beside_scale=beside_scale)
        self.attention = attention(dim, num_heads)
        self.beside = beside(dim, num_heads)
        self.attention_scale = attention_scale
        self.beside_scale = beside_scale
        self.num_heads = self.attention.num_heads
        self.head_dim = self.attention.head_dim
        self._declare_support()
        self.needs_mask = self.attention.needs_mask

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        beside = cache.beside if isinstance(cache, ParallelCache) else None
        attended = self.attention_scale * self.attention(x, context, cache)
        return torch.add(attended, self.beside(x, context, beside), alpha=self.beside_scale)

    def go_both_ways(self, backwards: StateMixer) -> None:
        """Let a second mixer run from right to left beside the first."""
        self.beside = BothDirections(self.beside, backwards)
        self._declare_support()

    def _declare_support(self) -> None:
        self.supports = self.attention.supports & (self.beside.supports | OF_SCORES)

    def init_cache(self, max_tokens: int) -> LayerCache:
        attention = self.attention.init_cache(max_tokens)
        return ParallelCache(attention, self.beside.init_cache(max_tokens))


class ParallelCache(LayerCache):
    """The cache of an attention layer, and that of the mixer beside it."""

    def __init__(self, attention: LayerCache, beside: LayerCache):
        super().__init__(attention.self_attention)
        self.beside = beside

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        self.beside.reorder(rows)
