"""What attention is told of the distance between two tokens: a bias of the score, or a vector in it.

Positions [b n p] have any number of axes p. On one axis a distance may know its side (before or after); on more it is
the Euclidean norm, which has no side. Tables refuse tokens without axes, which would never ask them.

b batch · n tokens that read · m tokens that are read · p axes · h heads · c channels of one head
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor, nn

from seqkit.layers.position import AttentionPosition


class ALiBi(AttentionPosition):
    """Scores fall with distance, in each head at its own slope (Press et al. 2022, section 3). Nothing is learned.

    Both sides alike where a token reads both ways. Distances may be fractions and of any size, so it goes on beyond the
    lengths that were trained.
    """

    needs = frozenset({"bias"})

    def bias(self, readers: Tensor, read: Tensor, num_heads: int) -> Tensor | None:
        """-slope * distance, [b h n m]."""
        if readers.shape[-1] == 0:
            return None
        slopes = torch.tensor(alibi_slopes(num_heads), dtype=readers.dtype, device=readers.device)
        return -einsum(slopes, distances(readers, read), "h, b n m -> b h n m")


def alibi_slopes(num_heads: int) -> list[float]:
    """2^(-8 i / h) for heads i = 1 to h, if h is a power of two.

    Otherwise those of the largest power of two below h, then every other one of twice as many heads (the authors' code,
    `get_slopes` in ofirpress/attention_with_linear_biases).
    """
    power = 1 << (num_heads.bit_length() - 1)

    def slopes(h: int) -> list[float]:
        return [2.0 ** (-8 * i / h) for i in range(1, h + 1)]

    return slopes(power) + slopes(2 * power)[::2][: num_heads - power]


class T5Bias(AttentionPosition):
    """A learned bias for each head and bucket of distances (Raffel et al. 2020, section 2.1).

    The first half of the buckets holds one whole distance each, the rest widen in a logarithm up to `max_distance`; the
    last takes all beyond it. causal: True: all buckets are for the past, and what comes after counts as distance 0;
    False: half of them for each side. On two axes or more a distance has no side, and all buckets share it.
    Fractions are rounded. Equals Hugging Face's `T5Attention.compute_bias` (transformers 5.23).
    Raises ValueError for fewer buckets than sides and distances need, a `max_distance` that they reach one by one, or
    tokens without positions.
    """

    needs = frozenset({"bias"})

    def __init__(self, num_heads: int, *, num_buckets: int = 32, max_distance: int = 128, causal: bool = False):
        super().__init__()
        least = 2 if causal else 4
        if num_buckets < least or (num_buckets % 2 and not causal):
            raise ValueError(f"num_buckets={num_buckets} should be {least} or more, and even with causal=False")
        if max_distance <= num_buckets // 2:
            raise ValueError(
                f"max_distance={max_distance} is reached by the {num_buckets // 2} buckets of one distance each; "
                "make it larger, or num_buckets smaller"
            )
        self.num_heads, self.num_buckets, self.max_distance, self.causal = num_heads, num_buckets, max_distance, causal
        self.table = nn.Parameter(torch.randn(num_buckets, num_heads) * 0.02)

    def check(self, num_heads: int, channels: int) -> None:
        """Raise ValueError for another number of heads."""
        if num_heads != self.num_heads:
            raise ValueError(f"T5Bias(num_heads={self.num_heads}) is for as many heads; these are {num_heads}")

    def check_axes(self, num_axes: int, channels: int) -> None:
        """Raise ValueError for tokens without positions."""
        if num_axes == 0:
            raise ValueError("T5Bias learns from distances, and these tokens have no positions; leave it out")

    def bias(self, readers: Tensor, read: Tensor, num_heads: int) -> Tensor | None:
        """[b h n m]."""
        self.check_axes(readers.shape[-1], 0)
        return rearrange(F.embedding(self.buckets(readers, read), self.table), "b n m h -> b h n m")

    def buckets(self, readers: Tensor, read: Tensor) -> Tensor:
        """Which row of the table each pair asks, [b n m]."""
        if readers.shape[-1] > 1:
            return self._by_size(distances(readers, read).round(), self.num_buckets)
        ahead = steps(readers, read)
        if self.causal:
            return self._by_size((-ahead).clamp(min=0), self.num_buckets)
        half = self.num_buckets // 2
        return self._by_size(ahead.abs(), half) + half * (ahead > 0)

    def _by_size(self, distance: Tensor, num_buckets: int) -> Tensor:
        """One bucket for each of the first num_buckets / 2 distances, the rest by their logarithm."""
        exact = num_buckets // 2
        # in single precision and in this order, since weights from elsewhere depend on where buckets end
        share = torch.log(distance.float().clamp(min=1) / exact) / math.log(self.max_distance / exact)
        far = exact + (share * (num_buckets - exact)).long()
        return torch.where(distance < exact, distance.long(), far.clamp(max=num_buckets - 1))


class RelativeEmbedding(AttentionPosition):
    """A learned vector for each clipped distance, added to keys as a reader sees them (Shaw et al. 2018, equation 4).

    Keys only, which the paper found to be enough (its table 3). One axis: distances -max to max have a vector each; on
    `num_axes` > 1 they have no side, and 0 to max do. Fractions are rounded.
    Costs O(n m c) memory for an example: for short sequences.
    Raises ValueError for a table without rows, or tokens with another number of axes.
    """

    needs = frozenset({"relative"})

    def __init__(self, channels: int, *, max_distance: int, num_axes: int = 1):
        super().__init__()
        if max_distance < 1 or num_axes < 1:
            raise ValueError(f"max_distance={max_distance} and num_axes={num_axes} should both be at least 1")
        self.channels, self.max_distance, self.num_axes = channels, max_distance, num_axes
        self.table = nn.Parameter(torch.randn(max_distance * (2 if num_axes == 1 else 1) + 1, channels) * 0.02)

    def check(self, num_heads: int, channels: int) -> None:
        """Raise ValueError for heads of another width."""
        if channels != self.channels:
            raise ValueError(
                f"RelativeEmbedding(channels={self.channels}) is for heads that wide; these have {channels}"
            )

    def check_axes(self, num_axes: int, channels: int) -> None:
        """Raise ValueError for tokens with another number of axes."""
        if num_axes != self.num_axes:
            instead = f"build it with num_axes={num_axes}" if num_axes else "leave it out"
            raise ValueError(f"RelativeEmbedding(num_axes={self.num_axes}) met positions of {num_axes} axes; {instead}")

    def relative(self, readers: Tensor, read: Tensor) -> Tensor | None:
        """[b n m c]."""
        self.check_axes(readers.shape[-1], 0)
        if self.num_axes == 1:
            row = steps(readers, read).clamp(-self.max_distance, self.max_distance) + self.max_distance
        else:
            row = distances(readers, read).round().clamp(max=self.max_distance)
        return F.embedding(row.long(), self.table)


def steps(readers: Tensor, read: Tensor) -> Tensor:
    """How many whole steps ahead of its reader each token stands, [b n m], on one axis; negative: behind it."""
    return (rearrange(read, "b m 1 -> b 1 m") - rearrange(readers, "b n 1 -> b n 1")).round()


def distances(readers: Tensor, read: Tensor) -> Tensor:
    """Euclidean distances over all axes, [b n m]."""
    apart = rearrange(read, "b m p -> b 1 m p") - rearrange(readers, "b n p -> b n 1 p")
    # not torch's norm: compiled, it keeps an axis of size 1 (torch 2.11); a square's root is exact
    return apart.square().sum(dim=-1).sqrt()
