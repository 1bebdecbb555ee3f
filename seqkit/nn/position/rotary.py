"""Rotary position embedding (RoFormer; Su et al. 2021).

b batch · n tokens · p axes · r channel pairs of one head
"""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor

from seqkit.nn.attention.context import AttentionFeature
from seqkit.nn.position.base import RelativePosition


class Rotary(RelativePosition):
    """Queries and keys rotated by their position, so that scores depend on differences (Su et al. 2021, section 3.2).

    The channel pairs of a head are split equally between the axes (axial; leftover pairs are not rotated);
    of r pairs of an axis, pair i is rotated by position * base^(-i / r).
    """

    requires = AttentionFeature.ROTARY

    def __init__(self, *, base: float = 10_000.0):
        super().__init__()
        if base <= 0:
            raise ValueError(f"base={base} should be positive")
        self.base = base

    def check_axes(self, num_axes: int, head_dim: int) -> None:
        """Raise ValueError if a head has fewer channel pairs than the tokens have axes."""
        if head_dim // 2 < num_axes:
            raise ValueError(
                f"a head_dim of {head_dim} has no channel pair for each of {num_axes} axes; use wider heads"
            )

    def rotary(self, positions: Tensor, head_dim: int) -> Tensor | None:
        """Complex numbers [b 1 n r] for positions [b n p] and heads of `head_dim` channels.

        Raises ValueError if a head has too few channels.
        """
        num_axes = positions.shape[-1]
        if num_axes == 0:
            return None
        self.check_axes(num_axes, head_dim)
        share = head_dim // 2 // num_axes
        exponents = torch.arange(share, device=positions.device, dtype=torch.float32) / share
        angles = rearrange(positions.float(), "b n p -> b 1 n p 1") * self.base**-exponents
        angles = rearrange(angles, "b 1 n p r -> b 1 n (p r)")
        return torch.polar(torch.ones_like(angles), angles)
