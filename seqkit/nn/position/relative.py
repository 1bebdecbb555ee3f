"""Relative position embeddings, added to the keys (Shaw et al. 2018).

b batch · n queries · m keys · p axes · c channels of one head
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.position.base import RelativePosition, distances, offsets


class RelativeEmbedding(RelativePosition):
    """A learned vector for each clipped distance, added to the keys in the scores (Shaw et al. 2018, equation 4).

    max_distance: distance at which others are clipped. Keys only, which the paper found to be enough (its table 3). On
    one axis distances are signed, and -max_distance to max_distance have a vector each; on more they are Euclidean, and
    0 to max_distance have. Fractions are rounded.
    Costs O(n m c) memory for an example: for short sequences.
    Raises ValueError for a table without rows, or tokens with another number of axes.
    """

    requires = AttentionFeature.RELATIVE

    def __init__(self, head_dim: int, *, max_distance: int, num_axes: int = 1):
        super().__init__()
        if max_distance < 1 or num_axes < 1:
            raise ValueError(f"max_distance={max_distance} and num_axes={num_axes} should both be at least 1")
        self.head_dim, self.max_distance, self.num_axes = head_dim, max_distance, num_axes
        self.table = nn.Parameter(torch.randn(max_distance * (2 if num_axes == 1 else 1) + 1, head_dim) * 0.02)

    def check_heads(self, num_heads: int, head_dim: int) -> None:
        """Raise ValueError for heads with another head_dim."""
        if head_dim != self.head_dim:
            raise ValueError(
                f"RelativeEmbedding(head_dim={self.head_dim}) does not fit heads of {head_dim}; make them equal"
            )

    def check_axes(self, num_axes: int, head_dim: int) -> None:
        """Raise ValueError for tokens with another number of axes."""
        if num_axes != self.num_axes:
            instead = f"build it with num_axes={num_axes}" if num_axes else "leave it out"
            raise ValueError(f"RelativeEmbedding(num_axes={self.num_axes}) got positions of {num_axes} axes; {instead}")

    def relative(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        self.check_axes(query_positions.shape[-1], 0)
        if self.num_axes == 1:
            offset = offsets(query_positions, key_positions)
            row = offset.clamp(-self.max_distance, self.max_distance) + self.max_distance
        else:
            row = distances(query_positions, key_positions).round().clamp(max=self.max_distance)
        return F.embedding(row.long(), self.table)
