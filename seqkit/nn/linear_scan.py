"""Linear recurrence of each channel by itself: the state of a minGRU, a minLSTM or an RG-LRU.

b batch · n tokens · e channels · k chunks · m tokens of one chunk
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqkit.nn.precision import float32_or_more, no_autocast
from seqkit.nn.recurrence import is_exporting, scan_tokens
from seqkit.nn.selective_scan import chunks

ROW = 2**10
"""Numbers of one token, over the batch, from which a CPU is faster token by token: to start a step takes it 3 µs."""


def linear_scan(decay: Tensor, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """h_t = decay_t h_(t-1) + x_t for each channel: minGRU and minLSTM (Feng et al. 2024), RG-LRU (De et al. 2024).

    decay, x: [b n e]. decay: from 0, which forgets the state, to 1, which with x = 0 leaves it as it is (padding).
    state: h_0 [b e]; None: zero. Returns h [b n e] in the dtype of x and the last state [b e], which is computed in
    float32, or float64 where x is.

    A wide batch on a CPU is scanned token by token. Elsewhere a sequence is cut into about sqrt(n) chunks, as in
    `selective_scan`, so that O(sqrt(n)) steps follow each other. Decays are multiplied and never divided by. The
    backward pass is the same scan from the last token to the first; decay and h alone are saved for it.
    Gradients can be taken once. `torch.export` gets one operation, a loop over the tokens.

    >>> decay, x = torch.rand(2, 7, 3), torch.randn(2, 7, 3)
    >>> first, state = linear_scan(decay[:, :4], x[:, :4])
    >>> rest, state = linear_scan(decay[:, 4:], x[:, 4:], state)
    >>> torch.allclose(torch.cat([first, rest], dim=1), linear_scan(decay, x)[0])
    True
    """
    if is_exporting():
        return scan_tokens(_step, _state(x, state), (decay, x))
    return _scan(decay, x, state)


def linear_scan_flops(b: int, n: int, e: int) -> int:
    """FLOPs of one scan, none of which torch's FLOP counter sees: a product and a sum for each channel of a token."""
    return 2 * b * n * e


@torch.compiler.disable
def _scan(decay: Tensor, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    exact = float32_or_more(x.dtype)
    with no_autocast(x):
        h: Tensor = _LinearScan.apply(decay.to(exact), x.to(exact), _state(x, state).to(exact))
    return h.to(x.dtype), h[:, -1].clone()  # a view would keep all states alive


class _LinearScan(torch.autograd.Function):
    """h [b n e]. With g_t = dh_t + decay_(t+1) g_(t+1): dx_t = g_t and ddecay_t = g_t h_(t-1)."""

    @staticmethod
    def forward(decay: Tensor, x: Tensor, state: Tensor) -> Tensor:
        if _goes_by_token(x):
            return torch.stack(_steps(decay.unbind(1), x.unbind(1), state), dim=1)
        return _by_chunks(decay, x, state)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        decay, _, state = inputs
        ctx.save_for_backward(decay, state, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor) -> tuple[Tensor, ...]:
        decay, state, h = ctx.saved_tensors
        g = _backwards(decay, dh)
        before = torch.cat([rearrange(state, "b e -> b 1 e"), h[:, :-1]], dim=1)
        return g * before, g, decay[:, 0] * g[:, 0]


def _goes_by_token(x: Tensor) -> bool:
    """Whether a step of one token is work enough, or the only one."""
    is_wide = x.device.type == "cpu" and x[:, 0].numel() >= ROW
    return is_wide or x.shape[1] == 1


def _backwards(decay: Tensor, x: Tensor) -> Tensor:
    """g_t = x_t + decay_(t+1) g_(t+1) [b n e], from the last token to the first."""
    if _goes_by_token(x):
        xs = x.unbind(1)
        found = _steps(decay.unbind(1)[:0:-1], xs[-2::-1], xs[-1])
        return torch.stack([*found[::-1], xs[-1]], dim=1)
    later = F.pad(decay[:, 1:], [0, 0, 0, 1])
    return _by_chunks(later.flip(1), x.flip(1), torch.zeros_like(x[:, 0])).flip(1)


def _steps(decays: Iterable[Tensor], xs: Iterable[Tensor], state: Tensor) -> list[Tensor]:
    """The states after each step."""
    states = []
    for token in zip(decays, xs):
        state, _ = _step(state, token)
        states.append(state)
    return states


def _step(state: Tensor, token: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """The state after a token, decay and x, and again as its output."""
    decay, x = token
    state = torch.addcmul(x, decay, state)
    return state, state


def _state(x: Tensor, state: Tensor | None) -> Tensor:
    """The state before x."""
    return x.new_zeros(x.shape[0], x.shape[2]) if state is None else state


def _by_chunks(decay: Tensor, x: Tensor, state: Tensor) -> Tensor:
    """h [b n e] by steps over the tokens of all chunks at once: from zero, which gives what a chunk adds to the state
    before it, and again from the right states."""
    n = x.shape[1]
    k, m = chunks(n)

    def by_offset(t: Tensor) -> Tensor:
        """[m b k e]; what pads the last chunk comes after all tokens."""
        return rearrange(F.pad(t, [0, 0, 0, k * m - n]), "b (k m) e -> m b k e", k=k)

    decays = by_offset(decay)
    xs = by_offset(x)
    added = _steps(decays, xs, torch.zeros_like(xs[0]))[-1]
    ends = _steps(decays.prod(dim=0).unbind(1), added.unbind(1), state)
    starts = torch.stack([state, *ends[:-1]], dim=1)
    h = torch.stack(_steps(decays, xs, starts))
    return rearrange(h, "m b k e -> b (k m) e")[:, :n]
