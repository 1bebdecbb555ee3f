"""Mamba's mixer: a convolution and a selective state space layer, behind a gate.

b batch · n tokens · d width · e inner width · s states of one channel · r rank of dt · k kernel size
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.nn.checks import check_at_least
from seqkit.nn.convolution import CausalConvolution, init_as_conv1d
from seqkit.nn.mixers.base import BOTH_DIRECTIONS, StateMixer
from seqkit.nn.padding import zero_padded
from seqkit.nn.precision import float32_or_more
from seqkit.nn.selective_scan import scan_flops, selective_scan

SSMState = tuple[Tensor, Tensor]
"""State of one layer: the last inputs of the convolution [b k-1 e], and the hidden state [b e s]."""


def initial_dt_bias(width: int) -> Tensor:
    """[e], softplus of which is log-uniform in [0.001, 0.1] (Gu and Dao 2023, section 3.6)."""
    dt = torch.empty(width).uniform_(math.log(0.001), math.log(0.1)).exp()
    return dt + torch.log(-torch.expm1(-dt))


class SelectiveSSM(nn.Module):
    """Convolution and selective state space layer, in one direction (Gu and Dao 2023, algorithm 2).

    u = SiLU(causal depthwise convolution of x); dt = softplus(W u of rank r + bias); B, C = W u;
    y = scan(u, dt, A, B, C) + D u, with A = -exp(A_log).
    A starts as S4D-real, A_s = -(s + 1); D at 1; dt's bias so that dt is log-uniform in [0.001, 0.1], its weight
    uniform within r^-1/2 (ibid., section 3.6, and the paper's code).
    A_log is stored flat: optimizers decay matrices, and the paper's code does not decay it.
    """

    def __init__(
        self,
        width: int,
        *,
        num_states: int,
        rank: int,
        kernel_size: int,
        norm: Callable[[int], nn.Module] = nn.Identity,
    ):
        super().__init__()
        self.width = width
        self.num_states = num_states
        self.rank = rank
        self.convolution = CausalConvolution(width, kernel_size=kernel_size)
        self.convolution_bias = nn.Parameter(torch.empty(width))
        init_as_conv1d(kernel_size, self.convolution.weight, self.convolution_bias)
        self.x_proj = nn.Linear(width, rank + 2 * num_states, bias=False)
        self.dt_norm = norm(rank)
        self.B_norm = norm(num_states)
        self.C_norm = norm(num_states)
        self.dt_proj = nn.Linear(rank, width)
        self.A_log = nn.Parameter(torch.arange(1.0, num_states + 1).log().repeat(width))
        self.D = nn.Parameter(torch.ones(width))
        nn.init.uniform_(self.dt_proj.weight, -(rank**-0.5), rank**-0.5)
        with torch.no_grad():
            self.dt_proj.bias.copy_(initial_dt_bias(width))

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """y [b n e] from x [b n e].

        valid: [b n] bool, True = real; None: all are. Padding may be on either side; x is zero there.
        """
        return self._scan(self.convolution(x), valid, None)[0]

    def step(
        self, x: Tensor, valid: Tensor | None, state: SSMState | None
    ) -> tuple[Tensor, SSMState]:
        """The same for the tokens after a state, and the state after each last real one, padding being on the right.

        state: None: that before the first token.
        """
        tail, hidden = state or (None, None)
        convolved, tail = self.convolution.step(x, valid, tail)
        y, hidden = self._scan(convolved, valid, hidden)
        return y, (tail, hidden)

    def _scan(
        self, convolved: Tensor, valid: Tensor | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        u = F.silu(convolved + self.convolution_bias)
        dt, B, C = self.x_proj(u).split([self.rank, self.num_states, self.num_states], dim=-1)
        dt = F.softplus(self.dt_proj(self.dt_norm(dt)))
        if valid is not None:  # with dt = 0 a state stays what it was, whatever the input
            dt = zero_padded(dt, valid)
        A = -rearrange(
            self.A_log.to(float32_or_more(u.dtype)), "(e s) -> e s", s=self.num_states
        ).exp()
        y, last = selective_scan(u, dt, A, self.B_norm(B), self.C_norm(C), state)
        return torch.addcmul(y, u, self.D.to(u.dtype)), last

    def uncounted_flops(self, x: Tensor) -> int:
        """FLOPs of one call that torch's counter does not see: b n e (5 s + 1) of the scan, b n e (2 k + 1) of the
        convolution with its bias, 2 b n e of the skip D. `scan_flops` says what the first are."""
        b, n, e = x.shape
        return scan_flops(b, n, e, self.num_states) + b * n * e * (
            2 * self.convolution.kernel_size + 3
        )


class MambaMixer(StateMixer):
    """W_out(SSM(W_x x) * SiLU(W_z x)) (Gu and Dao 2023, figure 3).

    num_states: states of a channel. expand: inner width / dim. kernel_size: tokens of the convolution. rank: of dt;
    None: dim / 16. dt_norm: norm of dt, of B and of C, before they are used (Jamba; Falcon Mamba, without weights).
    bidirectional: True: a second SSM with weights of its own runs over the sequence reversed; the projections and the
    gate are shared, and the outputs added (Zhu et al. 2024, Vision Mamba, algorithm 1).
    Raises ValueError for sizes below 1.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 1,
        *,
        num_states: int = 16,
        expand: int = 2,
        kernel_size: int = 4,
        rank: int | None = None,
        dt_norm: Callable[[int], nn.Module] = nn.Identity,
        bidirectional: bool = False,
    ):
        super().__init__(dim, num_heads)
        check_at_least(1, num_states=num_states, expand=expand, rank=rank)
        width = expand * dim

        def direction() -> SelectiveSSM:
            return SelectiveSSM(
                width,
                num_states=num_states,
                rank=rank or -(-dim // 16),
                kernel_size=kernel_size,
                norm=dt_norm,
            )

        self.in_proj = nn.Linear(dim, 2 * width, bias=False)
        self.ssm = direction()
        self.reversed_ssm = direction() if bidirectional else None
        self.out_proj = nn.Linear(width, dim, bias=False)
        if bidirectional:
            self.supports = BOTH_DIRECTIONS

    def mix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        u, z = self.in_proj(x).chunk(2, dim=-1)
        y = self.ssm(u, valid)
        if self.reversed_ssm is not None:
            # padding comes first then: it holds the state at zero, so this direction begins at the last real token
            back = self.reversed_ssm(u.flip(1), None if valid is None else valid.flip(1))
            y = y + back.flip(1)
        return self.out_proj(y * F.silu(z))

    def step(
        self, x: Tensor, valid: Tensor | None, state: SSMState | None
    ) -> tuple[Tensor, SSMState]:
        u, z = self.in_proj(x).chunk(2, dim=-1)
        y, state = self.ssm.step(u, valid, state)
        return self.out_proj(y * F.silu(z)), state
