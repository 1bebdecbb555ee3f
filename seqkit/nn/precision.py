"""Where the digits of float32 are needed whatever the training's precision, and where kernels in Triton run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
"""torch brings Triton where it is built for CUDA, but not on every system."""


def runs_triton(x: Tensor) -> bool:
    """Whether a kernel in Triton may work on x."""
    return x.is_cuda and HAS_TRITON


def no_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """No autocast inside, on the device of x: sums over many tokens, states and routers do not fit into eight bits."""
    is_on = not x.is_meta and torch.is_autocast_enabled(x.device.type)
    if is_on:
        return torch.autocast(x.device.type, enabled=False)
    return nullcontext()


def float32_or_more(dtype: torch.dtype) -> torch.dtype:
    """The dtype itself, or float32 where that has more digits."""
    return torch.promote_types(dtype, torch.float32)
