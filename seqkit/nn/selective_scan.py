"""Selective scan: a diagonal linear recurrence whose decay, input and output maps depend on the token.

b batch · n tokens · e channels · s states of one channel · k chunks · m tokens of one chunk
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from torch.utils.checkpoint import checkpoint

from seqkit.nn.precision import float32_or_more, no_autocast, runs_triton
from seqkit.nn.recurrence import is_exporting, scan_tokens

BLOCK = 2**20
"""States that one step of `_scan` works on: enough to fill an accelerator, and 4 MiB for each token of a chunk."""


def selective_scan(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """y_t = C_t h_t with h_t = exp(dt_t A) h_(t-1) + dt_t B_t x_t (Gu and Dao 2023, algorithm 2, without the skip D).

    A is discretised by zero-order hold and B by Euler's rule, as in the paper's code.
    x, dt: [b n e], dt >= 0 in units of time; dt = 0 leaves the state as it is. A: [e s], negative. B, C: [b n s].
    state: h_0 [b e s]; None: zero. Returns y [b n e] in the dtype of x and the last state [b e s], which is computed
    in float32, or float64 where x is.

    A sequence is cut into about sqrt(n) chunks of as many tokens. A loop over the tokens of a chunk, all chunks at
    once, gives the state at the end of each chunk from zero; one over the chunks carries these on; a second loop over
    the tokens starts from the right states. So O(sqrt(n)) steps follow each other. Every exponent is dt A <= 0, so
    none overflows, however long the sequence and large dt. The backward pass computes the states again, so of each
    layer the inputs alone are saved.
    On a CPU in float32, `scan_kernel` runs in its place where the package numba is installed (the extra `numba`, which
    `seqkit doctor` shows), ten times as fast in training; results differ by rounding, about 1e-7 of them.
    On CUDA `scan_triton` runs in its place where Triton is, with states in the same precision.
    `torch.compile` takes that kernel into its graph. It leaves the other scans as they are, since their loops would be
    thousands of operations to compile.
    `torch.export` gets one operation, a loop over the tokens.

    >>> x, dt, A = torch.randn(2, 7, 3), torch.rand(2, 7, 3), -torch.rand(3, 5)
    >>> B, C = torch.randn(2, 2, 7, 5)
    >>> y, state = selective_scan(x, dt, A, B, C)
    >>> y.shape, state.shape
    (torch.Size([2, 7, 3]), torch.Size([2, 3, 5]))
    """
    exact = float32_or_more(x.dtype)
    if state is None:
        state = x.new_zeros(x.shape[0], *A.shape, dtype=exact)
    if runs_triton(x):
        from seqkit.nn.scan_triton import scan

        return scan(x, dt, A, B, C, state)
    return _without_triton(x, dt, A, B, C, state, exact)


@torch.compiler.disable
def _without_triton(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor, exact: torch.dtype
) -> tuple[Tensor, Tensor]:
    """`selective_scan`, computed in `exact`, by numba where it is installed and by torch's operations elsewhere."""
    if is_exporting():
        scan = _by_token
    else:
        scan = getattr(compiled_scan(x.to(exact)), "scan", _scan)
    with no_autocast(x):
        y, last = scan(*(t.to(exact) for t in (x, dt, A, B, C, state)))
    return y.to(x.dtype), last


def scan_flops(b: int, n: int, e: int, s: int) -> int:
    """FLOPs of one scan that no matrix product of torch has: b n e (5 s + 1).

    A state takes 5: dt A and its exponential (1 each), B (dt x) (1), the decay and the sum (2); a channel 1: dt x. The
    sum over states, C h, takes 2 more a state, and is a matrix product that torch's FLOP counter sees.
    """
    return b * n * e * (5 * s + 1)


def chunks(n: int) -> tuple[int, int]:
    """Number of chunks k and their tokens m, about sqrt(n) each, with k m >= n; what is too much is padding."""
    m = math.isqrt(max(n, 1) - 1) + 1
    return max(-(-n // m), 1), m


def _scan(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """`selective_scan`, of as many examples at once as `BLOCK` lets."""
    exponents = rearrange(A * math.log2(math.e), "e s -> s e")  # exp2 is faster than exp on a CPU
    size = max(BLOCK // (chunks(x.shape[1])[0] * A.numel()), 1)
    blocks = zip(*(t.split(size) for t in (x, dt, B, C, rearrange(state, "b e s -> b s e"))))
    found = [
        checkpoint(_scan_block, exponents, *block, use_reentrant=False, preserve_rng_state=False)
        for block in blocks
    ]
    y, last = (torch.cat(parts) for parts in zip(*found))
    return y, rearrange(last, "b s e -> b e s")


def _scan_block(
    exponents: Tensor, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """y [b n e] and the last state [b s e]. exponents: of 2, a time, [s e].

    Tensors are [m (b k) s e]: a step is one index of m, and the many channels are last, so that the few states do not
    cut the work into short rows.
    """
    n = x.shape[1]
    k, m = chunks(x.shape[1])

    def by_offset(t: Tensor) -> Tensor:
        """[m (b k) 1 e]; what pads the last chunk has dt = 0: it changes no state."""
        return rearrange(F.pad(t, [0, 0, 0, k * m - n]), "b (k m) e -> m (b k) 1 e", k=k)

    dt_, u, B_, C_ = (by_offset(t) for t in (dt, dt * x, B, C))
    steps = [(torch.exp2(dt_i * exponents), B_i.mT, u_i) for dt_i, B_i, u_i in zip(dt_, B_, u)]
    h = state
    if k > 1:
        ends = x.new_zeros(len(u[0]), *exponents.shape)
        for decay, B_i, u_i in steps:
            ends = torch.addcmul(decay * ends, B_i, u_i)
        decays = torch.exp2(dt_.sum(dim=0) * exponents)
        starts = [state]
        for decay, end in list(
            zip(*(rearrange(t, "(b k) s e -> k b s e", k=k) for t in (decays, ends)))
        )[:-1]:
            starts.append(torch.addcmul(end, decay, starts[-1]))
        h = rearrange(torch.stack(starts), "k b s e -> (b k) s e")
    outputs = []
    for (decay, B_i, u_i), C_i in zip(steps, C_):
        h = torch.addcmul(decay * h, B_i, u_i)
        outputs.append(C_i @ h)
    y = rearrange(torch.stack(outputs), "m (b k) 1 e -> b (k m) e", k=k)[:, :n]
    return y, rearrange(h, "(b k) s e -> b k s e", k=k)[:, -1]


def _by_token(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """`selective_scan` as one operation of an exported graph."""

    def step(h: Tensor, token: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        dt_i, u_i, B_i, C_i = (rearrange(t, "b e -> b e 1") for t in token)
        h = torch.addcmul((dt_i * A).exp() * h, u_i, B_i.mT)
        return h, rearrange(h @ C_i, "b e 1 -> b e")

    return scan_tokens(step, state, (dt, dt * x, B, C))


def compiled_scan(x: Tensor) -> Any:
    """The module `scan_kernel` if it can take the place of torch's operations on `x`, else None.

    FLOP counters must see those operations.
    """
    is_possible = (
        x.device.type == "cpu" and x.dtype == torch.float32 and not is_in_torch_dispatch_mode()
    )
    return _load_compiled_scan() if is_possible else None


@cache
def _load_compiled_scan() -> Any:
    if find_spec("numba") is None:
        return None
    try:
        return import_module("seqkit.nn.scan_kernel")
    except Exception as error:  # a compiler can fail in any way, and no run should
        said = f"numba does not compile the selective scan, which takes ten times as long without: {error}"
        warnings.warn(said, stacklevel=2)
        return None
