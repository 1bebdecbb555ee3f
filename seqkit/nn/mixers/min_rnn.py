"""Minimal recurrent networks, minGRU and minLSTM: gates that see the token alone, so that the state is a linear scan.

b batch · n tokens · d width · e inner width
"""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.nn.checks import check_at_least
from seqkit.nn.linear_scan import linear_scan, linear_scan_flops
from seqkit.nn.mixers.base import StateMixer
from seqkit.nn.padding import zero_padded
from seqkit.nn.precision import float32_or_more


class MinimalRecurrence(nn.Module):
    """h_t = (1 - w_t) h_(t-1) + w_t g(c_t): g(c) is c + 1/2 from 0 on and sigmoid(c) below, so that states are positive
    (Feng et al. 2024, appendix B.2).

    The paper sums logarithms, for want of a scan that multiplies; the states are the same. They start from zero.
    """

    def forward(
        self, candidate: Tensor, gates: list[Tensor], valid: Tensor | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """States h [b n e], and the state [b e] after each last real token.

        candidate: c. gates: before the sigmoid; one: w = sigmoid(it), two: w = i / (f + i) of input and forget gate.
        [b n e] each.
        """
        exact = float32_or_more(candidate.dtype)
        candidate, *gates = (t.to(exact) for t in (candidate, *gates))
        if len(gates) == 2:
            # i / (f + i) of their logarithms: a quotient of two small gates would be 0 / 0
            gates = [F.logsigmoid(gates[0]) - F.logsigmoid(gates[1])]
        write = gates[0].sigmoid()
        if valid is not None:
            write = zero_padded(write, valid)
        return linear_scan(1 - write, write * positive(candidate), state)

    def uncounted_flops(self, candidate: Tensor) -> int:
        """FLOPs of one call that torch's counter does not see: those of the scan."""
        b, n, e = candidate.shape
        return linear_scan_flops(b, n, e)


def positive(x: Tensor) -> Tensor:
    """g(x) = x + 1/2 for x >= 0, else sigmoid(x). As a sum, since torch's `where` takes twelve times a sum's time."""
    above = x.relu()
    return above + (x - above).sigmoid()


class _MinRNN(StateMixer):
    """expand: states / dim (the paper's alpha); above 1, a projection leads back to dim, as in minGRU-pytorch."""

    num_gates: ClassVar[int]

    def __init__(self, dim: int, num_heads: int = 1, *, expand: int = 1):
        super().__init__(dim, num_heads)
        check_at_least(1, expand=expand)
        width = expand * dim
        self.in_proj = nn.Linear(dim, (1 + self.num_gates) * width)
        self.recurrence = MinimalRecurrence()
        self.out_proj = nn.Linear(width, dim, bias=False) if expand > 1 else None

    def step(self, x: Tensor, valid: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
        candidate, *gates = self.in_proj(x).chunk(1 + self.num_gates, dim=-1)
        h, last = self.recurrence(candidate, gates, valid, state)
        y = h.to(x.dtype)
        if self.out_proj is not None:
            y = self.out_proj(y)
        return y, last


class MinGRU(_MinRNN):
    """h_t = (1 - z_t) h_(t-1) + z_t g(W_h x_t), z_t = sigmoid(W_z x_t) (Feng et al. 2024, section 3.1).

    g keeps the states positive (`MinimalRecurrence`). With an `expand` of 1 they are the output, never below 0.
    `in_proj` holds W_h above W_z, with biases, which that package leaves out; weights start as those of `nn.Linear`.
    The convolution and the MLP of the paper's blocks are none of it.
    Time O(n d e), and a step with a cache costs one token; the cache is one state.
    Raises ValueError for expand below 1.
    """

    num_gates = 1


class MinLSTM(_MinRNN):
    """h_t = f_t / (f_t + i_t) h_(t-1) + i_t / (f_t + i_t) g(W_h x_t) (Feng et al. 2024, section 3.2).

    f_t = sigmoid(W_f x_t), i_t = sigmoid(W_i x_t). `in_proj` holds W_h, W_i and W_f, one above the other. All else is
    as in `MinGRU`.
    """

    num_gates = 2
