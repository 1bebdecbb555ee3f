"""Attention to keys in the same bucket of a locality-sensitive hash (Reformer; Kitaev et al. 2020).

b batch · n queries · m keys · h heads · g key/value heads · c channels of one head
k directions · r rounds (the first: of neighbours) · t blocks · l queries of a block · s keys of a block
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.mechanism import SequenceAttention, repeat_kv, softmax
from seqkit.nn.checks import check_at_least
from seqkit.nn.recurrence import check_not_exporting


class Plan(NamedTuple):
    """Sparse attention mask: in round r, query i attends to ranks low to high - 1 of the keys sorted by bucket.

    order: [r b h m], the key at each rank. ranks: [r b h m], the rank of each key. low, high: [r b h n].
    """

    order: Tensor
    ranks: Tensor
    low: Tensor
    high: Tensor


class LSHAttention(SequenceAttention):
    """Softmax attention to neighbours and to tokens in the same bucket of a random hash (Kitaev et al. 2020, sec. 2).

    bucket_size: keys of its bucket that a token attends to, the nearest at or before itself (bidirectional: and one
    fewer after it). num_buckets: number of buckets, even. num_rounds: number of hashes; a token attends to the union of
    what they find (equation 4, multi-round), and to its neighbours, as if all were one more bucket: for up to
    bucket_size tokens that is exact attention.
    Time O(n log n + num_rounds n (bucket_size + num_buckets) c), memory O(num_rounds n (bucket_size + num_buckets)).
    Unlike the paper's, buckets are cut by counting a token's own predecessors and not at fixed ranks of the sorted row,
    where later tokens would move the cuts; and queries and keys are hashed apart, so both keep their projections.
    Directions are drawn once, from torch's global generator, and saved with the weights.
    Rotary: unmasked pairs have exactly the scores of rotated queries and keys; positions also influence which pairs
    are unmasked.
    Raises ValueError for sizes that cannot be.
    """

    supports = (
        AttentionFeature.BIDIRECTIONAL
        | AttentionFeature.CAUSAL
        | AttentionFeature.ROTARY
        | AttentionFeature.SEGMENTS
        | AttentionFeature.GROUPED_QUERY
    )
    directions: Tensor

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        bucket_size: int,
        num_buckets: int = 32,
        num_rounds: int = 2,
    ):
        super().__init__()
        if num_buckets < 2 or num_buckets % 2:
            raise ValueError(
                f"num_buckets={num_buckets}; a direction has two ends, so give an even number from 2 on"
            )
        check_at_least(2, bucket_size=bucket_size)
        check_at_least(1, num_rounds=num_rounds)
        self.bucket_size = bucket_size
        self.num_buckets = num_buckets
        self.register_buffer("directions", torch.randn(num_rounds, head_dim, num_buckets // 2))

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: None = None
    ) -> Tensor:
        # rounding decides which bucket is nearest, and another runtime rounds in another way
        check_not_exporting("LSHAttention", "ScaledDotProductAttention")
        valid = context.key_valid
        if valid is not None:  # NaN in padding would pass through a product with zero
            padded = rearrange(~valid, "b m -> b 1 m 1")
            k = k.masked_fill(padded, 0.0)
            v = v.masked_fill(padded, 0.0)
        plan = self._plan(q, k, context)
        k = repeat_kv(k, q)
        v = repeat_kv(v, q)
        # then scoring every pair costs no more than blocks do
        if q.shape[2] <= 2 * self.bucket_size:
            return einsum(self._dense_weights(q, k, plan), v, "b h n m, b h m c -> b h n c")
        return self._by_blocks(q, k, v, plan, context.is_causal)

    def weigh(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        return self._dense_weights(q, repeat_kv(k, q), self._plan(q, k, context))

    @torch.no_grad()
    def _hash(self, x: Tensor) -> Tensor:
        """Buckets [b h n r] of x [b h n c] in every round: the direction, or its opposite, with the largest product."""
        projected = einsum(x, self.directions.to(x.dtype), "b h n c, r c k -> b h n r k")
        hashed = torch.cat([projected, -projected], dim=-1).argmax(dim=-1)
        return F.pad(hashed, [1, 0])  # round 0: all in one bucket, so neighbours

    @torch.no_grad()
    def _plan(self, q: Tensor, k: Tensor, context: AttentionContext) -> Plan:
        """Sorted by bucket and then column, a token's bucket is a run of keys, its own column a rank in it."""
        m = q.shape[2]
        buckets = self._hash(k)
        column = torch.arange(m, device=q.device)
        if context.key_valid is not None:  # padding goes behind all buckets, where no query looks
            buckets = buckets.masked_fill(
                rearrange(~context.key_valid, "b m -> b 1 m 1"), self.num_buckets
            )
        codes = rearrange(repeat_kv(buckets, q), "b h m r -> r b h m").contiguous() * m + column
        in_order, order = codes.sort(dim=-1)
        ranks = torch.empty_like(order).scatter_(-1, order, column.expand_as(order).contiguous())
        start = rearrange(self._hash(q), "b h n r -> r b h n").contiguous() * m
        here = torch.searchsorted(in_order, start + column, right=True)
        low = torch.maximum(torch.searchsorted(in_order, start), here - self.bucket_size)
        if context.is_causal:
            return Plan(order, ranks, low, here)
        high = torch.minimum(torch.searchsorted(in_order, start + m), here + self.bucket_size - 1)
        return Plan(order, ranks, low, high)

    def _dense_weights(self, q: Tensor, k: Tensor, plan: Plan) -> Tensor:
        """Attention weights [b h n m] by scoring every pair."""
        attn_mask = _in_range(plan.ranks, plan.low, plan.high).any(dim=0)
        scores = einsum(q, k, "b h n c, b h m c -> b h n m") / q.shape[-1] ** 0.5
        return softmax(scores.masked_fill(~attn_mask, -torch.inf))

    def _by_blocks(self, q: Tensor, k: Tensor, v: Tensor, plan: Plan, causal: bool) -> Tensor:
        """Attention output, round by round, combined as one softmax would: by their largest scores and sums."""
        peak = q.new_full((*q.shape[:3], 1), torch.finfo(q.dtype).min)
        output = torch.zeros_like(torch.cat([q, peak], dim=-1))
        q = q / q.shape[-1] ** 0.5
        v = F.pad(v, [0, 1], value=1.0)  # the last column sums the weights
        for r in range(len(plan.order)):
            other_peak, other = self._round(r, q, k, v, plan, causal)
            higher = torch.maximum(peak, other_peak)
            output = output * (peak - higher).exp() + other * (other_peak - higher).exp()
            peak = higher
        total = output[..., -1:]
        return output[..., :-1] / total.masked_fill(total == 0, 1.0)

    def _round(
        self, r: int, q: Tensor, k: Tensor, v: Tensor, plan: Plan, causal: bool
    ) -> tuple[Tensor, Tensor]:
        """The largest score of each query [b h n 1], and the sum of values [b h n c] weighted by exp(score - largest).

        Queries are merged among the sorted keys, and the merged row is cut every bucket_size. Cut so, a block has at
        most bucket_size queries, and all their keys lie among the block's and bucket_size more on either side, however
        the queries crowd (pairs of an earlier round are left out).
        """
        n = q.shape[2]
        m = k.shape[2]
        size = self.bucket_size
        max_distance = size if causal else 2 * size - 1  # high - low at most
        with torch.no_grad():
            rank, by_rank = plan.high[r].sort(dim=-1)
            merged = torch.arange(n, device=q.device) + rank
            cuts = (
                torch.arange(0, n + m + size, size, device=q.device)
                .expand(*merged.shape[:2], -1)
                .contiguous()
            )
            first = torch.searchsorted(merged, cuts)
            block = merged // size
            slot = block * size + torch.arange(n, device=q.device) - first.gather(-1, block)
            slot_of_query = torch.empty_like(slot).scatter_(-1, by_rank, slot)

            first, first_key = (
                rearrange(x[..., :-1], "b h t -> b h t 1") for x in (first, cuts - first)
            )
            queries = _take(by_rank, (first + torch.arange(size, device=q.device)).clamp(max=n - 1))
            ranks = first_key + torch.arange(-max_distance, size, device=q.device)
            keys = _take(plan.order[r], ranks.clamp(0, m - 1))
            attn_mask = _in_range(ranks, _take(plan.low[r], queries), _take(plan.high[r], queries))
            for e in range(r):
                low = _take(plan.low[e], queries)
                high = _take(plan.high[e], queries)
                attn_mask &= ~_in_range(_take(plan.ranks[e], keys), low, high)

        scores = einsum(_take(q, queries), _take(k, keys), "b h t l c, b h t s c -> b h t l s")
        scores = scores.masked_fill(~attn_mask, torch.finfo(q.dtype).min)
        peak = scores.detach().amax(dim=-1, keepdim=True)
        # exp(-80) is as good as zero, and exp of less is five times as slow, where it underflows
        weights = (scores - peak).clamp(min=-80.0).exp().masked_fill(~attn_mask, 0.0)
        output = einsum(weights, _take(v, keys), "b h t l s, b h t s c -> b h t l c")
        slots = rearrange(slot_of_query, "b h n -> b h 1 n")
        peak, output = (
            _take(rearrange(x, "b h t l c -> b h (t l) c"), slots) for x in (peak, output)
        )
        return rearrange(peak, "b h 1 n c -> b h n c"), rearrange(output, "b h 1 n c -> b h n c")


def _in_range(ranks: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """[... n m], True where a key's rank [... m] lies within low to high - 1 of a query, both [... n]."""
    ranks = rearrange(ranks, "... m -> ... 1 m")
    low = rearrange(low, "... n -> ... n 1")
    high = rearrange(high, "... n -> ... n 1")
    return (low <= ranks) & (ranks < high)


def _take(x: Tensor, ids: Tensor) -> Tensor:
    """The entries [b h t s] or rows [b h t s c] that ids [b h t s] name, of x [b h n] or [b h n c]."""
    flat = rearrange(ids, "b h t s -> b h (t s)")
    if x.ndim == 3:
        return rearrange(x.gather(-1, flat), "b h (t s) -> b h t s", t=ids.shape[2])
    # by whole rows, which takes a third of the time of `gather`
    starts = torch.arange(0, x.shape[:3].numel(), x.shape[2], device=x.device)
    flat = rearrange(flat, "b h s -> (b h) s") + rearrange(starts, "bh -> bh 1")
    rows = rearrange(x, "b h n c -> (b h n) c").index_select(0, rearrange(flat, "bh s -> (bh s)"))
    return rearrange(rows, "(b h t s) c -> b h t s c", b=x.shape[0], h=x.shape[1], t=ids.shape[2])
