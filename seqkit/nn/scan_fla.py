"""The chunked scan on CUDA by the kernels of flash-linear-attention, where they are installed and agree with ours.

b batch · h heads · n tokens · c keys · e values
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

Scan = Callable[..., tuple[Tensor, Tensor]]
"""y [b h n e] and the last state [b h c e] from the first state, q, k, v, log_decay and, for the delta rule, beta."""

LOWEST = -50.0
"""Logarithm of a decay that is 0 beside numbers of half precision. The kernels subtract them: -inf would become nan."""


def runs_fla(own: Scan, *tokens: Tensor) -> bool:
    """Whether `fla_scan` may work on tokens: q, k, v, log_decay and, for the delta rule, beta. own: ours."""
    _, k, v, *gates = tokens
    is_possible = v.is_cuda and v.dtype in (torch.bfloat16, torch.float16)
    return is_possible and _agrees(own, v.device, v.dtype, k.shape[-1], v.shape[-1], len(gates))


def fla_scan(state: Tensor, *tokens: Tensor) -> tuple[Tensor, Tensor]:
    """A `Scan`, y in the dtype of v."""
    q, k, v, log_decay, *beta = tokens
    name = "gated_delta_rule" if beta else "simple_gla"
    kernel = getattr(import_module(f"fla.ops.{name}"), f"chunk_{name}")
    gates = [log_decay.float().clamp(min=LOWEST), *(t.float() for t in beta)]
    by_token = [rearrange(t, "b h n ... -> b n h ...") for t in (q.to(v), k.to(v), v, *gates)]
    y, last = kernel(*by_token, scale=1.0, initial_state=state.float(), output_final_state=True)
    return rearrange(y, "b n h e -> b h n e"), last


@cache
def _agrees(
    own: Scan, device: torch.device, dtype: torch.dtype, c: int, e: int, num_gates: int
) -> bool:
    """Whether gradients of a small random case are ours but for rounding; if not, one warning says so."""
    if find_spec("fla") is None:
        return False
    sizes = [c, c, e, 1, 1]
    try:
        with torch.inference_mode(False), torch.enable_grad():
            random = torch.randn(1, 2, 80, sum(sizes), generator=torch.Generator().manual_seed(0))
            q, k, v, gate, beta = random.split(sizes, dim=-1)
            gates = [-gate[..., 0].abs(), beta[..., 0].sigmoid()]
            inputs = [q.mT @ v, q, F.normalize(k, dim=-1), v, *gates[:num_gates]]
            inputs = [t.to(device, dtype).requires_grad_() for t in inputs]
            for got, right in zip(_gradients(fla_scan, inputs), _gradients(own, inputs)):
                atol = 0.05 * float(right.abs().max())
                torch.testing.assert_close(got, right, rtol=0, atol=atol)
    except Exception as error:  # a compiler can fail in any way, and no run should
        why = " ".join(str(error).split())
        said = f"flash-linear-attention is left aside, and training takes longer without: {why}"
        warnings.warn(said, stacklevel=2)
        return False
    return True


def _gradients(scan: Scan, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """They depend on both outputs too: that of sin y is cos y."""
    y, last = scan(*inputs)
    return torch.autograd.grad(y.float().sin().sum() + last.sin().sum(), inputs)
