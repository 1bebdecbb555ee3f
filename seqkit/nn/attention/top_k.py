"""Attention of each query to its k best keys.

b batch · n queries · m keys · h heads · c channels of one head
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import einsum
from torch import Tensor

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import ALL_FEATURES
from seqkit.nn.attention.mechanism import DenseScoreAttention, as_bias, repeat_kv, softmax
from seqkit.nn.checks import check_at_least
from seqkit.nn.recurrence import is_exporting


class TopKAttention(DenseScoreAttention):
    """Softmax over the k highest scores of each query (Zhao et al. 2019, Explicit Sparse Transformer, section 3).

    k: number of keys that a query attends to. Scores are scaled dot products. Masked keys do not count among the k;
    where fewer are left, all of them are used.
    Keys that tie with the k-th best, up to rounding, are used too: neither order nor padding decides. All scores are
    computed: this sharpens attention and saves nothing, O(n m) memory for a head.
    Raises ValueError for k below 1.
    """

    supports = ALL_FEATURES

    def __init__(self, num_heads: int, head_dim: int, *, k: int):
        super().__init__()
        check_at_least(1, k=k)
        self.k = k

    def attention_weights(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """[b h n m], zero but for the best keys."""
        scores = einsum(q, repeat_kv(k, q), "b h n c, b h m c -> b h n m")
        scores = scores / q.shape[-1] ** 0.5 + as_bias(q, k, context)
        # an exported graph may not ask how many there are
        missing = self.k if is_exporting() else max(self.k - scores.shape[-1], 0)
        last = F.pad(scores, [0, missing], value=-torch.inf).topk(self.k, dim=-1).values[..., -1:]
        # a repeated token at a clipped distance ties but for rounding, which is not the same with a cache
        largest = scores.masked_fill(scores == -torch.inf, 0.0).abs().amax(dim=-1, keepdim=True)
        rounding = 8 * torch.finfo(scores.dtype).eps * largest
        return softmax(scores.masked_fill(scores < last - rounding, -torch.inf))
