"""Positional encodings that the Embedder adds to the embeddings: none, sinusoids, learned tables.

b batch · n tokens · p axes · d width
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.nn.position.base import PositionalEncoding


class NoPosition(PositionalEncoding):
    """No positional encoding; attention is then permutation-equivariant."""

    def forward(self, positions: Tensor) -> Tensor:
        """Zeros that broadcast to [b n d]."""
        return positions.new_zeros(1, 1, self.dim)


class Sinusoidal(PositionalEncoding):
    """Sinusoidal positional encoding, by axis (Vaswani et al. 2017, section 3.5).

    Wavelengths go from 2 pi to 2 pi * max_wavelength. The width is split equally between the axes (half each for
    images); in each share, channel 2 i holds sin(pos / max_wavelength^(2 i / share)) and channel 2 i + 1 the cosine.
    Any position is allowed, fractions too.
    Raises ValueError if dim is not a multiple of 2 * num_axes.
    """

    std = 1.0
    frequencies: Tensor

    def __init__(self, dim: int, num_axes: int, *, max_wavelength: float = 10_000.0):
        super().__init__(dim, num_axes)
        if num_axes and dim % (2 * num_axes):
            raise ValueError(
                f"dim={dim} does not split into a sine and a cosine for each of {num_axes} axes equally; "
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
        sinusoids = torch.stack([angles.sin(), angles.cos()], dim=-1)
        return rearrange(sinusoids, "b n p i two -> b n (p i two)")


class SinusoidalConcat(PositionalEncoding):
    """`Sinusoidal` concatenated to the embedded content instead of added, as the last `channels` of the width.

    Content keeps the first dim - channels, so a head cannot share its table (tied=True). For tokens without axes
    content has all of the width.
    Raises ValueError if channels leave content nothing, or are not a multiple of 2 * num_axes.
    """

    std = 1.0

    def __init__(self, dim: int, num_axes: int, *, channels: int, max_wavelength: float = 10_000.0):
        super().__init__(dim, num_axes)
        if not 0 < channels < dim:
            raise ValueError(f"channels={channels} of dim={dim} should leave some to content and some to positions")
        self.num_position_channels = channels if num_axes else 0
        self.sinusoidal = Sinusoidal(channels, num_axes, max_wavelength=max_wavelength)

    def forward(self, positions: Tensor) -> Tensor:
        """Vectors [b n d] for positions [b n p], zero where content stands."""
        if self.num_axes == 0:
            return positions.new_zeros(1, 1, self.dim)
        return F.pad(self.sinusoidal(positions), [self.dim - self.num_position_channels, 0])


class Learned(PositionalEncoding):
    """Learned positional embeddings: a table per axis, summed over the axes; positions are integers below `sizes`.

    sizes: entries per axis, one per axis of the tokenizer.
    Raises ValueError if `sizes` does not fit the axes, or a position is a fraction or outside its table.
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
        if not index.is_meta:  # tensors without data are taken to fit
            self._check_in_table(positions, index)
        return sum(
            (F.embedding(index[..., axis], table) for axis, table in enumerate(self.tables)),
            start=positions.new_zeros(1),
        )

    def _check_in_table(self, positions: Tensor, index: Tensor) -> None:
        if bool((index != positions).any()):
            raise ValueError("Learned takes integer positions; for fractions use Sinusoidal")
        for axis, size in enumerate(self.sizes):
            low, high = index[..., axis].aminmax()
            if low < 0 or high >= size:
                raise ValueError(
                    f"position {int(low if low < 0 else high)} on axis {axis} is outside the learned table of {size}; "
                    "shorten the input or resample the table with Learned.resampled"
                )

    def resampled(self, sizes: Sequence[int]) -> Learned:
        """The same tables interpolated linearly to other sizes, ends aligned (ViT at another resolution)."""
        other = Learned(self.dim, self.num_axes, sizes=sizes)
        with torch.no_grad():
            for new, old in zip(other.tables, self.tables):
                rows = rearrange(old, "size d -> 1 d size")
                new.copy_(
                    rearrange(F.interpolate(rows, len(new), mode="linear", align_corners=True), "1 d size -> size d")
                )
        return other
