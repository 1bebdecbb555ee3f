"""Rotary position embedding (RoFormer; Su et al. 2021).

b batch · n tokens · p axes · h heads · c channels of one head · r channel pairs of one head
"""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor

from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.checks import check_above_0
from seqkit.nn.position.base import RelativePosition
from seqkit.nn.position.rotary_scaling import RotaryScaling


class Rotary(RelativePosition):
    """Queries and keys rotated by their position, so that scores depend on differences (Su et al. 2021, section 3.2).

    The channel pairs of a head are split equally between the axes (axial; leftover pairs are not rotated);
    of r pairs of an axis, pair i is rotated by position * base^(-i / r).
    interleaved: True: pair i of a head's R pairs belongs to axis i modulo the number of axes, and has the frequency
    base^(-i / R). A token with one coordinate on all axes is then rotated as on one axis, so joined parts of unlike
    axes (text beside images) keep what each has alone (as the interleaved M-RoPE of Qwen3-VL). Of one axis both are
    the same.
    base: ratio of the frequencies of the first and the last pair, about. share: share of a head's channels, from the
    first on, that are rotated at all, rounded down (GPT-NeoX, Phi; Black et al. 2022, section 2.1). scaling: scaling
    of the frequencies, for longer sequences than in training; None: none.
    Raises ValueError for a base that is not above 0 or a share outside (0, 1].
    """

    requires = AttentionFeature.ROTARY

    def __init__(
        self,
        *,
        base: float = 10_000.0,
        share: float = 1.0,
        scaling: RotaryScaling | None = None,
        interleaved: bool = False,
    ):
        super().__init__()
        check_above_0(base=base)
        if not 0 < share <= 1:
            raise ValueError(
                f"share={share} of a head's channels are rotated; make it above 0 and at most 1"
            )
        self.base = base
        self.share = share
        self.scaling = scaling
        self.interleaved = self.takes_unlike_axes = interleaved

    def check_axes(self, num_axes: int, head_dim: int) -> None:
        """Raise ValueError if a head has fewer channel pairs than the tokens have axes, or the scaling does not fit."""
        if self._pairs(head_dim) < num_axes:
            narrowed = "" if self.share == 1 else f" with share={self.share}"
            raise ValueError(
                f"a head_dim of {head_dim}{narrowed} has no channel pair for each of {num_axes} axes; "
                "use wider heads, or a larger share where that is below 1"
            )
        if self.scaling is not None and num_axes > 0:
            self.scaling.check_pairs(self._pairs_of_axis(head_dim, num_axes), self.base)

    def _pairs(self, head_dim: int) -> int:
        """Channel pairs of a head that are rotated."""
        return int(head_dim * self.share) // 2

    def _pairs_of_axis(self, head_dim: int, num_axes: int) -> int:
        return self._pairs(head_dim) // (1 if self.interleaved else num_axes)

    def rotary(self, positions: Tensor, head_dim: int) -> Tensor | None:
        """Complex numbers [b 1 n r] for positions [b n p] and heads of `head_dim` channels.

        Raises ValueError if a head has too few channels.
        """
        num_axes = positions.shape[-1]
        if num_axes == 0:
            return None
        self.check_axes(num_axes, head_dim)
        r = self._pairs_of_axis(head_dim, num_axes)
        frequencies = self.base ** -(
            torch.arange(r, device=positions.device, dtype=torch.float32) / r
        )
        if self.scaling is not None:
            positions = self.scaling.checked(positions.float())
            frequencies = self.scaling(frequencies, self.base)
        if self.interleaved:
            axis = torch.arange(r, device=positions.device) % num_axes
            angles = rearrange(positions.float()[..., axis], "b n r -> b 1 n r") * frequencies
        else:
            angles = rearrange(positions.float(), "b n p -> b 1 n p 1") * frequencies
            angles = rearrange(angles, "b 1 n p r -> b 1 n (p r)")
        factor = 1.0 if self.scaling is None else self.scaling.attention_factor
        return torch.polar(torch.full_like(angles, factor), angles)
