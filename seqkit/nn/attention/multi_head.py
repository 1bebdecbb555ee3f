"""Multi-head attention: projections around an attention mechanism (Vaswani et al. 2017, section 3.2.2).

b batch · n queries · m keys · d width · h heads · g key/value heads · c channels of one head · r channel pairs
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.nn.attention.context import AttentionContext, AttentionFeature, check_supported
from seqkit.nn.attention.kv_cache import LayerCache
from seqkit.nn.attention.mechanism import AttentionMechanism
from seqkit.nn.attention.scaled_dot_product import ScaledDotProductAttention
from seqkit.nn.convolution import CausalConvolution


class AttentionLayer(nn.Module, ABC):
    """Base class of what stands as `attention` in a block. Built as `(dim, num_heads) -> AttentionLayer`.

    supports, needs_mask, needs_adjacency: as in `AttentionMechanism`.
    """

    supports: AttentionFeature
    needs_mask: bool = True
    needs_adjacency: bool = False

    @abstractmethod
    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None, memory: Tensor | None = None
    ) -> Tensor:
        """[b n d] from x [b n d]. memory: [b m d], the encoder's output, for cross-attention. cache: of this layer."""

    @abstractmethod
    def init_cache(self, max_tokens: int) -> LayerCache:
        """An empty cache."""

    def check_supported(self, required: AttentionFeature) -> None:
        """Raise ValueError where a required feature is not supported."""
        check_supported(type(self).__name__, self.supports, required)


class MultiHeadAttention(AttentionLayer):
    """Multi-head attention, self or cross (Vaswani et al. 2017, section 3.2.2).

    mechanism: `(num_heads, head_dim) -> AttentionMechanism`.
    num_kv_heads: key/value heads, each shared by num_heads / num_kv_heads query heads (grouped-query attention; Ainslie
    et al. 2023; 1: multi-query, Shazeer 2019); None: as many as heads.
    qk_norm: `head_dim -> nn.Module`, normalises queries and keys per head, so that scores stay bounded (Dehghani et al.
    2023, section 2, with LayerNorm); None: none. bias: whether the four projections have one.
    convolution: `width -> CausalConvolution` over the projected queries, keys and values (So et al. 2021, section 4.2);
    causal sequences only, since it knows neither edges nor segments; None: none.
    Raises ValueError if `dim` is not a multiple of `num_heads`, or that of `num_kv_heads`.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        mechanism: Callable[[int, int], AttentionMechanism] = ScaledDotProductAttention,
        num_kv_heads: int | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
        bias: bool = True,
        convolution: Callable[[int], CausalConvolution] | None = None,
    ):
        super().__init__()
        if dim < 1 or num_heads < 1:
            raise ValueError(f"dim={dim} and num_heads={num_heads} count channels and heads; make both 1 or more")
        if dim % num_heads:
            raise ValueError(f"dim={dim} does not split into num_heads={num_heads} equal heads; make it a multiple")
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(
                f"num_heads={num_heads} cannot share num_kv_heads={num_kv_heads} equally; make it a divisor"
            )
        head_dim = dim // num_heads
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.qkv_proj = nn.Linear(dim, dim + 2 * num_kv_heads * head_dim, bias=bias)
        self.convolution = convolution(self.qkv_proj.out_features) if convolution is not None else None
        self.mechanism = mechanism(num_heads, head_dim)
        self.out_proj = nn.Linear(dim, dim, bias=bias)
        self.query_norm = qk_norm(head_dim) if qk_norm is not None else None
        self.key_norm = qk_norm(head_dim) if qk_norm is not None else None
        self.supports = self.mechanism.supports
        if self.convolution is not None:
            self.supports &= ~CausalConvolution.UNSUPPORTED
        self.needs_mask, self.needs_adjacency = self.mechanism.needs_mask, self.mechanism.needs_adjacency
        if num_kv_heads != num_heads:
            self.check_supported(AttentionFeature.GROUPED_QUERY)

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None, memory: Tensor | None = None
    ) -> Tensor:
        """[b n d] from x [b n d]. memory: [b m d], the encoder's output, for cross-attention. cache: of this layer."""
        if memory is None:
            qkv = self.qkv_proj(x)
            if self.convolution is not None:
                qkv = self.convolution(qkv, context.query_valid, cache)
            q, k, v = self._split_heads(qkv, self.num_heads)
        else:
            q, k, v = self._cross_qkv(x, memory, cache)
        if context.rotary is not None:
            q, k = apply_rotary(q, context.rotary), apply_rotary(k, context.rotary)
        own_cache = cache.self_attention if cache is not None and memory is None else None
        output = self.mechanism(q, k, v, context, own_cache)
        return self.out_proj(rearrange(output, "b h n c -> b n (h c)"))

    def _split_heads(self, qkv: Tensor, num_queries: int) -> tuple[Tensor, Tensor, Tensor]:
        # split, then rearrange: its gradient is one copy; the other way round it is two
        sizes = [heads * self.head_dim for heads in (num_queries, self.num_kv_heads, self.num_kv_heads)]
        q, k, v = (rearrange(x, "b n (h c) -> b h n c", c=self.head_dim) for x in qkv.split(sizes, dim=-1))
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        return q, k, v

    def _cross_qkv(self, x: Tensor, memory: Tensor, cache: LayerCache | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x; keys and values of the memory, computed once for all decoding steps."""
        d = x.shape[-1]
        weight, bias = self.qkv_proj.weight, self.qkv_proj.bias
        q = F.linear(x, weight[:d], None if bias is None else bias[:d])
        q = rearrange(q, "b n (h c) -> b h n c", h=self.num_heads)
        if self.query_norm is not None:
            q = self.query_norm(q)
        if cache is not None and cache.cross_attention is not None:
            return q, *cache.cross_attention
        _, k, v = self._split_heads(F.linear(memory, weight[d:], None if bias is None else bias[d:]), 0)
        if cache is not None:
            cache.cross_attention = (k, v)
        return q, k, v

    def init_cache(self, max_tokens: int) -> LayerCache:
        """An empty cache."""
        return LayerCache(self.mechanism.init_cache(max_tokens))

    def check_supported(self, required: AttentionFeature) -> None:
        """Raise ValueError where its mechanism or its convolution does not support a required feature."""
        name = type(self.mechanism).__name__
        check_supported(name, self.mechanism.supports, required)
        check_supported(f"{name} with a convolution", self.supports, required, "leave the convolution out")


def apply_rotary(x: Tensor, rotary: Tensor) -> Tensor:
    """Rotate channel pairs (2 i, 2 i + 1) of x [b h n c] by complex `rotary` [b 1 n r]; channels from 2 r on stay.

    In complex numbers: on a CPU five times as fast, forward and backward, as sines and cosines on halves
    (docs/decisions.md).
    """
    r = rotary.shape[-1]
    paired = x[..., : 2 * r] if x.dtype == torch.float64 else x[..., : 2 * r].float()
    if x.shape[-1] % 2:
        paired = paired.contiguous()  # complex numbers stand at even addresses only
    pairs = torch.view_as_complex(rearrange(paired, "b h n (r two) -> b h n r two", two=2))
    rotated = rearrange(torch.view_as_real(pairs * rotary), "b h n r two -> b h n (r two)").to(x.dtype)
    return rotated if x.shape[-1] == 2 * r else torch.cat([rotated, x[..., 2 * r :]], dim=-1)
