"""How a branch is added to what was there.

b batch · n tokens · d width
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """x + branch, the branch thinned out while training, and scaled if asked.

    dropout: of the branch's entries. drop_path: chance that an example skips the branch (stochastic depth; Huang et al.
    2016; timm's `DropPath`), growing from 0 in the first layer to this in the last, as there.
    layer_scale: start of a learned factor per channel (Touvron et al. 2021, CaiT, section 2.1); None: no factor.
    Raises ValueError for chances outside [0, 1).
    """

    def __init__(self, dim: int, *, dropout: float = 0.0, drop_path: float = 0.0, layer_scale: float | None = None):
        super().__init__()
        for name, chance in (("dropout", dropout), ("drop_path", drop_path)):
            if not 0 <= chance < 1:
                raise ValueError(f"{name}={chance} is a chance; make it at least 0 and below 1")
        self.dropout, self.chance = nn.Dropout(dropout), drop_path
        self.drop_path: nn.Module | None = None
        if drop_path:
            from timm.layers import DropPath  # timm takes seconds to import

            self.drop_path = DropPath(drop_path)
        self.scale = nn.Parameter(torch.full((dim,), float(layer_scale))) if layer_scale is not None else None

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        """x, branch: [b n d]."""
        branch = self.dropout(branch)
        if self.scale is not None:
            branch = branch * self.scale
        if self.drop_path is not None:
            branch = self.drop_path(branch)
        return x + branch

    def at_depth(self, share: float) -> None:
        """Told once by the stack: how deep its layer lies, 0 first to 1 last."""
        if self.drop_path is not None:
            self.drop_path.drop_prob = self.chance * share  # type: ignore[assignment]
