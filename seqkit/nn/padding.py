"""Rows with padding on the right: zeros in its place, and their tokens in the other order.

b batch · n tokens
"""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor


def zero_padded(x: Tensor, valid: Tensor) -> Tensor:
    """x [b n …] of which padding is zero. valid: [b n] bool, True = real."""
    return x.masked_fill(~rearrange(valid, "b n -> b n 1"), 0.0)


def reversed_rows(x: Tensor, valid: Tensor | None) -> Tensor:
    """The real tokens of each row of x [b n …] in the other order; padding stays where it is."""
    if valid is None:
        return x.flip(1)
    column = torch.arange(x.shape[1], device=x.device)
    last = rearrange(valid.sum(dim=1), "b -> b 1") - 1
    index = torch.where(column <= last, last - column, column)
    row = torch.arange(
        x.shape[0], device=x.device
    )  # len(x) would be a constant of an exported graph
    return x[row[:, None], index]
