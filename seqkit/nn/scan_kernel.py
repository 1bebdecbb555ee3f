"""The selective scan on a CPU, compiled by numba: loops over the tokens, whose inner loop is over the channels.

The same chunks as in `selective_scan`, one after the other, in float32. A state is read and written once a token, and
about thirty times by torch's operations.

b batch · n tokens · e channels · s states of one channel · k chunks · m tokens of one chunk
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from einops import rearrange
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqkit.nn.selective_scan import chunks

THREAD = 2**16
"""States worth a thread of their own: below a millisecond of work, starting one costs more than it saves."""
COEFFICIENTS = tuple(
    np.float32(c)
    for c in (
        0.6931471825,
        0.2402264625,
        0.05550328642,
        0.009618489072,
        0.001339993090,
        0.0001534581243,
    )
)
"""2^f = 1 + c1 f + … + c6 f^6 for |f| <= 1/2, to 2e-9 of it (Remez's algorithm); 2^0 is 1 exactly.

The kernels get them as an argument: LLVM would read constants again for each vector, which takes a quarter more time.
"""


def scan(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """y [b n e] and the last state [b e s]. Arguments: as of `selective_scan.selective_scan`."""
    y: Tensor
    last: Tensor
    y, last = _Scan.apply(x, dt, A, B, C, state)
    return y, last


class _Scan(torch.autograd.Function):
    """The states before each chunk [b k s e] are saved; the backward pass computes those of a chunk again."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        b, n, e = x.shape
        s = A.shape[1]
        k, m = chunks(n)
        h = rearrange(state, "b e s -> b s e").clone(memory_format=torch.contiguous_format)
        y = x.new_empty(b, n, e)
        starts = x.new_empty(b, k, s, e)
        _over_examples(partial(_forward, m), [x, dt, _exponents(A), B, C], [h, y, starts])
        ctx.save_for_backward(x, dt, A, B, C, starts)
        return y, rearrange(h, "b s e -> b e s").contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dlast: Tensor) -> tuple[Tensor, ...]:
        x, dt, A, B, C, starts = ctx.saved_tensors
        b, n, e = x.shape
        s = A.shape[1]
        g = rearrange(dlast, "b e s -> b s e").clone(memory_format=torch.contiguous_format)
        dx, ddt = x.new_empty(2, b, n, e)
        dB, dC = x.new_empty(2, b, n, s)
        dA = x.new_zeros(b, s, e)
        outputs = [g, dx, ddt, dA, dB, dC]
        _over_examples(
            partial(_backward, chunks(n)[1]), [x, dt, _exponents(A), B, C, starts, dy], outputs
        )
        return (
            dx,
            ddt,
            rearrange(dA.sum(dim=0), "s e -> e s"),
            dB,
            dC,
            rearrange(g, "b s e -> b e s"),
        )


def _exponents(A: Tensor) -> Tensor:
    """Exponents of 2, a time, [s e]."""
    return rearrange(A * math.log2(math.e), "e s -> s e")


def _over_examples(
    kernel: Callable[..., None], inputs: list[Tensor], outputs: list[Tensor]
) -> None:
    """Run the kernel over all examples, in as many threads as torch has. They end with it, so that processes can fork.

    outputs: contiguous; each has its examples first.
    """
    arrays = [t.detach().numpy() for t in (*(t.contiguous() for t in inputs), *outputs)]
    x = arrays[0]
    A = arrays[2]
    threads = max(min(torch.get_num_threads(), len(x), x.size * len(A) // THREAD), 1)
    ends = [len(x) * i // threads for i in range(threads + 1)]

    def part(first: int, last: int) -> None:
        kernel(first, last, *arrays, COEFFICIENTS)

    if threads == 1:
        part(*ends)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, ends, ends[1:]))


# ── compiled ─────────────────────────────────────────────────────────────────────────────────────────────────────────

F1 = "f4[::1]"
F2 = "f4[:,::1]"
F3 = "f4[:,:,::1]"
F4 = "f4[:,:,:,::1]"
_whole: Any = partial(njit, nogil=True, cache=True, error_model="numpy")
_part: Any = njit(fastmath={"contract", "reassoc"}, error_model="numpy")
"""Sums may be taken in vectors, and a product and a sum in one instruction; infinities and NaN stay what they are."""


@njit(fastmath={"contract"})
def _exp2(x: Any, coefficients: Any) -> Any:
    """2^x for x <= 0 in float32, to 2e-7 of it; 0 below 2^-127.

    Adding 1.5 * 2^23 rounds x to an integer, which is in the last bits of the sum; that and 127 is a float's exponent.
    """
    c1, c2, c3, c4, c5, c6 = coefficients
    lowest = np.float32(-127)
    shift = np.float32(1.5 * 2**23 + 127)
    x = lowest if x < lowest else x  # NaN stays
    shifted = x + shift
    f = x - (shifted - shift)
    mantissa = (((((c6 * f + c5) * f + c4) * f + c3) * f + c2) * f + c1) * f + np.float32(1)
    return mantissa * np.int32(np.int64(np.float32(shifted).view(np.int32)) << 23).view(np.float32)


@_part
def _advance(
    h: Any, y: Any, u: Any, x: Any, dt: Any, A: Any, B: Any, C: Any, coefficients: Any
) -> None:
    """One token: the states h [s e] before it become those after it; y: [e], its output. u: [e], for dt x."""
    for c in range(len(x)):
        u[c] = dt[c] * x[c]
        y[c] = 0
    for j in range(len(h)):
        h_j = h[j]
        A_j = A[j]
        B_j = B[j]
        C_j = C[j]
        for c in range(len(x)):
            state = _exp2(dt[c] * A_j[c], coefficients) * h_j[c] + B_j * u[c]
            h_j[c] = state
            y[c] += C_j * state


@_part
def _advance_again(
    h: Any, kept: Any, dC: Any, u: Any, x: Any, dt: Any, A: Any, B: Any, dy: Any, coefficients: Any
) -> None:
    """The same with the gradient of C; kept: [2 s e], becomes exp(dt A), and that times the states before."""
    for c in range(len(x)):
        u[c] = dt[c] * x[c]
    for j in range(len(h)):
        h_j = h[j]
        decay = kept[0, j]
        carry = kept[1, j]
        A_j = A[j]
        B_j = B[j]
        dC_j = np.float32(0)
        for c in range(len(x)):
            factor = _exp2(dt[c] * A_j[c], coefficients)
            carried = factor * h_j[c]
            state = carried + B_j * u[c]
            decay[c] = factor
            carry[c] = carried
            h_j[c] = state
            dC_j += state * dy[c]
        dC[j] = dC_j


@_part
def _go_back(
    g: Any, dx: Any, ddt: Any, dA: Any, dB: Any,
    kept: Any, u: Any, x: Any, dt: Any, A: Any, B: Any, C: Any, dy: Any,
) -> None:  # fmt: skip
    """One token: the gradients g [s e] of the states after it become those of the states before it."""
    for c in range(len(x)):
        u[c] = dt[c] * x[c]
        dx[c] = 0
        ddt[c] = 0
    for j in range(len(g)):
        g_j = g[j]
        dA_j = dA[j]
        decay = kept[0, j]
        carry = kept[1, j]
        A_j = A[j]
        B_j = B[j]
        C_j = C[j]
        dB_j = np.float32(0)
        for c in range(len(x)):
            dstate = g_j[c] + C_j * dy[c]
            dexponent = carry[c] * dstate
            dB_j += dstate * u[c]
            dx[c] += B_j * dstate
            dA_j[c] += dt[c] * dexponent
            ddt[c] += A_j[c] * dexponent
            g_j[c] = dstate * decay[c]
        dB[j] = dB_j
    for c in range(len(x)):  # so far dx is the gradient of dt x, and exponents are those of 2
        ddt[c] = ddt[c] * np.float32(math.log(2)) + dx[c] * x[c]
        dx[c] *= dt[c]


@_whole(f"void(i8, i8, i8, {F3}, {F3}, {F2}, {F3}, {F3}, {F3}, {F3}, {F4}, UniTuple(f4, 6))")
def _forward(
    m: int, first: int, last: int,
    x: Any, dt: Any, A: Any, B: Any, C: Any, h: Any, y: Any, starts: Any, coefficients: Any,
) -> None:  # fmt: skip
    u = np.empty(x.shape[2], np.float32)
    for i in range(first, last):
        for t in range(x.shape[1]):
            if t % m == 0:
                starts[i, t // m] = h[i]
            _advance(h[i], y[i, t], u, x[i, t], dt[i, t], A, B[i, t], C[i, t], coefficients)


@_whole(
    f"void(i8, i8, i8, {F3}, {F3}, {F2}, {F3}, {F3}, {F4}, {F3}, {F3}, {F3}, {F3}, {F3}, {F3}, {F3}, UniTuple(f4, 6))"
)
def _backward(
    m: int, first: int, last: int,
    x: Any, dt: Any, A: Any, B: Any, C: Any, starts: Any, dy: Any,
    g: Any, dx: Any, ddt: Any, dA: Any, dB: Any, dC: Any, coefficients: Any,
) -> None:  # fmt: skip
    n = x.shape[1]
    s, e = A.shape
    u = np.empty(e, np.float32)
    kept = np.empty((m, 2, s, e), np.float32)
    for i in range(first, last):
        for k in range(starts.shape[1] - 1, -1, -1):
            h = starts[i, k].copy()
            start = k * m
            end = min((k + 1) * m, n)
            for t in range(start, end):
                one = kept[t - start]
                _advance_again(
                    h, one, dC[i, t], u, x[i, t], dt[i, t], A, B[i, t], dy[i, t], coefficients
                )
            for t in range(end - 1, start - 1, -1):
                gradients = g[i], dx[i, t], ddt[i, t], dA[i], dB[i, t]
                _go_back(
                    *gradients, kept[t - start], u, x[i, t], dt[i, t], A, B[i, t], C[i, t], dy[i, t]
                )
