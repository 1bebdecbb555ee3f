"""Additive attention (Bahdanau et al. 2015).

b batch · n queries · m keys · h heads · c channels of one head
"""

from __future__ import annotations

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import ALL_FEATURES, AttentionFeature
from seqkit.nn.attention.mechanism import DenseScoreAttention, as_bias, repeat_kv, softmax


class AdditiveAttention(DenseScoreAttention):
    """Scores by a small network: v . tanh(W query + U key) (Bahdanau et al. 2015, appendix A.1.2).

    W and U are the projections that `MultiHeadAttention` has before every mechanism; this class holds v, one vector per
    head.
    Rotary positions have no meaning in a sum, so they are refused; a bias has one.
    Costs O(h n m c) memory, c times that of dot products: for sentences, not for pages.
    """

    supports = ALL_FEATURES & ~AttentionFeature.ROTARY

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.score_weight = nn.Parameter(torch.randn(num_heads, head_dim) * head_dim**-0.5)

    def attention_weights(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        pairs = rearrange(q, "b h n c -> b h n 1 c") + rearrange(
            repeat_kv(k, q), "b h m c -> b h 1 m c"
        )
        scores = einsum(self.score_weight.to(q.dtype), pairs.tanh(), "h c, b h n m c -> b h n m")
        return softmax(scores + as_bias(q, k, context))
