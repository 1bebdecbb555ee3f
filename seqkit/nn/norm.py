"""Norms beside those of torch.nn."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class ZeroCenteredRMSNorm(nn.RMSNorm):
    """RMSNorm whose factor is 1 + weight, with weights that begin at 0 (Gemma; Gemma Team 2024).

    Weight decay then draws the factors to 1. dim: channels. eps: added to the mean square.
    """

    def __init__(self, dim: int, *, eps: float = 1e-6):
        super().__init__(dim, eps=eps)

    def reset_parameters(self) -> None:
        """All factors 1."""
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """x: [... d]."""
        return F.rms_norm(x, self.normalized_shape, 1 + self.weight, self.eps)
