"""Heads on whole examples. Pooling happens here, so no class token is needed.

b batch · n tokens · d width · k outputs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Embedded, TokenBatch
from seqkit.interfaces.parts import Part, Parts
from seqkit.nn.embedder import TokenEmbedder
from seqkit.nn.heads import TokenHead, output_layer
from seqkit.nn.mlp import Transform
from seqkit.nn.padding import zero_padded

if TYPE_CHECKING:
    from seqkit.nn.projection import Projection

Pool = Literal["mean", "sum", "max", "last", "first", "weighted_mean", "mean_sqrt_len", "parts"]


class SequenceHead(nn.Module):
    """Pool the real tokens, then a linear layer: [b n d] → [b k].

    pool: "mean", "sum" (for quantities that add up over tokens), "max", "last" (for causal backbones), "first" (a class
    token), "weighted_mean" (token i, from 1, weighs i; Muennighoff 2022, SGPT, section 4.1), "mean_sqrt_len" (the sum
    over the square root of the number of tokens) or "parts" (of joined tokens: the mean of the means of the parts that
    an example has). transform: what the pooled hidden states go through before the linear layer; None: nothing.
    """

    def __init__(
        self, dim: int, num_outputs: int, *, pool: Pool = "mean", transform: Transform | None = None
    ):
        super().__init__()
        self.pool = pool
        self.transform = transform
        self.linear = output_layer(dim if transform is None else transform.width, num_outputs)

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Predictions [b k] from hidden [b n d]."""
        found = pooled(hidden, embedded.valid, self.pool, embedded.parts)
        return self.linear(found if self.transform is None else self.transform(found))


def label_head(
    embedder: TokenEmbedder,
    num_outputs: int,
    *,
    pool: Pool | None,
    transform: Callable[[int], Transform] | None = None,
) -> nn.Module:
    """A head on whole examples or, where pool is None, on every token.

    Raises ValueError for a pooling by parts of tokens without any.
    """
    made = None if transform is None else transform(embedder.dim)
    if pool is None:
        return TokenHead(embedder.dim, num_outputs, transform=made)
    check_pool(embedder, pool)
    return SequenceHead(embedder.dim, num_outputs, pool=pool, transform=made)


class FeaturesHead(nn.Module):
    """The pooled hidden states themselves, without parameters, [b n d] → [b d], or a projection of them, [b k].

    pool: as of `SequenceHead`. normalize: whether vectors are divided by their Euclidean length. projection: in the
    place of pooling; None: none.
    """

    def __init__(
        self, *, pool: Pool = "mean", normalize: bool = False, projection: Projection | None = None
    ):
        super().__init__()
        self.pool = pool
        self.normalize = normalize
        self.projection = projection

    def forward(self, hidden: Tensor, embedded: Embedded | TokenBatch) -> Tensor:
        """Vectors [b d] or [b k] from hidden [b n d]."""
        if self.projection is None:
            found = pooled(hidden, embedded.valid, self.pool, embedded.parts)
        else:
            found = self.projection(hidden, embedded.valid)
        return F.normalize(found, dim=-1) if self.normalize else found


def check_pool(embedder: TokenEmbedder, pool: Pool) -> None:
    """Raise ValueError for a pooling by parts of tokens without any."""
    if pool == "parts" and not embedder.spec.is_joined:
        raise ValueError("pool=parts is for joined tokens, and these have no parts; use mean")


def pooled(hidden: Tensor, valid: Tensor, pool: Pool, parts: Parts | None = None) -> Tensor:
    """One vector [b d] per example from its real tokens. Raises ValueError for an unknown pooling."""
    if pool == "parts" and parts is not None:
        return mean_of_parts(hidden, parts)
    real = rearrange(valid, "b n -> b n 1")
    if pool == "max":
        return hidden.masked_fill(~real, float("-inf")).amax(dim=1)
    if pool == "last":
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), valid.sum(dim=1) - 1]
    if pool == "first":
        return hidden[:, 0]  # sequences are padded on the right
    if pool == "weighted_mean":
        place = rearrange(valid.cumsum(dim=1) * valid, "b n -> b n 1").to(hidden.dtype)
        return (zero_padded(hidden, valid) * place).sum(dim=1) / place.sum(dim=1)
    total = zero_padded(hidden, valid).sum(dim=1)
    if pool == "sum":
        return total
    number = real.sum(dim=1).to(hidden.dtype)
    if pool == "mean":
        return total / number
    if pool == "mean_sqrt_len":
        return total / number.sqrt()
    raise ValueError(f"pool={pool!r}; it is one of {', '.join(map(repr, get_args(Pool)))}")


def mean_of_parts(hidden: Tensor, parts: Parts) -> Tensor:
    """Mean [b d] of the means of the parts that each example has."""
    means = torch.zeros_like(hidden[:, 0])
    number = hidden.new_zeros(hidden.shape[0])
    for part in parts.values():
        mean, count = mean_of_runs(hidden, part)
        means = means + mean
        number = number + (count > 0)
    return means / rearrange(number, "b -> b 1")


def mean_of_runs(hidden: Tensor, part: Part) -> tuple[Tensor, Tensor]:
    """Mean [b d] of an example's tokens of a part, 0 where it has none, and their number [b]."""
    b, n, _ = hidden.shape
    real = part.batch.valid
    rows = part.rows(n)
    sums = rearrange(hidden, "b n d -> (b n) d")[part.columns]
    sums = zero_padded(sums, real).sum(dim=1)
    total = torch.zeros_like(hidden[:, 0]).index_add(0, rows, sums)
    count = hidden.new_zeros(b).index_add(0, rows, real.sum(dim=1).to(hidden.dtype))
    return total / rearrange(count.clamp(min=1), "b -> b 1"), count
