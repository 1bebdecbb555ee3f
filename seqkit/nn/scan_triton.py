"""The selective scan on CUDA, as two Triton kernels: forward, and backward with the states computed again.

A program has some channels of one example and goes over the tokens in order; its states stay in registers.

b batch · n tokens · e channels · s states of one channel · k chunks · p programs that share an example
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

CHANNELS = 16
"""Channels of a program."""
CHUNK = 16
"""Tokens between two states that the forward pass keeps; the backward pass computes those between them again."""


def scan(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """y [b n e] in the dtype of x and the last state [b e s]. Arguments: as of `selective_scan.selective_scan`.

    x, dt, B, C may have any dtype of numbers; states and sums have that of `state`.
    """
    y: Tensor
    last: Tensor
    y, last = _Scan.apply(x, dt, A.to(state), B, C, state)
    return y, last


class _Scan(torch.autograd.Function):
    """Beside its inputs, every `CHUNK`-th state is saved, [b k e s]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        x, dt, A, B, C, state = (t.contiguous() for t in (x, dt, A, B, C, state))
        b, n, e = x.shape
        s = A.shape[1]
        y = torch.empty_like(x)
        last = torch.empty_like(state)
        starts = state.new_empty(b, triton.cdiv(n, CHUNK), e, s)
        grid = (triton.cdiv(e, CHANNELS), b)
        _forward[grid](
            x,
            dt,
            A,
            B,
            C,
            state,
            y,
            last,
            starts,
            n,
            e,
            s,
            triton.next_power_of_2(s),
            CHANNELS,
            CHUNK,
        )
        ctx.save_for_backward(x, dt, A, B, C, starts)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dlast: Tensor) -> tuple[Tensor, ...]:
        x, dt, A, B, C, starts = ctx.saved_tensors
        b, n, e = x.shape
        s = A.shape[1]
        grid = (triton.cdiv(e, CHANNELS), b)
        dx = torch.empty_like(x)
        ddt = torch.empty_like(dt)
        dstate = starts.new_empty(b, e, s)
        dA = starts.new_empty(b, e, s)
        states = starts.new_empty(b, CHUNK, e, s)
        # each program's own, so that sums are always in one order
        dB, dC = starts.new_empty(2, grid[0], b, n, s)
        given = x, dt, A, B, C, starts, dy.contiguous(), dlast.contiguous()
        found = dx, ddt, dA, dB, dC, dstate
        _backward[grid](
            *given, *found, states, b, n, e, s, triton.next_power_of_2(s), CHANNELS, CHUNK
        )
        return dx, ddt, dA.sum(dim=0), dB.sum(dim=0).to(B.dtype), dC.sum(dim=0).to(C.dtype), dstate


@triton.jit
def _step(x, dt, A, B, token, channel, state, e, s, is_channel, is_state, dtype):
    """x, dt [E], B [S] of a token, its decay and its input [E S]."""
    x_t = tl.load(x + token * e + channel, is_channel, 0.0).to(dtype)
    dt_t = tl.load(dt + token * e + channel, is_channel, 0.0).to(dtype)
    B_t = tl.load(B + token * s + state, is_state, 0.0).to(dtype)
    return x_t, dt_t, B_t, tl.exp(dt_t[:, None] * A), (dt_t * x_t)[:, None] * B_t[None, :]


@triton.jit
def _forward(
    x, dt, A, B, C, first, y, last, starts, n, e, s, S: tl.constexpr, E: tl.constexpr, M: tl.constexpr
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64)
    k = tl.cdiv(n, M)
    channel = tl.program_id(0) * E + tl.arange(0, E)
    state = tl.arange(0, S)
    is_channel = channel < e
    is_state = state < s
    place = channel[:, None] * s + state[None, :]
    is_place = is_channel[:, None] & is_state[None, :]
    A_ = tl.load(A + place, is_place, 0.0)
    h = tl.load(first + row * e * s + place, is_place, 0.0)
    for t in range(n):
        if t % M == 0:
            tl.store(starts + (row * k + t // M) * e * s + place, h, is_place)
        token = row * n + t
        _x, _dt, _B, decay, put = _step(
            x, dt, A_, B, token, channel, state, e, s, is_channel, is_state, h.dtype
        )
        C_t = tl.load(C + token * s + state, is_state, 0.0).to(h.dtype)
        h = decay * h + put
        tl.store(y + token * e + channel, tl.sum(h * C_t[None, :], 1), is_channel)
    tl.store(last + row * e * s + place, h, is_place)


@triton.jit
def _backward(
    x, dt, A, B, C, starts, dy, dlast, dx, ddt, dA, dB, dC, dstate, states,
    b, n, e, s, S: tl.constexpr, E: tl.constexpr, M: tl.constexpr
):  # fmt: skip
    """states: [b m e s], those before each token of a chunk."""
    row = tl.program_id(1).to(tl.int64)
    k = tl.cdiv(n, M)
    channel = tl.program_id(0) * E + tl.arange(0, E)
    state = tl.arange(0, S)
    is_channel = channel < e
    is_state = state < s
    place = channel[:, None] * s + state[None, :]
    is_place = is_channel[:, None] & is_state[None, :]
    A_ = tl.load(A + place, is_place, 0.0)
    g = tl.load(dlast + row * e * s + place, is_place, 0.0)
    dA_ = tl.zeros_like(A_)
    own = (tl.program_id(0).to(tl.int64) * b + row) * n
    for i in range(k):
        chunk = k - 1 - i
        start = chunk * M
        end = tl.minimum(chunk * M + M, n)
        h = tl.load(starts + (row * k + chunk) * e * s + place, is_place, 0.0)
        for t in range(start, end):
            tl.store(states + (row * M + t - start) * e * s + place, h, is_place)
            token = row * n + t
            _x, _dt, _B, decay, put = _step(
                x, dt, A_, B, token, channel, state, e, s, is_channel, is_state, g.dtype
            )
            h = decay * h + put
        tl.debug_barrier()  # another thread may read what this one has written
        for j in range(end - start):
            t = end - 1 - j
            token = row * n + t
            x_t, dt_t, B_t, decay, put = _step(
                x, dt, A_, B, token, channel, state, e, s, is_channel, is_state, g.dtype
            )
            C_t = tl.load(C + token * s + state, is_state, 0.0).to(g.dtype)
            dy_t = tl.load(dy + token * e + channel, is_channel, 0.0).to(g.dtype)
            carried = decay * tl.load(states + (row * M + t - start) * e * s + place, is_place, 0.0)
            tl.store(
                dC + (own + t) * s + state, tl.sum((carried + put) * dy_t[:, None], 0), is_state
            )
            g += dy_t[:, None] * C_t[None, :]
            tl.store(dB + (own + t) * s + state, tl.sum(g * (dt_t * x_t)[:, None], 0), is_state)
            du = tl.sum(g * B_t[None, :], 1)
            dexponent = g * carried
            tl.store(dx + token * e + channel, du * dt_t, is_channel)
            tl.store(ddt + token * e + channel, du * x_t + tl.sum(dexponent * A_, 1), is_channel)
            dA_ += dexponent * dt_t[:, None]
            g *= decay
        tl.debug_barrier()
    tl.store(dA + row * e * s + place, dA_, is_place)
    tl.store(dstate + row * e * s + place, g, is_place)
