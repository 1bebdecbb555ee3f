"""Scaled dot-product attention (Vaswani et al. 2017): by torch's fused kernel, and as plain as it can be written.

b batch · n queries · m keys · h heads · c channels of one head · d channels of a value
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum
from torch import Tensor

from seqkit.nn.attention.context import ALL_FEATURES, AttentionContext
from seqkit.nn.attention.mechanism import AttentionMechanism, as_bias, bounded, check_positive, repeat_kv, softmax
from seqkit.nn.dropout import InheritedDropout


class ScaledDotProductAttention(AttentionMechanism, InheritedDropout):
    """softmax(q k / temperature) v (Vaswani et al. 2017, equation 1), by torch's `scaled_dot_product_attention`.

    temperature: None: sqrt(head_dim); towards 0 each query gets the value of its best key. dropout: dropout of
    attention weights; None: the backbone's.
    softcap: scores are bounded by it, softcap * tanh(scores / softcap), before mask and bias are added (Gemma 2; Gemma
    team 2024, section 2); None: they are not. Torch's kernel has no bound, so it costs O(n m) memory for a head.
    Raises ValueError for a temperature or a softcap that is not above 0, or a dropout outside [0, 1).
    """

    supports = ALL_FEATURES

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        temperature: float | None = None,
        dropout: float | None = None,
        softcap: float | None = None,
    ):
        super().__init__(dropout)
        check_positive(temperature=temperature, softcap=softcap)
        self.temperature = head_dim**0.5 if temperature is None else temperature
        self.softcap = softcap

    def forward(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: Any = None) -> Tensor:
        if cache is not None:
            k, v = cache.update(k, v)
        if self.softcap is not None:
            weights = F.dropout(self.attention_weights(q, k, context), self.dropout, self.training)
            return einsum(weights, repeat_kv(v, q), "b h n m, b h m c -> b h n c")
        attn_mask, is_causal = context.attn_mask, context.is_causal
        if context.relative is not None:
            attn_mask, is_causal = self._relative_scores(q, context.relative) + as_bias(q, k, context), False
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask,
            self.dropout if self.training else 0.0,
            is_causal=is_causal,
            scale=1 / self.temperature,
            enable_gqa=q.shape[1] != k.shape[1],
        )

    def attention_weights(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        scores = einsum(q, repeat_kv(k, q), "b h n c, b h m c -> b h n m") / self.temperature
        if context.relative is not None:
            scores = scores + self._relative_scores(q, context.relative)
        return softmax(bounded(scores, self.softcap) + as_bias(q, k, context)).to(q.dtype)

    def _relative_scores(self, q: Tensor, relative: Tensor) -> Tensor:
        """Scores of the relative position embeddings (Shaw et al. 2018, equation 4), [b h n m]."""
        return einsum(q, relative.to(q.dtype), "b h n c, b n m c -> b h n m") / self.temperature


def soft_lookup(
    query: Tensor, key: Tensor, value: Tensor, *, temperature: float, attn_mask: Tensor | None = None
) -> Tensor:
    """Attention as a soft dictionary, as plain as it can be written: what the other mechanisms are checked against.

    query: [... n c], key: [... m c], value: [... m d]. attn_mask: [... n m] bool, True = may attend; None: no mask.
    Returns [... n d], for each query the mean of the values weighted by exp(query . key / temperature). Towards
    temperature 0 that is the value of the best key, towards infinity the plain mean. Zeros where all keys are masked.
    Raises ValueError for a temperature that is not above 0.
    """
    check_positive(temperature=temperature)
    scores = einsum(query, key, "... n c, ... m c -> ... n m") / temperature
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    return einsum(softmax(scores), value, "... n m, ... m d -> ... n d")
