"""Attention biases: by distance ALiBi (Press et al. 2022) and T5's buckets (Raffel et al. 2020), and by edge type.

b batch · n queries · m keys · p axes · h heads
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor, nn

from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.checks import check_at_least
from seqkit.nn.position.base import RelativePosition, distances, offsets


class ALiBi(RelativePosition):
    """-slope * distance added to the scores, with a fixed slope per head (Press et al. 2022, section 3).

    In bidirectional attention both sides alike. Distances are Euclidean and may be fractions of any size, so it also
    applies beyond the lengths that were trained. Tokens without axes get no bias.
    """

    requires = AttentionFeature.BIAS

    def bias(self, query_positions: Tensor, key_positions: Tensor, num_heads: int) -> Tensor | None:
        """-slope * distance, [b h n m]."""
        if query_positions.shape[-1] == 0:
            return None
        slopes = torch.tensor(
            alibi_slopes(num_heads), dtype=query_positions.dtype, device=query_positions.device
        )
        return -einsum(slopes, distances(query_positions, key_positions), "h, b n m -> b h n m")


def alibi_slopes(num_heads: int) -> list[float]:
    """2^(-8 i / h) for heads i = 1 to h, if h is a power of two.

    Otherwise those of the largest power of two below h, then every other one of twice as many heads (the authors' code,
    `get_slopes` in ofirpress/attention_with_linear_biases).
    """
    power = 1 << (num_heads.bit_length() - 1)

    def slopes(h: int) -> list[float]:
        return [2.0 ** (-8 * i / h) for i in range(1, h + 1)]

    return slopes(power) + slopes(2 * power)[::2][: num_heads - power]


class T5Bias(RelativePosition):
    """A learned bias for each head and bucket of distances (Raffel et al. 2020, section 2.1).

    num_buckets: rows of the table. max_distance: distance from which on all share the last bucket.
    The first half of the buckets holds one whole distance each, the rest widen in a logarithm up to `max_distance`; the
    last takes all beyond it. causal: True: all buckets are for the past, and what comes after counts as distance 0;
    False: half of them for each side. On two axes or more distances are Euclidean, without a side, and all buckets hold
    them. Fractions are rounded. Equals Hugging Face's `T5Attention.compute_bias` (transformers 5.23).
    Raises ValueError for too few buckets, a `max_distance` that the buckets of one distance each cover, or tokens
    without positions.
    """

    requires = AttentionFeature.BIAS

    def __init__(
        self,
        num_heads: int,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        causal: bool = False,
    ):
        super().__init__()
        least = 2 if causal else 4
        if num_buckets < least or (num_buckets % 2 and not causal):
            raise ValueError(
                f"num_buckets={num_buckets} should be {least} or more, and even with causal=False"
            )
        if max_distance <= num_buckets // 2:
            raise ValueError(
                f"max_distance={max_distance} is covered by the {num_buckets // 2} buckets of one distance each; "
                "make it larger, or num_buckets smaller"
            )
        self.num_heads = num_heads
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.causal = causal
        self.table = nn.Parameter(torch.randn(num_buckets, num_heads) * 0.02)

    def check_heads(self, num_heads: int, head_dim: int) -> None:
        """Raise ValueError for another number of heads."""
        if num_heads != self.num_heads:
            raise ValueError(
                f"T5Bias(num_heads={self.num_heads}) does not fit {num_heads} heads; make them equal"
            )

    def check_axes(self, num_axes: int, head_dim: int) -> None:
        """Raise ValueError for tokens without positions."""
        if num_axes == 0:
            raise ValueError("T5Bias needs positions, which these tokens do not have; leave it out")

    def bias(self, query_positions: Tensor, key_positions: Tensor, num_heads: int) -> Tensor | None:
        self.check_axes(query_positions.shape[-1], 0)
        return rearrange(
            F.embedding(self.buckets(query_positions, key_positions), self.table),
            "b n m h -> b h n m",
        )

    def buckets(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """The bucket (row of the table) of each pair, [b n m]."""
        if query_positions.shape[-1] > 1:
            return self._by_distance(
                distances(query_positions, key_positions).round(), self.num_buckets
            )
        ahead = offsets(query_positions, key_positions)
        if self.causal:
            return self._by_distance((-ahead).clamp(min=0), self.num_buckets)
        half = self.num_buckets // 2
        return self._by_distance(ahead.abs(), half) + half * (ahead > 0)

    def _by_distance(self, distance: Tensor, num_buckets: int) -> Tensor:
        """One bucket for each of the first num_buckets / 2 distances, the rest by their logarithm."""
        exact = num_buckets // 2
        # in single precision and in this order, since weights from elsewhere depend on where buckets end
        share = torch.log(distance.float().clamp(min=1) / exact) / math.log(
            self.max_distance / exact
        )
        far = exact + (share * (num_buckets - exact)).long()
        return torch.where(distance < exact, distance.long(), far.clamp(max=num_buckets - 1))


class EdgeBias(nn.Module):
    """A learned bias for each edge type and head (Ying et al. 2021, Graphormer, equation 6), zero at the start.

    weight: [1 + num_edge_types, h]; row 0 is for a token with itself.
    Raises ValueError without edge types or heads.
    """

    def __init__(self, num_edge_types: int, num_heads: int):
        super().__init__()
        check_at_least(1, num_edge_types=num_edge_types, num_heads=num_heads)
        self.weight = nn.Parameter(torch.zeros(1 + num_edge_types, num_heads))


def bias_of_types(weight: Tensor, edge_types: Tensor) -> Tensor:
    """Rows [... h] of an edge bias [1 + num_edge_types, h] for types [...] int64.

    As a product: the gradient of an index with few rows is computed serially on CUDA (200 times as slow).
    """
    types = torch.arange(len(weight), device=weight.device)
    # `F.one_hot` may read the types on the CPU
    return (edge_types[..., None] == types).to(weight.dtype) @ weight
