"""Gated DeltaNet's mixer: linear attention whose state forgets, and is corrected towards each value.

b batch · n tokens · d width · h heads · r value heads of each · c keys and e values of a head
w convolved channels · k kernel size
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from seqkit.nn.checks import check_above_0, check_at_least
from seqkit.nn.chunked_scan import chunked_scan, chunked_scan_flops
from seqkit.nn.convolution import CausalConvolution, init_as_conv1d
from seqkit.nn.mixers.base import StateMixer
from seqkit.nn.mixers.mamba import initial_dt_bias
from seqkit.nn.padding import zero_padded
from seqkit.nn.precision import float32_or_more

DeltaState = tuple[Tensor, Tensor]
"""State of one layer: the last inputs of the convolution [b k-1 w], and the matrix of each value head [b hr c e]."""


class GatedDeltaNet(StateMixer):
    """W_out(RMSNorm(y) * SiLU(W_z x)) with y_t = q_t S_t of the gated delta rule (Yang, Kautz and Hatamizadeh 2024).

    S_t = a_t (I - beta_t k_t k_t) S_(t-1) + beta_t k_t v_t (equation 10), a matrix [c e] for each head. q, k and v are
    projections of x behind a causal depthwise convolution and SiLU; q and k are then scaled to length 1, and q divided
    by sqrt(c). beta = sigmoid(W_b x); a = exp(-A softplus(W_a x + bias)).
    head_dim: c; None: 3/4 dim / num_heads, rounded down: 6 dim^2 weights, as in the paper. expand_v: e / c.
    value_dim: e in place of that. num_mixer_heads: heads, where attention beside it has another number; None:
    num_heads. num_value_heads: a multiple of them, where several share q and k, as in Qwen3-Next; None: as many.
    kernel_size: tokens of the convolution. negative_eigenvalues: True: beta goes up to 2, with which a state can change
    its sign from token to token, as parity needs (Grazzi et al. 2024). eps: summand of the norm.
    Weights start as in the paper's code: projections and convolution as those of torch, A uniform in [0.01, 16], and
    the bias so that softplus(bias) is log-uniform in [0.001, 0.1].
    Raises ValueError for sizes below 1, value heads that num_heads does not divide, or an e that is not whole.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        expand_v: float = 2.0,
        num_value_heads: int | None = None,
        kernel_size: int = 4,
        negative_eigenvalues: bool = False,
        value_dim: int | None = None,
        num_mixer_heads: int | None = None,
        eps: float = 1e-5,
    ):
        check_at_least(1, head_dim=head_dim, num_value_heads=num_value_heads)
        check_at_least(1, value_dim=value_dim, num_mixer_heads=num_mixer_heads)
        num_heads = num_mixer_heads or num_heads
        super().__init__(dim, num_heads)
        check_above_0(expand_v=expand_v)
        self.head_dim = head_dim or max(1, 3 * dim // (4 * num_heads))
        num_value_heads = num_value_heads or num_heads
        if num_value_heads % num_heads:
            raise ValueError(
                f"num_value_heads={num_value_heads} is no multiple of the {num_heads} heads; "
                f"make it {num_heads * (num_value_heads // num_heads + 1)}"
            )
        self.value_dim = value_dim or round(self.head_dim * expand_v)
        if value_dim is None and self.value_dim != self.head_dim * expand_v:
            raise ValueError(
                f"expand_v={expand_v} of {self.head_dim} keys are {self.head_dim * expand_v:g} values; "
                "choose head_dim and expand_v so that their product is a whole number"
            )
        keys = num_heads * self.head_dim
        values = num_value_heads * self.value_dim
        self.largest_beta = 2.0 if negative_eigenvalues else 1.0
        self.heads = [keys, keys, values]
        self.widths = [sum(self.heads), values, num_value_heads, num_value_heads]
        self.in_proj = nn.Linear(dim, sum(self.widths), bias=False)
        self.convolution = CausalConvolution(sum(self.heads), kernel_size=kernel_size)
        init_as_conv1d(kernel_size, self.convolution.weight)
        self.A_log = nn.Parameter(torch.empty(num_value_heads).uniform_(0.01, 16.0).log())
        self.dt_bias = nn.Parameter(initial_dt_bias(num_value_heads))
        self.norm = nn.RMSNorm(self.value_dim, eps=eps)
        self.out_proj = nn.Linear(values, dim, bias=False)

    def mix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        qkv, *rest = self.in_proj(x).split(self.widths, dim=-1)
        return self._output(self.convolution(qkv), rest, valid, None)[0]

    def step(
        self, x: Tensor, valid: Tensor | None, state: DeltaState | None
    ) -> tuple[Tensor, DeltaState]:
        qkv, *rest = self.in_proj(x).split(self.widths, dim=-1)
        tail, matrix = state or (None, None)
        convolved, tail = self.convolution.step(qkv, valid, tail)
        y, matrix = self._output(convolved, rest, valid, matrix)
        return y, (tail, matrix)

    def uncounted_flops(self, x: Tensor) -> int:
        """FLOPs of one call that torch's counter does not see: 2 b n w k of the convolution, and those of the scan."""
        b, n, _ = x.shape
        convolution = 2 * b * n * self.widths[0] * self.convolution.kernel_size
        heads = self.widths[-1]
        return convolution + chunked_scan_flops(
            b, heads, n, self.head_dim, self.value_dim, delta=True
        )

    def _output(
        self, convolved: Tensor, rest: list[Tensor], valid: Tensor | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Outputs [b n d] and the last matrices. convolved: q, k, v [b n w]. rest: the other projections of x."""
        z, a, b = rest
        exact = float32_or_more(z.dtype)
        q, k, v = F.silu(convolved).split(self.heads, dim=-1)
        beta = self.largest_beta * b.to(exact).sigmoid()
        log_decay = -self.A_log.to(exact).exp() * F.softplus(a.to(exact) + self.dt_bias)
        if valid is not None:  # with a = 1 and beta = 0 a state stays what it was
            beta = zero_padded(beta, valid)
            log_decay = zero_padded(log_decay, valid)
        y, last = chunked_scan(
            self._by_head(q.to(exact)) * self.head_dim**-0.5,
            self._by_head(k.to(exact)),
            rearrange(v, "b n (h e) -> b h n e", e=self.value_dim),
            rearrange(log_decay, "b n h -> b h n"),
            state,
            rearrange(beta, "b n h -> b h n"),
        )
        y = self.norm(rearrange(y, "b h n e -> b n h e"))
        return self.out_proj(rearrange(y, "b n h e -> b n (h e)") * F.silu(z)), last

    def _by_head(self, x: Tensor) -> Tensor:
        """Queries or keys [b hr n c] of length 1, from [b n hc]."""
        x = rearrange(x, "b n (h c) -> b n h c", c=self.head_dim)
        x = x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + 1e-6)
        # before the axes change places: else its strides fix the length of an exported graph
        x = repeat(x, "b n h c -> b n (h r) c", r=self.widths[-1] // self.num_heads)
        return rearrange(x, "b n h c -> b h n c")
