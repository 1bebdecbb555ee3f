"""Whether two tensors are the same, up to the tolerance of their dtype."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqkit.testing.checks import DifferenceError

TOLERANCE = 1e-7


TOLERANCE_32 = 1e-3
"""Where a module runs in float32 alone: grouped experts differ by 2e-4 there."""


def assert_same(got: Tensor, expected: Tensor, fault: str) -> None:
    """Raises AssertionError if two tensors differ in shape, and DifferenceError if in a value by more than the
    tolerance of their dtype."""
    assert_within(got, expected, fault, _tolerance(expected))


def assert_within(got: Tensor, expected: Tensor, fault: str, tolerance: float) -> None:
    """Like `assert_same`, with a tolerance: a share of each number, and of the largest or of 1 if that is more."""
    if got.shape != expected.shape:
        raise AssertionError(f"{fault} (it is {list(got.shape)}, not {list(expected.shape)})")
    right = _largest(expected)
    atol = tolerance * (max(1.0, right) if math.isfinite(right) else 1.0)
    if not torch.allclose(got, expected, rtol=tolerance, atol=atol):
        difference = _largest(got - expected)
        share = difference / right if right else math.inf
        raise DifferenceError(f"{fault} (by {difference:.2g} of {right:.2g})", share)


def _largest(values: Tensor) -> float:
    """The largest size of a number; infinite where one is NaN."""
    sizes = values.detach().abs().nan_to_num(math.inf, posinf=math.inf)
    return float(sizes.max()) if sizes.numel() else 0.0


def _tolerance(values: Tensor) -> float:
    return TOLERANCE if values.dtype in (torch.float64, torch.complex128) else TOLERANCE_32


def is_same(got: Tensor, expected: Tensor) -> bool:
    """Whether `assert_same` passes."""
    try:
        assert_same(got, expected, "")
    except AssertionError:
        return False
    return True
