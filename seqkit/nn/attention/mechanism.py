"""Base class of attention mechanisms: what differs between dot-product, additive, sparse and linear attention.

b batch · n queries · m keys · h heads · g key/value heads · c channels of one head
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from einops import einsum, rearrange, repeat
from torch import Tensor, nn

from seqkit.interfaces import Cache
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.kv_cache import KVCache
from seqkit.nn.precision import float32_or_more
from seqkit.nn.recurrence import is_exporting
from seqkit.nn.segments import SegmentRows


class AttentionMechanism(nn.Module, ABC):
    """Attention output [b h n c] from queries, keys and values. Built as `(num_heads, head_dim) -> AttentionMechanism`.

    supports: the features that it supports; any other is refused when the backbone is built.
    needs_mask: True: it takes `context.attn_mask`, which scores every pair; False: it works from the other fields, and
    no [n m] mask is made for it. needs_adjacency: True: it attends along edges, so tokens without are refused.
    """

    supports: ClassVar[AttentionFeature] = AttentionFeature(0)
    needs_mask: ClassVar[bool] = True
    needs_adjacency: ClassVar[bool] = False

    @abstractmethod
    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: Any = None
    ) -> Tensor:
        """Attention output [b h n c] from q [b h n c] and k, v [b g m c].

        cache: from `init_cache`; k and v continue what it holds.
        """

    @abstractmethod
    def attention_weights(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """Attention weights [b h n m], without dropout; weights @ values is what `forward` gives.

        Raises ValueError where the mechanism has no such weights.
        """

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache of the mechanism's own kind."""
        return KVCache(max_tokens)


class SequenceAttention(AttentionMechanism):
    """Base class of mechanisms that take no mask, but plain sequences with padding on the right.

    A subclass writes `supports`, `run` and `weigh`, which are `forward` and `attention_weights` of such sequences. Each
    packed sequence is a row of its own for them, so SEGMENTS are supported.
    """

    needs_mask = False

    @abstractmethod
    def run(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: Any = None
    ) -> Tensor:
        """Attention output [b h n c], of any value where padded."""

    @abstractmethod
    def weigh(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """Attention weights [b h n m]."""

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: Any = None
    ) -> Tensor:
        if context.segments is None:
            return self.run(q, k, v, context, cache)

        def run_rows(own: SegmentRows) -> Tensor:
            own_q, own_k, own_v = (_split(own, x) for x in (q, k, v))
            output = self.run(own_q, own_k, own_v, _context_of(own, context))
            return rearrange(output, "s h m c -> s m h c")

        return rearrange(context.segments.map(run_rows), "b n h c -> b h n c")

    def attention_weights(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        rows = context.segments
        if rows is None:
            return self.weigh(q, k, context)
        weights = self.weigh(_split(rows, q), _split(rows, k), _context_of(rows, context))
        found = weights.new_zeros(*q.shape[:3], k.shape[2])
        columns = rows.split(torch.arange(k.shape[2], device=q.device).expand(rows.shape))
        for own, real, row, column in zip(
            weights, rows.valid, rows.batch_row, columns, strict=True
        ):
            at = column[real]
            found[row, :, rearrange(at, "i -> i 1"), at] = own[:, real][..., real]
        return found


def _split(rows: SegmentRows, x: Tensor) -> Tensor:
    """Queries, keys or values [s h m c] of packed sequences, from those of the batch, [b h n c]."""
    return rearrange(rows.split(rearrange(x, "b h n c -> b n h c")), "s m h c -> s h m c")


def _context_of(rows: SegmentRows, context: AttentionContext) -> AttentionContext:
    valid = rows.valid
    return AttentionContext(is_causal=context.is_causal, query_valid=valid, key_valid=valid)


class DenseScoreAttention(AttentionMechanism):
    """Softmax of scores that are all materialised: O(n m) memory for a head.

    A subclass writes `supports` and `attention_weights(q, k, context)`; `forward` and the cache follow. What it needs
    are functions of this module: `as_bias(q, k, context)`, added to the scores, masks them and has the bias; `softmax`
    gives zeros where all is masked; `repeat_kv(k, q)` repeats keys for all heads.
    """

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: Any = None
    ) -> Tensor:
        if cache is not None:
            k, v = cache.update(k, v)
        return einsum(
            self.attention_weights(q, k, context), repeat_kv(v, q), "b h n m, b h m c -> b h n c"
        )


def as_bias(q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
    """The attention mask as a bias on scores, [b|1 h|1 n|1 m]: 0 or the bias, -inf where masked."""
    n = q.shape[2]
    m = k.shape[2]
    attn_mask = context.attn_mask
    if attn_mask is None:
        if not context.is_causal:
            return q.new_zeros(1, 1, 1, 1)
        attn_mask = rearrange(
            torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n), "n m -> 1 1 n m"
        )
    if attn_mask.dtype == torch.bool:
        return q.new_zeros(attn_mask.shape).masked_fill(~attn_mask, -torch.inf)
    return attn_mask.to(q.dtype)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis; zeros in rows that are masked entirely, as SDPA gives, gradients too."""
    masked = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(masked, 0.0).softmax(dim=-1).masked_fill(masked, 0.0)


def bounded(scores: Tensor, softcap: float | None) -> Tensor:
    """Scores under the softcap, in single precision at least; without one, as they are."""
    if softcap is None:
        return scores
    wide = scores.to(float32_or_more(scores.dtype))
    return capped(wide, softcap)


def capped(x: Tensor, softcap: float) -> Tensor:
    """softcap * tanh(x / softcap), of scores and of logits (Gemma 2; Gemma team 2024, section 2)."""
    return (x / softcap).tanh() * softcap


def repeat_kv(k: Tensor, q: Tensor) -> Tensor:
    """Keys (or values) [b g m c] repeated for all heads of q, [b h m c]: head i uses key head i // (h / g)."""
    times = q.shape[1] // k.shape[1]
    if times == 1:
        return k
    if is_exporting():  # before the axes change places: else its strides fix the length of a graph
        by_token = repeat(k, "b g m c -> b m (g times) c", times=times)
        return rearrange(by_token, "b m h c -> b h m c")
    return repeat(k, "b g m c -> b (g times) m c", times=times)


def soft_lookup(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    temperature: float,
    attn_mask: Tensor | None = None,
) -> Tensor:
    """Attention as a soft dictionary, as plain as it can be written: what the other mechanisms are checked against.

    query: [... n c], key: [... m c], value: [... m d]. attn_mask: [... n m] bool, True = may attend; None: no mask.
    Returns [... n d], for each query the mean of the values weighted by exp(query . key / temperature). Towards
    temperature 0 that is the value of the best key, towards infinity the plain mean. Zeros where all keys are masked.
    """
    scores = einsum(query, key, "... n c, ... m c -> ... n m") / temperature
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    return einsum(softmax(scores), value, "... n m, ... m d -> ... n d")
