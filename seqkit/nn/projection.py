"""From the hidden states of an example to one vector.

b batch · n tokens · d width of the hidden states · k width of the vector · h heads · c channels of one head
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.nn.block import MLP, Activation
from seqkit.nn.pooling import pooled


class Projection(nn.Module, ABC):
    """Base class of layers from hidden states [b n d] to vectors [b k], built as `(dim, num_outputs) -> Projection`.

    dim: d; of wider hidden states the first d channels are read. num_outputs: k.
    """

    dim: int
    num_outputs: int

    def forward(self, hidden: Tensor, valid: Tensor) -> Tensor:
        """Vectors [b k] of hidden states [b n d]. valid: [b n] bool, True = real."""
        return self.vectors(hidden[..., : self.dim], valid)

    @abstractmethod
    def vectors(self, hidden: Tensor, valid: Tensor) -> Tensor:
        """Vectors [b k]; padding must not change them."""


class LinearProjection(Projection):
    """Pooled tokens, a linear layer, an activation.

    pool: as of `SequenceHead`. bias: whether the linear layer has one. activation: activation behind it; None: none.

    >>> hidden, valid = torch.randn(2, 7, 8), torch.ones(2, 7, dtype=torch.bool)
    >>> LinearProjection(8, 3, pool="last")(hidden, valid).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        dim: int,
        num_outputs: int,
        *,
        pool: Literal[
            "mean", "sum", "max", "last", "first", "weighted_mean", "mean_sqrt_len"
        ] = "mean",
        bias: bool = False,
        activation: Activation | None = None,
    ):
        super().__init__()
        self.dim = dim
        self.num_outputs = num_outputs
        self.pool = pool
        self.linear = nn.Linear(dim, num_outputs, bias=bias)
        self.activation = nn.Identity() if activation is None else activation()

    def vectors(self, hidden: Tensor, valid: Tensor) -> Tensor:
        """Vectors [b k]."""
        found: Tensor = self.activation(self.linear(pooled(hidden, valid, self.pool)))
        return found


class AttentionPooling(Projection):
    """A learned query that attends to all tokens, and an MLP with a norm before it and a residual around both.

    The head of SigLIP's image encoder (Zhai et al. 2022, Scaling Vision Transformers, section 3.2). num_heads: heads of
    the attention. mlp, norm: as of a block.
    Raises ValueError where the vectors are not as wide as the hidden states, or heads do not divide the width.

    >>> hidden, valid = torch.randn(2, 7, 8), torch.ones(2, 7, dtype=torch.bool)
    >>> AttentionPooling(8, 8, num_heads=2)(hidden, valid).shape
    torch.Size([2, 8])
    """

    def __init__(
        self,
        dim: int,
        num_outputs: int,
        *,
        num_heads: int = 8,
        mlp: Callable[[int], nn.Module] = MLP,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
    ):
        super().__init__()
        if num_outputs != dim:
            raise ValueError(
                f"AttentionPooling gives vectors of width {dim}, and {num_outputs} is asked for; use {dim}"
            )
        if num_heads < 1 or dim % num_heads:
            raise ValueError(f"num_heads={num_heads} does not divide dim={dim}; make it a divisor")
        self.dim = self.num_outputs = dim
        self.num_heads = num_heads
        self.query = nn.Parameter(torch.randn(dim) * 0.02)
        self.qkv_proj = nn.Linear(dim, 3 * dim)
        self.out_proj = nn.Linear(dim, dim)
        self.norm = norm(dim)
        self.mlp = mlp(dim)

    def vectors(self, hidden: Tensor, valid: Tensor) -> Tensor:
        """Vectors [b d]."""
        query = self.query.expand(hidden.shape[0], 1, -1)
        joined = self.qkv_proj(torch.cat([query, hidden], dim=1))
        q, k, v = rearrange(joined, "b n (three h c) -> three b h n c", three=3, h=self.num_heads)
        mask = rearrange(valid, "b n -> b 1 1 n")
        found = F.scaled_dot_product_attention(q[:, :, :1], k[:, :, 1:], v[:, :, 1:], mask)
        found = self.out_proj(rearrange(found, "b h 1 c -> b (h c)"))
        vectors: Tensor = found + self.mlp(self.norm(found))
        return vectors
