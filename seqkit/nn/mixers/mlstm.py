"""mLSTM of xLSTM: a matrix memory with exponential gates, all tokens at once.

b batch · h heads · n tokens · d width · c key channels of one head · e value channels of one head
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.nn.checks import check_above_0, check_heads
from seqkit.nn.chunked_scan import chunked_scan, chunked_scan_flops
from seqkit.nn.mixers.base import StateMixer
from seqkit.nn.padding import zero_padded
from seqkit.nn.precision import float32_or_more
from seqkit.nn.recurrence import is_exporting, scan_tokens

Memory = tuple[Tensor, Tensor]
"""State of one layer: memory beside normaliser [b h c e+1], both times exp(-m), and the stabiliser m [b h]."""

GATE_CAP = 15.0
EPS = 1e-6
"""Summand of denominators: the norm's, and that of h."""


class MLSTM(StateMixer):
    """W_out(sigmoid(W_o x) * norm(mLSTM(x))), the layer of xLSTM 7B (Beck et al. 2025, section 3).

    Queries, keys and values are projections of x, as are the logarithms of input and forget gate, one of each for a
    head, which go through 15 tanh(. / 15). The norm is LayerNorm of each head (`HeadNorm`).
    key_factor: channels of a key / those of a value.
    Initial weights are those of the published code: projections normal with variance 2 / (5 dim), weights of the input
    and forget gate 0, their biases -10 and, from the first head to the last, 3 to 6.
    Raises ValueError if num_heads does not divide dim, or for a key_factor that is not above 0.
    """

    def __init__(self, dim: int, num_heads: int = 4, *, key_factor: float = 0.5):
        super().__init__(dim, num_heads)
        check_heads(num_heads, dim=dim)
        check_above_0(key_factor=key_factor)
        self.key_dim = num_heads * math.ceil(key_factor * self.head_dim)
        self.in_proj = nn.Linear(dim, 2 * self.key_dim + 2 * dim, bias=False)
        self.gate_proj = nn.Linear(dim, 2 * num_heads)
        self.norm = HeadNorm(dim, num_heads)
        self.out_proj = nn.Linear(dim, dim, bias=False)
        for projection in (self.in_proj, self.out_proj):
            nn.init.normal_(projection.weight, std=(2 / (5 * dim)) ** 0.5)
        nn.init.zeros_(self.gate_proj.weight)
        with torch.no_grad():
            self.gate_proj.bias[:num_heads] = -10.0
            self.gate_proj.bias[num_heads:] = torch.linspace(3.0, 6.0, num_heads)

    def step(self, x: Tensor, valid: Tensor | None, state: Memory | None) -> tuple[Tensor, Memory]:
        widths = [self.key_dim, self.key_dim, self.dim, self.dim]
        *qkv, output_gate = self.in_proj(x).split(widths, dim=-1)
        q, k, v = (rearrange(t, "b n (h c) -> b h n c", h=self.num_heads) for t in qkv)
        gates = self.gate_proj(x).to(float32_or_more(x.dtype))
        gates = GATE_CAP * torch.tanh(gates / GATE_CAP)
        log_input, forget = gates.chunk(2, dim=-1)
        log_forget = F.logsigmoid(forget)
        if valid is not None:  # keys are zero there, so a memory that is kept stays what it was
            log_input = zero_padded(log_input, valid)
            log_forget = zero_padded(log_forget, valid)
        log_input = rearrange(log_input, "b n h -> b h n")
        log_forget = rearrange(log_forget, "b n h -> b h n")
        h, state = mlstm(q * q.shape[-1] ** -0.5, k, v, log_input, log_forget, state)
        h = self.norm(rearrange(h, "b h n e -> b n (h e)"))
        return self.out_proj(output_gate.sigmoid() * h), state

    def uncounted_flops(self, x: Tensor) -> int:
        """FLOPs of one call that torch's counter does not see: those of the scan, of a further value for n."""
        b, n, _ = x.shape
        keys = self.key_dim // self.num_heads
        return chunked_scan_flops(b, self.num_heads, n, keys, self.head_dim + 1, delta=False)


class HeadNorm(nn.Module):
    """LayerNorm over the channels of each head by itself, with a factor for each channel and no bias."""

    def __init__(self, dim: int, num_heads: int, *, eps: float = EPS):
        super().__init__()
        self.num_heads = num_heads
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """[b n d] from x [b n d]."""
        heads = rearrange(x, "b n (h e) -> b n h e", h=self.num_heads)
        normed = F.layer_norm(heads, heads.shape[-1:], eps=self.eps)
        return rearrange(normed, "b n h e -> b n (h e)") * self.weight


def mlstm(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_input: Tensor,
    log_forget: Tensor,
    state: Memory | None = None,
) -> tuple[Tensor, Memory]:
    """h_t = C_t q_t / max(|n_t q_t|, 1) of C_t = f_t C_(t-1) + i_t v_t k_t and n_t = f_t n_(t-1) + i_t k_t.

    That is the mLSTM of Beck et al. 2024, equations 19 to 27, with q scaled and without the output gate.
    q, k: [b h n c]. v: [b h n e]. log_input, log_forget: logarithms of i and f [b h n], that of f <= 0; 0 with k = 0
    leaves the state as it is (padding). state: None: C_0 = n_0 = 0. Returns h [b h n e] and the state after the last
    token, in float32, or float64 where v is.

    C and n are kept times exp(-m), with m_t = max(log f_t + m_(t-1), log i_t, 0) (ibid., equation 15; below 0 there is
    nothing to hold back), so h is the quotient with the denominator max(|n q|, exp(-m)) + 1e-6, the last as in the
    published code. No gate overflows, however large. h does not depend on m, which therefore has no gradient.
    n is a further column of C, for a value of 1.
    """
    exact = float32_or_more(v.dtype)
    memory, before = state or (None, log_input.new_zeros(log_input.shape[:2]))
    with torch.no_grad():
        sums = log_forget.cumsum(dim=-1)
        m = sums + _highest(log_input.clamp(min=0) - sums, before)
        # a graph takes no slice that is empty for one token
        previous = torch.cat([rearrange(before, "b h -> b h 1"), m], dim=-1)[..., :-1]
    inputs = rearrange((log_input - m).exp(), "b h n -> b h n 1")
    values = torch.cat([v.to(exact), torch.ones_like(inputs)], dim=-1)
    y, memory = chunked_scan(q, inputs * k, values, log_forget + previous - m, memory)
    least = rearrange((-m).exp(), "b h n -> b h n 1")
    h = y[..., :-1] / (torch.maximum(y[..., -1:].abs(), least) + EPS)
    return h.to(v.dtype), (memory, m[..., -1])


def _highest(x: Tensor, first: Tensor) -> Tensor:
    """The largest of first [b h] and x [b h n] up to each token; ONNX has no operation for it."""
    if not is_exporting():
        return torch.maximum(x.cummax(dim=-1).values, rearrange(first, "b h -> b h 1"))

    def step(highest: Tensor, token: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        highest = torch.maximum(highest, token[0])
        return highest, highest

    return scan_tokens(step, first, (x,), dim=-1)[0]
