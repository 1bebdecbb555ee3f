"""Griffin's recurrent mixer: a convolution and a real-gated linear recurrent unit (RG-LRU), behind a gate.

b batch · n tokens · d width · e inner width · h blocks of the gates · c, o channels of one block · k kernel size
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.nn.checks import check_heads
from seqkit.nn.convolution import CausalConvolution, init_as_conv1d
from seqkit.nn.linear_scan import linear_scan, linear_scan_flops
from seqkit.nn.mixers.base import StateMixer
from seqkit.nn.padding import zero_padded
from seqkit.nn.precision import float32_or_more

SHARPNESS = 8.0
"""c of a^(c r): how far the gate can stretch a decay (De et al. 2024, section 2.4)."""

SMALLEST = 1e-30
"""Below this 1 - a^2 has a gradient of zero, which is its limit; that of the square root alone would be infinite."""

RGLRUState = tuple[Tensor, ...]
"""State of a layer: the last inputs of the convolution [b k-1 e], the hidden state [b e], and, where the first token is
not scaled, whether a row has begun [b]."""


class RealGatedRecurrence(nn.Module):
    """Causal depthwise convolution and RG-LRU (De et al. 2024, equations 1 to 4).

    With u the convolution of x and gates r, i = sigmoid(W u + bias): h_t = a_t h_(t-1) + sqrt(1 - a_t^2) (i_t u_t),
    a_t = sigmoid(Lambda)^(c r_t), c = 8. W is block-diagonal. The first token is like any other, after h_0 = 0;
    unscaled_first: True: it is not multiplied by the square root, as in the published code.
    Lambda starts so that a^2 is uniform in [0.9^2, 0.999^2], as in the published code (the paper says so of a^c, which
    forgets too little in short training: docs/decisions.md), W normal with variance 1 / inputs (ibid., section 2.4);
    the convolution as `nn.Conv1d`, biases at 0.
    """

    def __init__(
        self, width: int, num_blocks: int, *, kernel_size: int, unscaled_first: bool = False
    ):
        super().__init__()
        self.unscaled_first = unscaled_first
        self.convolution = CausalConvolution(width, kernel_size=kernel_size)
        self.convolution_bias = nn.Parameter(torch.zeros(width))
        init_as_conv1d(kernel_size, self.convolution.weight)
        channels = width // num_blocks
        self.gate_weight = nn.Parameter(torch.randn(num_blocks, channels, 2 * channels))
        self.gate_bias = nn.Parameter(torch.zeros(2 * width))  # optimizers decay matrices
        self.Lambda = nn.Parameter(torch.empty(width))
        with torch.no_grad():
            self.gate_weight.mul_(channels**-0.5)
            log_a = torch.empty(width).uniform_(0.9**2, 0.999**2).log() / 2
            self.Lambda.copy_(log_a - torch.log(-torch.expm1(log_a)))  # sigmoid of which is a

    def forward(
        self, x: Tensor, valid: Tensor | None, state: RGLRUState | None
    ) -> tuple[Tensor, RGLRUState]:
        """States h [b n e] of x [b n e] after a state, and the state after each last real token."""
        tail, hidden = (None, None) if state is None else state[:2]
        convolved, tail = self.convolution.step(x, valid, tail)
        u = convolved + self.convolution_bias
        r, i = self._gates(u)
        log_decay = SHARPNESS * F.logsigmoid(self.Lambda.to(r.dtype)) * r
        scale = (-torch.expm1(2 * log_decay)).clamp(min=SMALLEST).sqrt()
        more: tuple[Tensor, ...] = ()
        if self.unscaled_first:
            begun = x.new_zeros(len(x), dtype=torch.bool) if state is None else state[2]
            is_first = torch.arange(x.shape[1], device=x.device) == 0
            is_first = rearrange(~begun, "b -> b 1 1") & rearrange(is_first, "n -> n 1")
            scale = scale.masked_fill(is_first, 1.0)
            more = (begun | (True if valid is None else valid.any(dim=1)),)
        inputs = scale * i * u
        if valid is not None:
            log_decay = zero_padded(log_decay, valid)
            inputs = zero_padded(inputs, valid)
        h, hidden = linear_scan(log_decay.exp(), inputs, hidden)
        return h.to(x.dtype), (tail, hidden, *more)

    def _gates(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """r and i [b n e], in float32 or more: decays near 1 need the digits."""
        b, h = u.shape[0], len(self.gate_weight)
        by_block = rearrange(u, "b n (h c) -> h (b n) c", h=h)
        bias = rearrange(self.gate_bias, "(h o) -> h 1 o", h=h).to(u.dtype)
        gates = torch.baddbmm(bias, by_block, self.gate_weight.to(u.dtype))
        gates = gates.to(float32_or_more(u.dtype)).sigmoid()
        r, i = rearrange(gates, "h (b n) (two o) -> two b n (h o)", b=b, two=2)
        return r, i

    def uncounted_flops(self, x: Tensor) -> int:
        """FLOPs of one call that torch's counter does not see: those of the scan, and b n e (2 k + 1) of the
        convolution with its bias."""
        b, n, e = x.shape
        return linear_scan_flops(b, n, e) + b * n * e * (2 * self.convolution.kernel_size + 1)


class RGLRU(StateMixer):
    """W_out(h * GELU(W_y x)) with h the RG-LRU of W_x x (De et al. 2024, Griffin, figure 2c).

    num_heads: blocks of the gates' weights. width: inner width; None: 4/3 dim, rounded down to a multiple of num_heads,
    so that the linear layers hold what those of attention do (ibid., section 3.1). kernel_size: tokens of the
    convolution. unscaled_first: as in `RealGatedRecurrence`. `in_proj` holds W_x above W_y. The linear layers start
    normal with variance 1 / inputs, their biases at 0, as in the published code, which has the tanh approximation of
    GELU, too.
    Time O(n d e), and a step with a cache costs one token. Raises ValueError if num_heads does not divide width.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 1,
        *,
        width: int | None = None,
        kernel_size: int = 4,
        unscaled_first: bool = False,
    ):
        super().__init__(dim, num_heads)
        if width is None:
            width = 4 * dim // 3 // num_heads * num_heads
        check_heads(num_heads, width=width)
        self.in_proj = nn.Linear(dim, 2 * width)
        self.recurrence = RealGatedRecurrence(
            width, num_heads, kernel_size=kernel_size, unscaled_first=unscaled_first
        )
        self.out_proj = nn.Linear(width, dim)
        for layer in (self.in_proj, self.out_proj):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            nn.init.zeros_(layer.bias)

    def step(
        self, x: Tensor, valid: Tensor | None, state: RGLRUState | None
    ) -> tuple[Tensor, RGLRUState]:
        u, gate = self.in_proj(x).chunk(2, dim=-1)
        h, state = self.recurrence(u, valid, state)
        return self.out_proj(h * F.gelu(gate, approximate="tanh")), state
