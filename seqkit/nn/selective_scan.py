"""Selective scan: a diagonal linear recurrence whose decay, input and output maps depend on the token.

b batch · n tokens · e channels · s states of one channel · k chunks · m tokens of one chunk
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from seqkit.nn.precision import no_autocast
from seqkit.nn.recurrence import is_exporting, scan_tokens

Kernel = Callable[..., Any]
"""`mamba_ssm.ops.selective_scan_interface.selective_scan_fn`."""

CPU_BLOCK = 2**17
"""States that one step works on, on a CPU: the three tensors of a step then stay in its cache (512 KiB each)."""
DEVICE_BLOCK = 2**20
"""The same elsewhere: enough to fill an accelerator."""


def selective_scan(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """y_t = C_t h_t with h_t = exp(dt_t A) h_(t-1) + dt_t B_t x_t (Gu and Dao 2023, algorithm 2, without the skip D).

    A is discretised by zero-order hold and B by Euler's rule, as in the paper's code.
    x, dt: [b n e], dt >= 0 in units of time; dt = 0 leaves the state as it is. A: [e s], negative. B, C: [b n s].
    state: h_0 [b e s]; None: zero. Returns y [b n e] in the dtype of x and the last state [b e s], which is computed
    in float32, or float64 where x is.

    A sequence is cut into about sqrt(n) chunks of as many tokens. One loop over the tokens of a chunk, all chunks at
    once, gives the state at the end of each chunk from zero; one over the chunks carries these on; a second loop over
    the tokens starts from the right states. So there are O(sqrt(n)) steps in a row, and every exponent is dt A <= 0: it
    cannot overflow, however long the sequence and large dt. The backward pass recomputes the states and scans in the
    other direction, so O(b sqrt(n) e s) numbers are saved and not O(b n e s).
    On a CPU in float32, `scan_kernel` does the same at four times the speed where the package numba is installed (the
    extra `numba`, which `seqkit doctor` shows); the results differ by rounding, about 1e-7 of them.
    On CUDA the published kernel runs instead where the package mamba_ssm is installed (the extra `mamba`), which has
    neither float64 nor a state to start from, nor a gradient of the last state. No test here runs that kernel.
    """
    kernel = published_kernel(x.device) if state is None and x.dtype != torch.float64 else None
    if kernel is not None:
        return run_kernel(kernel, x, dt, A, B, C)
    exact = torch.float64 if x.dtype == torch.float64 else torch.float32
    if state is None:
        state = x.new_zeros(x.shape[0], *A.shape, dtype=exact)
    if is_exporting():
        return _token_by_token(*(t.to(exact) for t in (x, dt, A, B, C, state))).to(x.dtype), state
    y, last = _SelectiveScan.apply(*(t.to(exact) for t in (x, dt, A, B, C, state)))
    return y.to(x.dtype), last


def _token_by_token(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> Tensor:
    """y [b n e] of `selective_scan`, as one operation of a graph."""

    def step(state: Tensor, token: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        x, dt, B, C = token
        added = rearrange(dt * x, "b e -> b e 1") * rearrange(B, "b s -> b 1 s")
        new = (rearrange(dt, "b e -> b e 1") * A).exp() * state + added
        return new, (new * rearrange(C, "b s -> b 1 s")).sum(dim=-1)

    return scan_tokens(step, state, (x, dt, B, C))


def scan_flops(b: int, n: int, e: int, s: int) -> int:
    """FLOPs of one scan that no matrix product of torch has: b n e (5 s + 1).

    A state takes 5: dt A and its exponential (1 each), B (dt x) (1), the decay and the sum (2); a channel 1: dt x. The
    sum over states, C h, takes 2 more a state, and is a matrix product that torch's FLOP counter sees.
    """
    return b * n * e * (5 * s + 1)


def published_kernel(device: torch.device) -> Kernel | None:
    """mamba_ssm's `selective_scan_fn` where it is installed and the device is CUDA, else None."""
    if device.type != "cuda" or find_spec("mamba_ssm") is None:
        return None
    kernel: Kernel = import_module("mamba_ssm.ops.selective_scan_interface").selective_scan_fn
    return kernel


def run_kernel(kernel: Kernel, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
    """`selective_scan` from zero by the published kernel, whose sequences run along the last axis."""
    x_, dt_, B_, C_ = (rearrange(t, "b n e -> b e n").contiguous() for t in (x, dt.to(x.dtype), B, C))
    y, last = kernel(x_, dt_, A.float(), B_.to(x.dtype), C_.to(x.dtype), return_last_state=True)
    return rearrange(y, "b e n -> b n e"), last


def compiled_scan(x: Tensor) -> Any:
    """The module `scan_kernel` if it can take the place of torch's operations on `x`, else None.

    Tracers and FLOP counters must see those operations.
    """
    is_watched = torch.compiler.is_compiling() or is_in_torch_dispatch_mode()
    return None if is_watched or x.device.type != "cpu" or x.dtype != torch.float32 else _load_compiled_scan()


@cache
def _load_compiled_scan() -> Any:
    if find_spec("numba") is None:
        return None
    try:
        return import_module("seqkit.nn.scan_kernel")
    except Exception as error:  # a compiler can fail in any way, and no run should
        said = f"numba does not compile the selective scan, which takes four times as long without: {error}"
        warnings.warn(said, stacklevel=2)
        return None


class _SelectiveScan(torch.autograd.Function):
    """Both passes over blocks of examples. Within a block tensors are [m (b k) s e]: a step is one index of m, and the
    many channels are last, so that the few states do not cut the work into short rows."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        forward = getattr(compiled_scan(x), "forward", _forward)
        with no_autocast(x):
            y, last, starts = forward(x, dt, A, B, C, state)
        ctx.save_for_backward(x, dt, A, B, C, starts)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        backward = getattr(compiled_scan(gradients[0]), "backward", _backward)
        with no_autocast(gradients[0]):
            return backward(*ctx.saved_tensors, *gradients)


def _forward(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y [b n e], the last state [b e s] and the states before each chunk [b k s e]."""
    b, n, e = x.shape
    s, (k, m) = A.shape[1], chunks(n)
    exponents = rearrange(A * math.log2(math.e), "e s -> s e").contiguous()  # exp2 is faster than exp on a CPU
    starts, last, y = x.new_empty(b, k, s, e), x.new_empty(b, s, e), x.new_empty(b, n, e)
    starts[:, 0] = rearrange(state, "b e s -> b s e")
    step = _examples_at_once(x, k * s * e)
    decays = x.new_empty(m, step * k, s, e)  # one for all blocks: fresh memory costs more than the work on it
    for rows in _blocks(b, step):
        dt_, u, B_, C_ = _by_offset(k, m, x[rows], dt[rows], B[rows], C[rows])
        width, out = dt_.shape[1], torch.empty_like(u)
        steps = list(zip(dt_, u, B_.mT, C_, decays[:, :width], out))
        h = x.new_zeros(width, s, e)
        for dt_i, u_i, B_i, _, decay, _ in steps:
            torch.mul(dt_i, exponents, out=decay).exp2_()
            if k > 1:
                h.mul_(decay).addcmul_(B_i, u_i)
        if k > 1:
            whole = _chunked(torch.exp2(dt_.sum(dim=0) * exponents), k)
            ends, start = _chunked(h, k), starts[rows]
            for j in range(1, k):
                torch.addcmul(ends[:, j - 1], whole[:, j - 1], start[:, j - 1], out=start[:, j])
        h.copy_(rearrange(starts[rows], "b k s e -> (b k) s e"))
        for _, u_i, B_i, C_i, decay, y_i in steps:
            torch.bmm(C_i, h.mul_(decay).addcmul_(B_i, u_i), out=y_i)
        y[rows] = _token_major(out, k, n)
        last[rows] = _chunked(h, k)[:, -1]
    return y, rearrange(last, "b s e -> b e s").contiguous(), starts


def _backward(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, starts: Tensor, dy: Tensor, dlast: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of x, dt, A, B, C and the first state.

    g is the gradient of a state: g_t = C_t dy_t + exp(dt_(t+1) A) g_(t+1). What multiplies it is recomputed.
    """
    b, n, _ = x.shape
    k, m = chunks(n)
    natural = rearrange(A, "e s -> s e").contiguous()
    exponents = natural * math.log2(math.e)
    s, e = natural.shape
    dx, ddt, dB, dC = (torch.empty_like(t) for t in (x, dt, B, C))
    dA, dstate = torch.zeros_like(natural), x.new_empty(b, s, e)
    step = _examples_at_once(x, k * s * e)
    decays, carried = x.new_empty(2, m, step * k, s, e)  # exp(dt A), and that times the state before
    for rows in _blocks(b, step):
        dt_, u, B_, C_ = _by_offset(k, m, x[rows], dt[rows], B[rows], C[rows])
        dy_ = _offset_major(dy[rows], k, m)
        width = dt_.shape[1]
        du_, ddt_, dB_, dC_ = (torch.empty_like(t) for t in (u, u, B_, C_))
        steps = list(zip(dt_, u, B_, B_.mT, decays[:, :width], carried[:, :width], dy_, dC_))
        h = rearrange(starts[rows], "b k s e -> (b k) s e").clone()
        for dt_i, u_i, _, B_i, decay, carry, dy_i, dC_i in steps:
            torch.mul(dt_i, exponents, out=decay).exp2_()
            torch.mul(h, decay, out=carry)
            torch.addcmul(carry, B_i, u_i, out=h)
            torch.bmm(dy_i, h.mT, out=dC_i)
        after = x.new_empty(starts[rows].shape)  # gradient of the state after each chunk
        after[:, -1] = rearrange(dlast[rows], "b e s -> b s e")
        back = list(zip(steps, C_.mT, dB_, du_, ddt_))[::-1]
        g = x.new_zeros(width, s, e)
        if k > 1:
            for (_, _, _, _, decay, _, dy_i, _), C_i, *_ in back:
                g.addcmul_(C_i, dy_i).mul_(decay)
            whole, before = _chunked(torch.exp2(dt_.sum(dim=0) * exponents), k), _chunked(g, k)
            for j in reversed(range(1, k)):
                torch.addcmul(before[:, j], whole[:, j], after[:, j], out=after[:, j - 1])
        g.copy_(rearrange(after, "b k s e -> (b k) s e"))
        dA_ = torch.zeros_like(g)
        for (dt_i, u_i, B_row, _, decay, carry, dy_i, _), C_i, dB_i, du_i, ddt_i in back:
            g.addcmul_(C_i, dy_i)
            torch.bmm(u_i, g.mT, out=dB_i)
            torch.bmm(B_row, g, out=du_i)
            carry.mul_(g)  # now the gradient of the exponent dt A
            dA_.addcmul_(dt_i, carry)
            torch.sum(carry.mul_(natural), dim=-2, keepdim=True, out=ddt_i)
            g.mul_(decay)
        dA += dA_.sum(dim=0)
        dstate[rows] = _chunked(g, k)[:, 0]
        du = _token_major(du_, k, n)
        torch.mul(du, dt[rows], out=dx[rows])
        torch.addcmul(_token_major(ddt_, k, n), du, x[rows], out=ddt[rows])
        dB[rows], dC[rows] = _token_major(dB_, k, n), _token_major(dC_, k, n)
    return dx, ddt, rearrange(dA, "s e -> e s"), dB, dC, rearrange(dstate, "b s e -> b e s")


def chunks(n: int) -> tuple[int, int]:
    """Number of chunks k and their tokens m, about sqrt(n) each, with k m >= n; what is too much is padding."""
    m = max(math.isqrt(max(n, 1) - 1) + 1, 1)
    return max(-(-n // m), 1), m


def _examples_at_once(x: Tensor, states: int) -> int:
    """Examples of a block, each with so many states a step."""
    return min(max((CPU_BLOCK if x.device.type == "cpu" else DEVICE_BLOCK) // states, 1), x.shape[0])


def _blocks(b: int, step: int) -> list[slice]:
    return [slice(start, start + step) for start in range(0, b, step)]


def _by_offset(k: int, m: int, x: Tensor, dt: Tensor, B: Tensor, C: Tensor) -> tuple[Tensor, ...]:
    """dt and u = dt x [m (b k) 1 e], B and C [m (b k) 1 s]; padding has dt = 0: it changes no state."""
    return tuple(_offset_major(t, k, m) for t in (dt, dt * x, B, C))


def _offset_major(t: Tensor, k: int, m: int) -> Tensor:
    padded = F.pad(t, [0, 0, 0, k * m - t.shape[1]])
    return rearrange(padded, "b (k m) e -> m (b k) 1 e", k=k).contiguous()


def _token_major(t: Tensor, k: int, n: int) -> Tensor:
    return rearrange(t, "m (b k) 1 e -> b (k m) e", k=k)[:, :n]


def _chunked(t: Tensor, k: int) -> Tensor:
    return rearrange(t, "(b k) s e -> b k s e", k=k)
