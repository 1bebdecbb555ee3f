"""The mixer of LFM2: a causal convolution over a few tokens, between two gates.

b batch · n tokens · d width · k kernel size
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqkit.nn.convolution import CausalConvolution, init_as_conv1d
from seqkit.nn.mixers.base import StateMixer


class ShortConvolution(StateMixer):
    """W_out(C * convolution(B * u)) with B, C and u projections of x (Liquid AI 2025, LFM2).

    It sees kernel_size tokens, the token itself included, and no others: a hybrid needs layers that see more.
    bias: whether projections and convolution have one. Weights start as those of torch.
    Time O(n d^2); its state are the last kernel_size - 1 inputs of the convolution [b k-1 d].
    """

    def __init__(self, dim: int, num_heads: int = 1, *, kernel_size: int = 3, bias: bool = False):
        super().__init__(dim, num_heads)
        self.in_proj = nn.Linear(dim, 3 * dim, bias=bias)
        self.convolution = CausalConvolution(dim, kernel_size=kernel_size)
        self.convolution_bias = nn.Parameter(torch.empty(dim)) if bias else None
        init_as_conv1d(kernel_size, self.convolution.weight)
        if self.convolution_bias is not None:
            init_as_conv1d(kernel_size, self.convolution_bias)
        self.out_proj = nn.Linear(dim, dim, bias=bias)

    def step(self, x: Tensor, valid: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
        B, C, u = self.in_proj(x).chunk(3, dim=-1)
        y, state = self.convolution.step(B * u, valid, state)
        if self.convolution_bias is not None:
            y = y + self.convolution_bias
        return self.out_proj(C * y), state

    def uncounted_flops(self, x: Tensor) -> int:
        """FLOPs of one call that torch's counter does not see: 2 b n d k of the convolution, and 2 b n d of gates."""
        return 2 * x.numel() * (self.convolution.kernel_size + 1)
