"""Attention with several heads: projections around a mechanism (Vaswani et al. 2017, section 3.2.2).

b batch · n tokens that read · m tokens that are read · d width · h heads · g heads of keys and values · c channels
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.layers.convolution import CausalConvolution
from seqkit.layers.mechanism import Mechanism, ScaledDotProduct
from seqkit.layers.memory import LayerMemory
from seqkit.layers.reading import Reading, refuse_unless_honoured


class Attention(nn.Module):
    """Every token asks those that it may read, of its own sequence or another, and takes what the best matches say.

    mechanism: `(num_heads, channels) -> Mechanism`: how queries weigh what they read.
    num_kv_heads: heads of keys and values, each shared by num_heads / num_kv_heads heads that ask (grouped queries;
    Ainslie et al. 2023; 1: multi-query, Shazeer 2019); None: as many as heads.
    qk_norm: `channels -> nn.Module`, normalises queries and keys per head, so that scores stay bounded (Dehghani et al.
    2023, section 2, with LayerNorm); None: not. bias: whether the four projections have one.
    convolution: `width -> CausalConvolution` over queries, keys and values, before they meet (So et al. 2021, section
    4.2); causal sequences only, for it knows neither links nor segments; None: not.
    Raises ValueError if `dim` is not a multiple of `num_heads`, or that of `num_kv_heads`.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        mechanism: Callable[[int, int], Mechanism] = ScaledDotProduct,
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
        channels = dim // num_heads
        self.num_heads, self.num_kv_heads, self.channels = num_heads, num_kv_heads, channels
        self.qkv = nn.Linear(dim, dim + 2 * num_kv_heads * channels, bias=bias)
        self.convolution = convolution(self.qkv.out_features) if convolution is not None else None
        self.mechanism = mechanism(num_heads, channels)
        self.out = nn.Linear(dim, dim, bias=bias)
        self.query_norm = qk_norm(channels) if qk_norm is not None else None
        self.key_norm = qk_norm(channels) if qk_norm is not None else None
        if num_kv_heads != num_heads:
            refuse_unless_honoured(type(self.mechanism).__name__, self.honours, {"groups"})

    @property
    def honours(self) -> frozenset[str]:
        """What of `reading.FEATURES` it keeps to."""
        honours = self.mechanism.honours
        return honours if self.convolution is None else honours - {"both ways", "links", "segments", "source"}

    def forward(
        self, x: Tensor, reading: Reading, memory: LayerMemory | None = None, source: Tensor | None = None
    ) -> Tensor:
        """x: [b n d]. source: [b m d] of another sequence to read instead. memory: kept between steps by this layer."""
        if source is None:
            projected = self.qkv(x)
            if self.convolution is not None:
                projected = self.convolution(projected, reading.valid, memory)
            q, k, v = self._heads(projected, self.num_heads)
        else:
            q, k, v = self._across(x, source, memory)
        if reading.rotation is not None:
            q, k = rotate(q, reading.rotation), rotate(k, reading.rotation)
        read = self.mechanism(q, k, v, reading, memory.own if memory is not None and source is None else None)
        return self.out(rearrange(read, "b h n c -> b n (h c)"))

    def _heads(self, projected: Tensor, num_queries: int) -> tuple[Tensor, Tensor, Tensor]:
        # split, then rearrange: its gradient is one copy; the other way round it is two
        sizes = [heads * self.channels for heads in (num_queries, self.num_kv_heads, self.num_kv_heads)]
        q, k, v = (rearrange(x, "b n (h c) -> b h n c", c=self.channels) for x in projected.split(sizes, dim=-1))
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        return q, k, v

    def _across(self, x: Tensor, source: Tensor, memory: LayerMemory | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x; keys and values of the source, computed once for all steps."""
        d = x.shape[-1]
        weight, bias = self.qkv.weight, self.qkv.bias
        q = F.linear(x, weight[:d], None if bias is None else bias[:d])
        q = rearrange(q, "b n (h c) -> b h n c", h=self.num_heads)
        if self.query_norm is not None:
            q = self.query_norm(q)
        if memory is not None and memory.source is not None:
            return q, *memory.source
        _, k, v = self._heads(F.linear(source, weight[d:], None if bias is None else bias[d:]), 0)
        if memory is not None:
            memory.source = (k, v)
        return q, k, v

    def init_memory(self, max_tokens: int) -> LayerMemory:
        """What this layer keeps between steps, empty."""
        return LayerMemory(self.mechanism.init_memory(max_tokens))


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Turn channel pairs (2 i, 2 i + 1) of x [b h n c] by complex `turn` [b 1 n r]; channels from 2 r on stay.

    In complex numbers: on a CPU five times as fast, forward and backward, as sines and cosines on halves
    (docs/decisions.md).
    """
    r = turn.shape[-1]
    paired = x[..., : 2 * r] if x.dtype == torch.float64 else x[..., : 2 * r].float()
    if x.shape[-1] % 2:
        paired = paired.contiguous()  # complex numbers stand at even addresses only
    pairs = torch.view_as_complex(rearrange(paired, "b h n (r two) -> b h n r two", two=2))
    turned = rearrange(torch.view_as_real(pairs * turn), "b h n r two -> b h n (r two)").to(x.dtype)
    return turned if x.shape[-1] == 2 * r else torch.cat([turned, x[..., 2 * r :]], dim=-1)
