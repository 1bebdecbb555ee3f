"""Mamba: a stack of selective state space layers.

b batch · n tokens · d width · e inner width · s states of one channel · r rank of dt · k kernel size
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.backbones.sequence import LayerStack, StateCache
from seqkit.nn.block import Residual
from seqkit.nn.checks import check_at_least, check_probability
from seqkit.nn.convolution import CausalConvolution, inputs_before_next
from seqkit.nn.padding import zero_padded
from seqkit.nn.selective_scan import scan_flops, selective_scan

SSMState = tuple[Tensor, Tensor]
"""State of one layer: the last inputs of the convolution [b k-1 e], and the hidden state [b e s]."""


class SelectiveSSM(nn.Module):
    """Convolution and selective state space layer, in one direction (Gu and Dao 2023, algorithm 2).

    u = SiLU(causal depthwise convolution of x); dt = softplus(W u of rank r + bias); B, C = W u;
    y = scan(u, dt, A, B, C) + D u, with A = -exp(A_log).
    A starts as S4D-real, A_s = -(s + 1); D at 1; dt's bias so that dt is log-uniform in [0.001, 0.1], its weight
    uniform within r^-1/2 (ibid., section 3.6, and the paper's code).
    A_log is stored flat: optimizers decay matrices, and the paper's code does not decay it.
    """

    def __init__(self, width: int, *, num_states: int, rank: int, kernel_size: int):
        super().__init__()
        self.width = width
        self.num_states = num_states
        self.rank = rank
        self.convolution = CausalConvolution(width, kernel_size=kernel_size)
        self.convolution_bias = nn.Parameter(torch.empty(width))
        # as nn.Conv1d with one input for each output
        for p in (self.convolution.weight, self.convolution_bias):
            nn.init.uniform_(p, -(kernel_size**-0.5), kernel_size**-0.5)
        self.x_proj = nn.Linear(width, rank + 2 * num_states, bias=False)
        self.dt_proj = nn.Linear(rank, width)
        self.A_log = nn.Parameter(torch.arange(1.0, num_states + 1).log().repeat(width))
        self.D = nn.Parameter(torch.ones(width))
        nn.init.uniform_(self.dt_proj.weight, -(rank**-0.5), rank**-0.5)
        with torch.no_grad():
            dt = torch.empty(width).uniform_(math.log(0.001), math.log(0.1)).exp().clamp(min=1e-4)
            self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus of which is dt

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
        past = self.convolution.kernel_size - 1
        tail, hidden = state or (x.new_zeros(x.shape[0], past, self.width), None)
        joined = torch.cat([tail, x], dim=1)
        y, hidden = self._scan(self.convolution(joined)[:, past:], valid, hidden)
        return y, (inputs_before_next(joined, past, valid), hidden)

    def _scan(
        self, convolved: Tensor, valid: Tensor | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        u = F.silu(convolved + self.convolution_bias)
        dt, B, C = self.x_proj(u).split([self.rank, self.num_states, self.num_states], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        if valid is not None:  # with dt = 0 a state stays what it was, whatever the input
            dt = zero_padded(dt, valid)
        exact = torch.float64 if u.dtype == torch.float64 else torch.float32
        A = -rearrange(self.A_log.to(exact), "(e s) -> e s", s=self.num_states).exp()
        y, last = selective_scan(u, dt, A, B, C, state)
        return torch.addcmul(y, u, self.D.to(u.dtype)), last

    def uncounted_flops(self, x: Tensor) -> int:
        """FLOPs of one call that torch's counter does not see: b n e (5 s + 1) of the scan, b n e (2 k + 1) of the
        convolution with its bias, 2 b n e of the skip D. `scan_flops` says what the first are."""
        b, n, e = x.shape
        return scan_flops(b, n, e, self.num_states) + b * n * e * (
            2 * self.convolution.kernel_size + 3
        )


class MambaBlock(nn.Module):
    """x + W_out(SSM(W_x norm(x)) * SiLU(W_z norm(x))) (Gu and Dao 2023, figure 3).

    bidirectional: a second SSM with weights of its own runs over the sequence reversed; the projections and the gate
    are shared, and the outputs added (Zhu et al. 2024, Vision Mamba, algorithm 1).
    """

    def __init__(
        self,
        dim: int,
        *,
        num_states: int,
        expand: int,
        kernel_size: int,
        bidirectional: bool,
        dropout: float,
    ):
        super().__init__()
        width = expand * dim
        rank = -(-dim // 16)

        def direction() -> SelectiveSSM:
            return SelectiveSSM(width, num_states=num_states, rank=rank, kernel_size=kernel_size)

        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.in_proj = nn.Linear(dim, 2 * width, bias=False)
        self.ssm = direction()
        self.reversed_ssm = direction() if bidirectional else None
        self.out_proj = nn.Linear(width, dim, bias=False)
        self.residual = Residual(dim, dropout=dropout)

    def forward(
        self, x: Tensor, valid: Tensor | None, cache: StateCache | None, index: int
    ) -> Tensor:
        """x: [b n d]. valid: [b n] bool, True = real; None: all are. index: index of the layer in the cache."""
        normed = self.norm(x)
        if valid is not None:
            normed = zero_padded(normed, valid)
        u, z = self.in_proj(normed).chunk(2, dim=-1)
        if cache is None:
            y = self.ssm(u, valid)
        else:
            y, cache.states[index] = self.ssm.step(u, valid, cache.states[index])
        if self.reversed_ssm is not None:
            # padding comes first then: it holds the state at zero, so this direction begins at the last real token
            back = self.reversed_ssm(u.flip(1), None if valid is None else valid.flip(1))
            y = y + back.flip(1)
        mixed: Tensor = self.residual(x, self.out_proj(y * F.silu(z)))
        return mixed


class Mamba(LayerStack):
    """Selective state space backbone (Gu and Dao 2023); `nn.selective_scan` has the recurrence.

    A recurrence whose step, input and output maps depend on the token, so that it can keep or skip what it reads, which
    neither `S4D` nor a fixed convolution can. Training takes O(n) time a layer and generation O(1) for each token, with
    no longest sequence. Use it for long texts and other discrete sequences. Kernels take the place of the scan: on a
    CPU one that numba compiles (the extra `numba`; training is four times as fast), on CUDA one in Triton.
    depth: number of layers. causal: True: left to right. False: each layer runs over the tokens in both directions,
    with other convolutions and SSMs and shared projections (Zhu et al. 2024, Vision Mamba); the second direction begins
    at the last real token.
    num_states: states of a channel. expand: inner width / dim. kernel_size: tokens of the convolution. The rank of dt
    is dim / 16. dropout: probability of dropping an entry of a layer's branch (the paper has none).
    Layers are initialised as in the paper's code: torch's defaults, the last projections divided by sqrt(depth).
    Adjacency is refused: the state is carried along all tokens in order, and begins anew in each packed sequence.
    Raises ValueError for sizes below 1 or kernel_size below 2.

    >>> from seqkit.interfaces import Embedded
    >>> x = Embedded(torch.randn(2, 7, 8), torch.zeros(2, 7, 1), torch.ones(2, 7, dtype=torch.bool))
    >>> backbone = Mamba(8, causal=True)
    >>> cache = backbone.init_cache(max_tokens=7)
    >>> backbone(x, cache).shape, [tuple(part.shape) for part in cache.states[0]]
    (torch.Size([2, 7, 8]), [(2, 3, 16), (2, 16, 16)])
    """

    def __init__(
        self,
        dim: int,
        depth: int = 2,
        *,
        num_states: int = 16,
        expand: int = 2,
        kernel_size: int = 4,
        causal: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_at_least(1, dim=dim, depth=depth, num_states=num_states, expand=expand)
        check_probability("dropout", dropout)
        self.dim = dim
        self.causal = causal
        self.blocks = nn.ModuleList(
            MambaBlock(
                dim,
                num_states=num_states,
                expand=expand,
                kernel_size=kernel_size,
                bidirectional=not causal,
                dropout=dropout,
            )
            for _ in range(depth)
        )
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        with torch.no_grad():
            for block in self.blocks:
                block.out_proj.weight.div_(depth**0.5)  # type: ignore[union-attr, operator]
