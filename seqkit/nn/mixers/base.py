"""Base classes of what mixes tokens in a block: attention over all pairs, or a state that is carried along.

b batch · n tokens · d width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature, check_supported
from seqkit.nn.attention.kv_cache import LayerCache, StateCache
from seqkit.nn.padding import reversed_rows, zero_padded

BESIDE = AttentionFeature.SEGMENTS | AttentionFeature.CROSS_ATTENTION
ONE_DIRECTION = AttentionFeature.CAUSAL | AttentionFeature.CACHE | BESIDE
"""Features of a mixer that goes from left to right."""
BOTH_DIRECTIONS = AttentionFeature.BIDIRECTIONAL | BESIDE


class Mixer(nn.Module, ABC):
    """Mixes the tokens of a sequence, between norm and residual of a block. Built as `(dim, num_heads) -> Mixer`.

    num_heads, head_dim: heads, and the channels of each. supports: the features that it supports; a backbone refuses
    any other when it is built. needs_mask, needs_adjacency: as in `AttentionMechanism`. needs_rows: True: packed
    sequences come as rows of their own, beside a mask. carries_state: True: it runs over the columns in order
    (`StateMixer`), so it knows their order and takes no positions.
    """

    num_heads: int
    head_dim: int
    supports: AttentionFeature
    needs_mask: bool = True
    needs_adjacency: bool = False
    needs_rows: bool = False
    carries_state: ClassVar[bool] = False

    @abstractmethod
    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        """[b n d] from x [b n d]. cache: cache of this layer; None: there is none."""

    @abstractmethod
    def init_cache(self, max_tokens: int) -> LayerCache:
        """An empty cache of one layer."""

    def check_supported(self, required: AttentionFeature) -> None:
        """Raise ValueError if a required feature is not supported."""
        check_supported(
            type(self).__name__, self.supports, required, "use the mixer MultiHeadAttention"
        )


class StateMixer(Mixer):
    """A mixer that goes from token to token with a state: a recurrent network, a state space layer.

    A subclass writes `step`, and `mix` where all tokens at once have a faster form. It gets x zero where padded, with
    the padding on the right, and sequences that are packed into one row get a row each, so it knows of neither.
    It keeps its own initial weights.
    Cross-attention in a block beside it is plain multi-head attention.
    """

    supports = ONE_DIRECTION
    needs_mask = False
    carries_state = True

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.dim = dim
        self.num_heads = num_heads
        self.head_dim = dim // num_heads

    @abstractmethod
    def step(self, x: Tensor, valid: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        """Outputs [b n d] of x [b n d] after a state, and the state after each last real token.

        valid: [b n] bool, True = real; None: all are. A row may have no real token: it keeps its state. state: a tensor
        [b …] or a tuple of such; None: that before the first token.
        """

    def mix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Outputs [b n d] of whole sequences x [b n d]."""
        return self.step(x, valid, None)[0]

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        if context.segments is not None:
            return context.segments.map(lambda rows: self.mix(rows.split(x), rows.valid))
        valid = context.query_valid
        if valid is not None:  # a norm's bias would make padding an input
            x = zero_padded(x, valid)
        if cache is None:
            return self.mix(x, valid)
        kept = cast(StateCache, cache.self_attention)
        y, kept.states[0] = self.step(x, valid, kept.states[0])
        return y

    def init_cache(self, max_tokens: int) -> LayerCache:
        return LayerCache(StateCache(1))


class BothDirections(StateMixer):
    """The sum of two mixers, one from left to right and one from right to left (Schuster and Paliwal 1997).

    The second begins at each last real token. It has no cache.
    """

    supports = BOTH_DIRECTIONS

    def __init__(self, forwards: StateMixer, backwards: StateMixer):
        super().__init__(forwards.dim, forwards.num_heads)
        self.forwards = forwards
        self.backwards = backwards

    def mix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        context = AttentionContext(query_valid=valid)
        back = reversed_rows(self.backwards(reversed_rows(x, valid), context), valid)
        y: Tensor = self.forwards(x, context) + back  # modules are called: hooks count their work
        return y

    def step(self, x: Tensor, valid: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        raise ValueError("two directions have no cache; build the backbone with causal=True")
