"""Zeros in the place of padding.

b batch · n tokens
"""

from __future__ import annotations

from einops import rearrange
from torch import Tensor


def zero_padded(x: Tensor, valid: Tensor) -> Tensor:
    """x [b n …] of which padding is zero. valid: [b n] bool, True = real."""
    return x.masked_fill(~rearrange(valid, "b n -> b n 1"), 0.0)
