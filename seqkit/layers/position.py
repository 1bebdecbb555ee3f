"""Where a token stands, told in two ways: added to its content (in the Embedder), or inside attention.

Both take positions [b n p] with any number of axes p; neither knows a modality. A new way is a new class here:
no backbone changes for it.

b batch · n tokens · m tokens that are read · p axes · d width · r channel pairs of one head
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn


class AddedPosition(nn.Module, ABC):
    """Turns positions [b n p] into vectors [b n d] that the Embedder adds to the content.

    std: about how large its entries are; the Embedder makes looked-up content as large, so that neither drowns the
    other. own_channels: the last so many channels are its alone: content is made narrower and leaves them zero, so that
    to add is to concatenate.
    """

    std: float = 0.02
    own_channels: int = 0

    def __init__(self, dim: int, num_axes: int):
        super().__init__()
        self.dim, self.num_axes = dim, num_axes

    @abstractmethod
    def forward(self, positions: Tensor) -> Tensor:
        """Vectors [b n d] for positions [b n p]."""


class NoPosition(AddedPosition):
    """Adds nothing: to an attention that is told nothing else the tokens are a set."""

    def forward(self, positions: Tensor) -> Tensor:
        """Zero, in a shape that broadcasts."""
        return positions.new_zeros(1, 1, self.dim)


class Sinusoidal(AddedPosition):
    """Sines and cosines of wavelengths 2 pi to 2 pi * max_wavelength (Vaswani et al. 2017, section 3.5), by axis.

    The width is shared equally between the axes (half each for images); in each share, channel 2 i holds
    sin(pos / max_wavelength^(2 i / share)) and channel 2 i + 1 the cosine. Any position is allowed, fractions too.
    Raises ValueError if dim is not a multiple of 2 * num_axes.
    """

    std = 1.0
    frequencies: Tensor

    def __init__(self, dim: int, num_axes: int, *, max_wavelength: float = 10_000.0):
        super().__init__(dim, num_axes)
        if num_axes and dim % (2 * num_axes):
            raise ValueError(
                f"dim={dim} does not hold a sine and a cosine for each of {num_axes} axes equally; "
                f"make it a multiple of {2 * num_axes}"
            )
        share = dim // max(num_axes, 1)
        exponents = torch.arange(0, share, 2, dtype=torch.float64) / share
        self.register_buffer("frequencies", (max_wavelength**-exponents).float(), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """Vectors [b n d] for positions [b n p]."""
        if self.num_axes == 0:
            return positions.new_zeros(1, 1, self.dim)
        angles = rearrange(positions, "b n p -> b n p 1") * self.frequencies
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1)
        return rearrange(waves, "b n p i two -> b n (p i two)")


class SinusoidalConcat(AddedPosition):
    """The waves of `Sinusoidal` beside the content instead of on top of it, in the last `channels` of the width.

    Content keeps the first dim - channels, so a head cannot share its table (tied=True). Tokens without axes leave all
    of the width to content.
    Raises ValueError if channels leave content nothing, or are not a multiple of 2 * num_axes.
    """

    std = 1.0

    def __init__(self, dim: int, num_axes: int, *, channels: int, max_wavelength: float = 10_000.0):
        super().__init__(dim, num_axes)
        if not 0 < channels < dim:
            raise ValueError(f"channels={channels} of dim={dim} should leave some to content and some to positions")
        self.own_channels = channels if num_axes else 0
        self.waves = Sinusoidal(channels, num_axes, max_wavelength=max_wavelength)

    def forward(self, positions: Tensor) -> Tensor:
        """Vectors [b n d] for positions [b n p], zero where content stands."""
        if self.num_axes == 0:
            return positions.new_zeros(1, 1, self.dim)
        return F.pad(self.waves(positions), [self.dim - self.own_channels, 0])


class Learned(AddedPosition):
    """A trained table per axis, summed over the axes; positions are whole numbers below `sizes`.

    sizes: entries per axis, one per axis of the tokenizer.
    Raises ValueError if `sizes` does not fit the axes, or a position lies outside the table.
    """

    def __init__(self, dim: int, num_axes: int, *, sizes: Sequence[int]):
        super().__init__(dim, num_axes)
        sizes = tuple(sizes)
        if sizes and min(sizes) < 1:
            raise ValueError(f"Learned(sizes={list(sizes)}) counts entries of tables; make each 1 or more")
        if len(sizes) != num_axes or num_axes == 0:
            raise ValueError(
                f"Learned(sizes={list(sizes)}) has {len(sizes)} axes, the tokens have {num_axes}; give one size each"
            )
        self.sizes = sizes
        self.tables = nn.ParameterList([nn.Parameter(torch.randn(size, dim) * self.std) for size in sizes])

    def forward(self, positions: Tensor) -> Tensor:
        """Vectors [b n d] for positions [b n p]."""
        index = positions.long()
        if not index.is_meta:  # tensors without numbers are taken to fit
            self._refuse_outside(positions, index)
        return sum(
            (F.embedding(index[..., axis], table) for axis, table in enumerate(self.tables)),
            start=positions.new_zeros(1),
        )

    def _refuse_outside(self, positions: Tensor, index: Tensor) -> None:
        if bool((index != positions).any()):
            raise ValueError("Learned takes whole positions; for fractions use Sinusoidal")
        for axis, size in enumerate(self.sizes):
            low, high = index[..., axis].aminmax()
            if low < 0 or high >= size:
                raise ValueError(
                    f"position {int(low if low < 0 else high)} on axis {axis} is outside the learned table of {size}; "
                    f"shorten the input or resample the table with Learned.resampled"
                )

    def resampled(self, sizes: Sequence[int]) -> Learned:
        """The same table stretched linearly to other sizes, its ends kept at the ends (ViT at another resolution)."""
        other = Learned(self.dim, self.num_axes, sizes=sizes)
        with torch.no_grad():
            for new, old in zip(other.tables, self.tables):
                rows = rearrange(old, "size d -> 1 d size")
                new.copy_(
                    rearrange(F.interpolate(rows, len(new), mode="linear", align_corners=True), "1 d size -> size d")
                )
        return other


class AttentionPosition(nn.Module):
    """Tells attention where tokens stand: by turning queries and keys, by adding to the scores or to the keys.

    needs: what of `reading.FEATURES` an attention must honour to be told so.
    """

    needs: ClassVar[frozenset[str]]

    def check(self, num_heads: int, channels: int) -> None:
        """Raise ValueError if it does not fit heads of that number and width (asked once, when a backbone is built)."""

    def check_axes(self, num_axes: int, channels: int) -> None:
        """Raise ValueError if tokens with that many axes cannot be told so (asked once, when a model is built)."""

    def rotation(self, positions: Tensor, channels: int) -> Tensor | None:
        """Complex numbers of length one [b 1 n r] that turn channel pairs (2 i, 2 i + 1) of a head; None: no turn."""
        return None

    def bias(self, readers: Tensor, read: Tensor, num_heads: int) -> Tensor | None:
        """[b h n m] to add to the scores of readers at [b n p] over tokens at [b m p]; None: nothing."""
        return None

    def relative(self, readers: Tensor, read: Tensor) -> Tensor | None:
        """[b n m c] to add to the keys at [b m p] as readers at [b n p] see them; None: nothing."""
        return None


class Rotary(AttentionPosition):
    """Queries and keys turned by their position, so that scores see differences (RoFormer; Su et al. 2021, 3.2).

    The channel pairs of a head are dealt to the axes in equal shares (axial; leftover pairs are not turned);
    in a share of r pairs, pair i turns by position * base^(-i / r).
    """

    needs = frozenset({"rotation"})

    def __init__(self, *, base: float = 10_000.0):
        super().__init__()
        if base <= 0:
            raise ValueError(f"base={base} should be positive")
        self.base = base

    def check_axes(self, num_axes: int, channels: int) -> None:
        """Raise ValueError if a head has fewer channel pairs than the tokens have axes."""
        if channels // 2 < num_axes:
            raise ValueError(f"heads of {channels} channels hold no pair for each of {num_axes} axes; use wider heads")

    def rotation(self, positions: Tensor, channels: int) -> Tensor | None:
        """Complex numbers [b 1 n r] for positions [b n p] and heads of `channels`.

        Raises ValueError if a head has too few channels.
        """
        num_axes = positions.shape[-1]
        if num_axes == 0:
            return None
        self.check_axes(num_axes, channels)
        share = channels // 2 // num_axes
        exponents = torch.arange(share, device=positions.device, dtype=torch.float32) / share
        angles = rearrange(positions.float(), "b n p -> b 1 n p 1") * self.base**-exponents
        angles = rearrange(angles, "b 1 n p r -> b 1 n (p r)")
        return torch.polar(torch.ones_like(angles), angles)
