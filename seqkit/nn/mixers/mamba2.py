"""Mamba-2's mixer: a convolution and a state space layer with one decay for each head, behind a gate.

b batch · n tokens · d width · g groups · r heads of each · e channels of a head · s states of a channel
w convolved channels · k kernel size
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from seqkit.nn.checks import check_at_least, check_heads
from seqkit.nn.chunked_scan import chunked_scan, chunked_scan_flops
from seqkit.nn.convolution import CausalConvolution, init_as_conv1d
from seqkit.nn.mixers.base import StateMixer
from seqkit.nn.mixers.mamba import initial_dt_bias
from seqkit.nn.padding import zero_padded
from seqkit.nn.precision import float32_or_more

Mamba2State = tuple[Tensor, Tensor]
"""State of one layer: the last inputs of the convolution [b k-1 w], and the hidden states [b gr s e]."""


class Mamba2Mixer(StateMixer):
    """W_out(RMSNorm((y + D u) * SiLU(W_z x))) with y = SSD(u, dt, A, B, C) (Dao and Gu 2024, figure 6).

    h_t = exp(dt_t A) h_(t-1) + dt_t B_t u_t and y_t = C_t h_t, a matrix [s e] for each head, with one A < 0. u, B and C
    are projections of x behind a causal depthwise convolution with a bias, and SiLU; dt = softplus(W_dt x + bias).
    num_states: s. expand: inner width / dim; the heads divide it, into 64 channels in the paper. width: inner width in
    place of that. num_mixer_heads: heads, where attention beside it has another number; None: num_heads. num_groups:
    groups of heads that share B and C and are normed together. kernel_size: tokens of the convolution. norm: where
    RMSNorm is: "after" or "before" the gate; None: there is none (Falcon-H1). eps: its summand. scales: factors of z,
    u, B, C and dt behind their projection (multipliers of Falcon-H1); empty: none.
    Weights start as in the paper's code: projections and convolution as those of torch, A uniform in [-16, -1], D at 1,
    and the bias so that softplus(bias) is log-uniform in [0.001, 0.1].
    Raises ValueError for sizes below 1, for heads or groups that do not divide the inner width or the heads, for
    another norm, or other than five scales.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        num_states: int = 128,
        expand: int = 2,
        num_groups: int = 1,
        kernel_size: int = 4,
        width: int | None = None,
        num_mixer_heads: int | None = None,
        norm: Literal["after", "before"] | None = "after",
        eps: float = 1e-5,
        scales: Sequence[float] = (),
    ):
        check_at_least(1, num_states=num_states, expand=expand, num_groups=num_groups)
        check_at_least(1, width=width, num_mixer_heads=num_mixer_heads)
        num_heads = num_mixer_heads or num_heads
        super().__init__(dim, num_heads)
        if norm not in ("after", "before", None):
            raise ValueError(f"norm={norm!r}; it is one of 'after', 'before', or None")
        width = width or expand * dim
        check_heads(num_heads, width=width)
        if num_heads % num_groups:
            raise ValueError(
                f"num_groups={num_groups} does not divide the {num_heads} heads; make it a divisor"
            )
        self.head_dim = width // num_heads
        self.num_states = num_states
        self.num_groups = num_groups
        self.parts = [width, num_groups * num_states, num_groups * num_states]
        self.widths = [width, sum(self.parts), num_heads]
        self.scales = scales
        if len(scales) not in (0, 5):
            raise ValueError(f"scales={scales} are {len(scales)}; give those of z, u, B, C and dt")
        self.in_proj = nn.Linear(dim, sum(self.widths), bias=False)
        self.convolution = CausalConvolution(sum(self.parts), kernel_size=kernel_size)
        self.convolution_bias = nn.Parameter(torch.empty(sum(self.parts)))
        init_as_conv1d(kernel_size, self.convolution.weight, self.convolution_bias)
        self.A_log = nn.Parameter(torch.empty(num_heads).uniform_(1.0, 16.0).log())
        self.dt_bias = nn.Parameter(initial_dt_bias(num_heads))
        self.D = nn.Parameter(torch.ones(num_heads))
        self.norm = norm
        self.eps = eps
        if norm is not None:
            self.norm_weight = nn.Parameter(torch.ones(width))
        self.out_proj = nn.Linear(width, dim, bias=False)

    def mix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        z, uBC, dt = self._projected(x)
        return self._output(z, self.convolution(uBC), dt, valid, None)[0]

    def step(
        self, x: Tensor, valid: Tensor | None, state: Mamba2State | None
    ) -> tuple[Tensor, Mamba2State]:
        z, uBC, dt = self._projected(x)
        tail, hidden = state or (None, None)
        convolved, tail = self.convolution.step(uBC, valid, tail)
        y, hidden = self._output(z, convolved, dt, valid, hidden)
        return y, (tail, hidden)

    def uncounted_flops(self, x: Tensor) -> int:
        """FLOPs of one call that torch's counter does not see: b n w (2 k + 1) of the convolution and bias, 2 b n gre
        of the skip D, and those of the scan."""
        b, n, _ = x.shape
        convolution = sum(self.parts) * (2 * self.convolution.kernel_size + 1)
        return b * n * (convolution + 2 * self.parts[0]) + chunked_scan_flops(
            b, self.num_heads, n, self.num_states, self.head_dim, delta=False
        )

    def _projected(self, x: Tensor) -> Sequence[Tensor]:
        """z, u beside B and C, and dt [b n …]."""
        projected = self.in_proj(x)
        if self.scales:
            sizes = torch.tensor([self.widths[0], *self.parts, self.widths[2]])
            scales = torch.tensor(self.scales, dtype=x.dtype).repeat_interleave(sizes)
            projected = projected * scales.to(x.device)
        return projected.split(self.widths, dim=-1)

    def _output(
        self,
        z: Tensor,
        convolved: Tensor,
        dt: Tensor,
        valid: Tensor | None,
        state: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Outputs [b n d] and the last hidden states. convolved: u, B and C [b n w]."""
        u, B, C = F.silu(convolved + self.convolution_bias).split(self.parts, dim=-1)
        exact = float32_or_more(z.dtype)
        dt = F.softplus(dt.to(exact) + self.dt_bias)
        if valid is not None:  # with dt = 0 a state stays what it was, whatever the input
            dt = zero_padded(dt, valid)
        dt = rearrange(dt, "b n h -> b h n")
        u = rearrange(u, "b n (h e) -> b h n e", e=self.head_dim)
        y, last = chunked_scan(
            self._by_head(C),
            self._by_head(B),
            rearrange(dt, "b h n -> b h n 1") * u,
            -rearrange(self.A_log.to(exact).exp(), "h -> h 1") * dt,
            state,
        )
        y = torch.addcmul(y, rearrange(self.D, "h -> h 1 1").to(y.dtype), u)
        y = rearrange(y, "b (g r) n e -> b n g (r e)", g=self.num_groups)
        gate = F.silu(rearrange(z, "b n (g w) -> b n g w", g=self.num_groups))
        if self.norm == "before":
            y = self._normed(y) * gate
        else:
            y = self._normed(y * gate)
        return self.out_proj(rearrange(y, "b n g w -> b n (g w)").to(z.dtype)), last

    def _normed(self, y: Tensor) -> Tensor:
        """[b n g w] of which each group has its norm, if there is one."""
        if self.norm is None:
            return y
        weight = rearrange(self.norm_weight, "(g w) -> g w", g=self.num_groups)
        return F.rms_norm(y, y.shape[-1:], eps=self.eps) * weight

    def _by_head(self, x: Tensor) -> Tensor:
        """B or C [b gr n s] from [b n gs]."""
        # before the axes change places: else its strides fix the length of an exported graph
        x = repeat(
            x, "b n (g s) -> b n (g r) s", g=self.num_groups, r=self.num_heads // self.num_groups
        )
        return rearrange(x, "b n h s -> b h n s")
