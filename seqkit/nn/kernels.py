"""Whether the kernels in Triton can run."""

from __future__ import annotations

from importlib.util import find_spec

from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
"""torch brings Triton where it is built for CUDA, but not on every system."""


def runs_triton(x: Tensor) -> bool:
    """Whether a kernel may work on x."""
    return x.is_cuda and HAS_TRITON
