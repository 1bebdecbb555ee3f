"""Attention over a low-rank projection of the sequence (Linformer; Wang et al. 2020).

b batch · n queries · m keys · h heads · g key/value heads · c channels of one head · r rank
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor, nn

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.mechanism import SequenceAttention, repeat_kv
from seqkit.nn.checks import check_at_least


class LinformerAttention(SequenceAttention):
    """Softmax attention over keys and values that a learned projection reduces from m columns to `rank`.

    Wang et al. 2020, equation 7, the projections shared by all heads (their section 4). Time and memory O(n rank).
    max_tokens: number of columns that have projection weights. rank: number of projected keys.
    The weights belong to columns, so the output depends on a token's column, whatever `positions` say.
    A projected key mixes early and late tokens, so it cannot be causal.
    Raises ValueError for sizes below 1, and for a sequence longer than max_tokens.
    """

    supports = (
        AttentionFeature.BIDIRECTIONAL
        | AttentionFeature.CROSS_ATTENTION
        | AttentionFeature.ROTARY
        | AttentionFeature.SEGMENTS
        | AttentionFeature.GROUPED_QUERY
    )

    def __init__(self, num_heads: int, head_dim: int, *, max_tokens: int, rank: int):
        super().__init__()
        check_at_least(1, max_tokens=max_tokens, rank=rank)
        self.max_tokens = max_tokens
        self.rank = rank
        # so that projections of a full row are as large as what they project
        self.key_projection = nn.Parameter(torch.randn(max_tokens, rank) * max_tokens**-0.5)
        self.value_projection = nn.Parameter(torch.randn(max_tokens, rank) * max_tokens**-0.5)

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: Any = None
    ) -> Tensor:
        assert cache is None
        keys = einsum(
            self._zero_padded(k, context),
            self.key_projection[: k.shape[2]],
            "b g m c, m r -> b g r c",
        )
        values = einsum(
            self._zero_padded(v, context),
            self.value_projection[: v.shape[2]],
            "b g m c, m r -> b g r c",
        )
        return F.scaled_dot_product_attention(q, keys, values, enable_gqa=q.shape[1] != k.shape[1])

    def weigh(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """[b h n m]: those of the projected keys, projected back. They may be negative and need not sum to one."""
        keys = einsum(
            self._zero_padded(k, context),
            self.key_projection[: k.shape[2]],
            "b g m c, m r -> b g r c",
        )
        scores = einsum(q, repeat_kv(keys, q), "b h n c, b h r c -> b h n r") / q.shape[-1] ** 0.5
        weights = einsum(
            scores.softmax(dim=-1), self.value_projection[: k.shape[2]], "b h n r, m r -> b h n m"
        )
        weights = F.pad(weights, [0, k.shape[2] - weights.shape[-1]])
        if context.key_valid is None:
            return weights
        return weights.masked_fill(rearrange(~context.key_valid, "b m -> b 1 1 m"), 0.0)

    def _zero_padded(self, k: Tensor, context: AttentionContext) -> Tensor:
        """Keys or values of the first max_tokens columns, zero where there is padding."""
        m = k.shape[2]
        valid = context.key_valid
        if m > self.max_tokens and (
            valid is None or valid.is_meta or bool(valid[:, self.max_tokens :].any())
        ):
            longest = m if valid is None or valid.is_meta else int(valid.sum(dim=1).max())
            raise ValueError(
                f"a sequence has {longest} tokens, and LinformerAttention weights for max_tokens={self.max_tokens}; "
                "shorten the input or build it with more"
            )
        k = k[:, :, : self.max_tokens]
        if valid is None:
            return k
        return k.masked_fill(rearrange(~valid[:, : k.shape[2]], "b m -> b 1 m 1"), 0.0)
