"""Scaled dot-product attention with several heads (Vaswani et al. 2017, section 3.2).

b batch · n tokens that read · m tokens that are read · d width · h heads · c channels of one head
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Reading:
    """Who reads whom, as `scaled_dot_product_attention` takes it, and how queries and keys are turned by position.

    attend: [b|1 h|1 n|1 m] bool (True = may read) or float (added to the scores, -inf = may not); None: everyone, or
    the past.
    causal: True: token i reads tokens <= i. Only with attend=None and n == m, since SDPA aligns its triangle top-left.
    rotation: [b 1 n r] complex numbers of length one that turn r channel pairs of queries and keys; None: no rotation.
    """

    attend: Tensor | None = None
    causal: bool = False
    rotation: Tensor | None = None


class KeysValues:
    """Keys and values that one layer has computed, in slots filled from the left."""

    def __init__(self, max_tokens: int):
        self.max_tokens = max_tokens
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Write keys and values [b h n c] from slot `start` on; give all so far, [b h start+n c].

        Raises ValueError if there are not as many slots.
        """
        if self.keys is None or self.values is None:
            b, h, _, c = keys.shape
            self.keys, self.values = (
                keys.new_empty(b, h, self.max_tokens, c),
                values.new_empty(b, h, self.max_tokens, c),
            )
        end = start + keys.shape[2]
        if end > self.max_tokens:
            raise ValueError(
                f"the cache has room for {self.max_tokens} tokens and was given {end}; make it with a larger max_tokens"
            )
        self.keys[:, :, start:end], self.values[:, :, start:end] = keys, values
        return self.keys[:, :, :end], self.values[:, :, :end]


class Attention(nn.Module):
    """Every token asks all tokens that it may read, and takes what the best matches say.

    qk_norm: `channels -> nn.Module`, normalises queries and keys per head, so that scores stay bounded (Dehghani et al.
    2023, section 2, with LayerNorm); None: not.
    bias: whether the four projections have one. dropout: of attention weights, while training.
    Raises ValueError if `dim` is not a multiple of `num_heads`.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        qk_norm: Callable[[int], nn.Module] | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        if dim < 1 or num_heads < 1 or dim % num_heads:
            raise ValueError(f"dim={dim} does not split into num_heads={num_heads} equal heads; make it a multiple")
        self.num_heads, self.dropout = num_heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.out = nn.Linear(dim, dim, bias=bias)
        self.query_norm = qk_norm(dim // num_heads) if qk_norm is not None else None
        self.key_norm = qk_norm(dim // num_heads) if qk_norm is not None else None

    def forward(self, x: Tensor, reading: Reading, memory: tuple[KeysValues, int] | None = None) -> Tensor:
        """x: [b n d]. memory: this layer's keys and values so far and how many slots are filled."""
        q, k, v = rearrange(self.qkv(x), "b n (three h c) -> three b h n c", three=3, h=self.num_heads)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if reading.rotation is not None:
            q, k = rotate(q, reading.rotation), rotate(k, reading.rotation)
        if memory is not None:
            k, v = memory[0].extend(k, v, memory[1])
        dropout = self.dropout if self.training else 0.0
        read = F.scaled_dot_product_attention(q, k, v, reading.attend, dropout, is_causal=reading.causal)
        return self.out(rearrange(read, "b h n c -> b n (h c)"))


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
