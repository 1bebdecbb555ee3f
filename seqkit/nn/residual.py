"""Residual connections with dropout, stochastic depth and layer scale.

b batch · n tokens · d width
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.nn.dropout import InheritedDropout, check_probability


class Residual(InheritedDropout):
    """x + branch, with dropout, stochastic depth and layer scale on the branch.

    dropout: dropout of the branch's entries; None: the backbone's. drop_path: probability that an example skips the
    branch (stochastic depth; Huang et al. 2016; timm's `DropPath`), growing linearly from 0 in the first layer to this
    in the last, as there. layer_scale: initial value of a learned factor per channel (Touvron et al. 2021, CaiT,
    section 2.1); None: no factor. scale: a factor that stays (`residual_multiplier` of Granite). norm: norm of the
    branch's output before all of these, `dim -> nn.Module` (Gemma 2, OLMo 2; Liu et al. 2022, Swin v2, section 3.2:
    res-post-norm); None: none.
    Raises ValueError for probabilities outside [0, 1), or a scale that is not above 0.

    >>> Residual(2, layer_scale=0.1)(torch.ones(1, 1, 2), torch.ones(1, 1, 2))
    tensor([[[1.1000, 1.1000]]], grad_fn=<AddBackward0>)
    """

    def __init__(
        self,
        dim: int,
        *,
        dropout: float | None = None,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        norm: Callable[[int], nn.Module] | None = None,
        scale: float = 1.0,
    ):
        super().__init__(dropout)
        check_probability("drop_path", drop_path)
        if not 0 < scale < math.inf:
            raise ValueError(f"scale={scale} is a factor of the branch; make it larger than 0, or leave it out")
        self.max_drop_path, self.fixed_scale = drop_path, scale
        self.drop_path: nn.Module | None = None
        if drop_path:
            from timm.layers import DropPath  # timm takes seconds to import

            self.drop_path = DropPath(drop_path)
        self.scale = nn.Parameter(torch.full((dim,), float(layer_scale))) if layer_scale is not None else None
        self.norm = norm(dim) if norm is not None else None

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        """x, branch: [b n d]."""
        if self.norm is not None:
            branch = self.norm(branch)
        if self.dropout:
            branch = F.dropout(branch, self.dropout, self.training)
        if self.scale is not None:
            branch = branch * self.scale
        if self.fixed_scale != 1:
            branch = branch * self.fixed_scale
        if self.drop_path is not None:
            branch = self.drop_path(branch)
        return x + branch

    def set_drop_path(self, depth_fraction: float) -> None:
        """Set the probability by the layer's depth, 0 for the first to 1 for the last; the backbone calls it once."""
        if self.drop_path is not None:
            self.drop_path.drop_prob = self.max_drop_path * depth_fraction  # type: ignore[assignment]
