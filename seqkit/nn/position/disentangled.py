"""Vectors of distances that queries and keys are compared with (DeBERTa; He et al. 2021).

b batch · n queries · m keys · h heads · c channels of one head · r vectors · d width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.position.base import RelativePosition, offsets


class Distances(NamedTuple):
    """Vectors of distances [1 r d], which a layer projects as its tokens, and which is each pair's, [b n m]."""

    vectors: Tensor
    of_pairs: Tensor

    def scores(self, q: Tensor, k: Tensor, vector_q: Tensor, vector_k: Tensor) -> Tensor:
        """Scores of queries with the distances' keys and of the distances' queries with keys, [b h n m].

        q: [b h n c]. k: [b h m c]. vector_q, vector_k: queries and keys of the vectors, [1 h r c]. The sum is divided
        by sqrt(3 c) (He et al. 2021, section 3.2).
        """
        index = rearrange(self.of_pairs, "b n m -> b 1 n m").expand(-1, q.shape[1], -1, -1)
        of_queries = einsum(q, vector_k[0], "b h n c, h r c -> b h n r").gather(3, index)
        of_keys = einsum(k, vector_q[0], "b h m c, h r c -> b h r m").gather(2, index)
        return (of_queries + of_keys) / (3 * q.shape[3]) ** 0.5


class DisentangledPosition(RelativePosition):
    """A learned vector for each bucket of distances, which queries and keys are compared with (He et al. 2021, DeBERTa,
    section 3.1). Each layer projects the vectors as it does its tokens, so one table serves all.

    dim: width of the backbone. num_buckets: buckets to each side. max_distance: distance from which on all share the
    last bucket. Half of the buckets hold one distance each, the rest widen in a logarithm. norm: norm of the vectors.
    The mechanism's temperature should be sqrt(3 head_dim) (ibid., section 3.2). There is no cache.
    Equals Hugging Face's DeBERTa-v2 with `share_att_key` (transformers 5.23).
    Raises ValueError for too few buckets, or a `max_distance` that the buckets of one distance each cover.
    """

    requires = AttentionFeature.BIAS
    supports_cache = False

    def __init__(
        self,
        dim: int,
        *,
        num_buckets: int = 256,
        max_distance: int = 512,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
    ):
        super().__init__()
        if num_buckets < 4 or max_distance <= num_buckets // 2 + 1:
            raise ValueError(
                f"num_buckets={num_buckets} should be 4 or more, and max_distance={max_distance} above its half plus 1"
            )
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.table = nn.Parameter(torch.randn(2 * num_buckets, dim) * 0.02)
        self.norm = norm(dim)

    def check_axes(self, num_axes: int, head_dim: int) -> None:
        """Raise ValueError for tokens whose positions do not have one axis."""
        if num_axes != 1:
            raise ValueError(f"DisentangledPosition needs positions of 1 axis, not of {num_axes}")

    def bias(self, query_positions: Tensor, key_positions: Tensor, num_heads: int) -> Tensor:
        """Zero, [1 1 1 1]: nothing depends on the distance alone."""
        return self.table.new_zeros(1, 1, 1, 1)

    def distances(self, query_positions: Tensor, key_positions: Tensor) -> Distances:
        """All vectors, and which of them is each pair's."""
        behind = -offsets(query_positions, key_positions)
        exact = self.num_buckets // 2
        # in single precision and in this order, since weights from elsewhere depend on where buckets end
        size = behind.abs().float()
        widest = torch.tensor((self.max_distance - 1) / exact).log()
        share = (size.clamp(min=exact - 1) / exact).log() / widest
        far = ((share * (exact - 1)).ceil() + exact) * behind.sign()
        bucket = torch.where(size <= exact, behind, far).long() + self.num_buckets
        vectors = rearrange(self.norm(self.table), "r d -> 1 r d")
        return Distances(vectors, bucket.clamp(0, 2 * self.num_buckets - 1))
