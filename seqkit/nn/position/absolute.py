"""Positional encodings that the Embedder adds to the embeddings: none, sinusoids, learned tables.

b batch · n tokens · p axes · d width
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Backbone, TokenSpec
from seqkit.interfaces.tokens import may_read
from seqkit.nn.position.base import PositionalEncoding
from seqkit.nn.precision import float32_or_more


class NoPosition(PositionalEncoding):
    """No positional encoding; attention is then permutation-equivariant."""

    def forward(self, positions: Tensor) -> Tensor:
        """Zeros that broadcast to [b n d]."""
        return positions.new_zeros(1, 1, self.dim, dtype=self.dtype)


class Sinusoidal(PositionalEncoding):
    """Sinusoidal positional encoding, by axis (Vaswani et al. 2017, section 3.5).

    max_wavelength: longest wavelength / 2 pi; the shortest is 2 pi. The width is split equally between the axes (half
    each for images); in each share, channel 2 i holds sin(pos / max_wavelength^(2 i / share)) and channel 2 i + 1 the
    cosine. interleaved: False: all sines of a share come first, then its cosines (Tensor2Tensor, Marian).
    endpoint: True: the last pair has max_wavelength itself, not the one before it in that series (Tensor2Tensor, M2M).
    first: position of the first token (2 in M2M).
    Any position is allowed, fractions too.
    Raises ValueError if dim is not a multiple of 2 * num_axes, or an endpoint has no series of two pairs or more.
    """

    std = 1.0

    def __init__(
        self,
        dim: int,
        num_axes: int,
        *,
        max_wavelength: float = 10_000.0,
        interleaved: bool = True,
        endpoint: bool = False,
        first: int = 0,
    ):
        super().__init__(dim, num_axes)
        if num_axes and dim % (2 * num_axes):
            raise ValueError(
                f"dim={dim} does not split into a sine and a cosine for each of {num_axes} axes equally; "
                f"make it a multiple of {2 * num_axes}"
            )
        if endpoint and dim < 4 * num_axes:
            raise ValueError(
                f"endpoint=True needs two pairs of channels for each of {num_axes} axes, and dim={dim} has fewer; "
                f"make it {4 * num_axes} or more"
            )
        self.max_wavelength = max_wavelength
        self.interleaved = interleaved
        self.endpoint = endpoint
        self.first = first

    def forward(self, positions: Tensor) -> Tensor:
        """Vectors [b n d] for positions [b n p]."""
        if self.num_axes == 0:
            return positions.new_zeros(1, 1, self.dim, dtype=self.dtype)
        wide = float32_or_more(torch.promote_types(positions.dtype, self.dtype))
        angles = rearrange(positions.to(wide) + self.first, "b n p -> b n p 1") * self._frequencies(
            positions.device
        )
        sinusoids = torch.stack([angles.sin(), angles.cos()], dim=-1)
        order = "i two" if self.interleaved else "two i"
        return rearrange(sinusoids, f"b n p i two -> b n (p {order})").to(self.dtype)

    def _frequencies(self, device: torch.device) -> Tensor:
        """[i]. Made anew each time: a buffer would be rounded by `model.half()` and lost by `to_empty`."""
        share = self.dim // self.num_axes
        if self.endpoint:
            # in single precision and in this order, since weights from elsewhere were trained so
            step = math.log(self.max_wavelength) / (share // 2 - 1)
            return (torch.arange(share // 2, device=device).float() * -step).exp()
        # Apple's GPUs have no more
        if device.type == "mps":
            precise = torch.float32
        else:
            precise = torch.float64
        exponents = torch.arange(0, share, 2, dtype=precise, device=device) / share
        return (self.max_wavelength**-exponents).float()


class SinusoidalConcat(PositionalEncoding):
    """`Sinusoidal` in the place of the last `channels` of the embedded content, so that neither changes the other.

    channels: channels of the positions. max_wavelength: as in `Sinusoidal`. Tokens without axes keep all of it.
    Raises ValueError if channels leave content nothing, or are not a multiple of 2 * num_axes.
    """

    std = 1.0

    def __init__(self, dim: int, num_axes: int, *, channels: int, max_wavelength: float = 10_000.0):
        super().__init__(dim, num_axes)
        if not 0 < channels < dim:
            raise ValueError(
                f"channels={channels} of dim={dim} should leave some to content and some to positions"
            )
        self.channels = channels if num_axes else 0
        self.sinusoidal = Sinusoidal(channels, num_axes, max_wavelength=max_wavelength)

    def forward(self, positions: Tensor) -> Tensor:
        """Vectors [b n d] for positions [b n p], zero in the channels of the content."""
        if self.num_axes == 0:
            return positions.new_zeros(1, 1, self.dim, dtype=self.dtype)
        return F.pad(self.sinusoidal(positions), [self.dim - self.channels, 0])

    def add(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Embeddings [b n d] with positions in their last channels."""
        content = hidden[..., : self.dim - self.channels]
        return F.pad(content, [0, self.channels]) + self(positions)


class Learned(PositionalEncoding):
    """Learned positional embeddings: a table per axis, summed over the axes; positions are integers below `sizes`.

    sizes: entries per axis, one per axis of the tokenizer. first: entry of position 0 on the first axis; published
    tables begin with entries that no token has (2 in RoBERTa, OPT and BART). num_registers: tokens from position 1 on
    that have no entry (DINOv2's registers; Darcet et al. 2024).
    Raises ValueError if `sizes` does not fit the axes, or a position on the CPU is a fraction or outside its table;
    positions on an accelerator are not read, since a step would wait for it.
    """

    def __init__(
        self,
        dim: int,
        num_axes: int,
        *,
        sizes: Sequence[int],
        first: int = 0,
        num_registers: int = 0,
    ):
        super().__init__(dim, num_axes)
        sizes = tuple(sizes)
        if sizes and min(sizes) < 1:
            raise ValueError(
                f"Learned(sizes={list(sizes)}) counts entries of tables; make each 1 or more"
            )
        if len(sizes) != num_axes or num_axes == 0:
            raise ValueError(
                f"Learned(sizes={list(sizes)}) has {len(sizes)} axes, the tokens have {num_axes}; give one size each"
            )
        if not 0 <= first < sizes[0]:
            raise ValueError(
                f"Learned(first={first}) is the entry of position 0; give one from 0 to {sizes[0] - 1}"
            )
        self.first = first
        self.num_registers = num_registers
        self.sizes = sizes
        self.num_positions = min([sizes[0] - first + num_registers, *sizes[1:]])
        self.tables = nn.ParameterList(
            [nn.Parameter(torch.randn(size, dim) * self.std) for size in sizes]
        )

    def begin_with_std(self, std: float) -> None:
        with torch.no_grad():
            for table in self.tables:
                table.mul_(std / self.std)

    def forward(self, positions: Tensor) -> Tensor:
        """Vectors [b n d] for positions [b n p]."""
        index = positions.long()
        if may_read(index):
            self._check_in_table(positions, index)
        columns = index.unbind(dim=-1)
        place = columns[0]
        if self.first or self.num_registers:
            entry = (place - self.num_registers).clamp(min=0) + self.first
            columns = (entry, *columns[1:])
        vectors = [F.embedding(column, table) for column, table in zip(columns, self.tables)]
        if self.num_registers:
            is_register = (place > 0) & (place <= self.num_registers)
            vectors[0] = vectors[0].masked_fill(rearrange(is_register, "b n -> b n 1"), 0.0)
        if len(vectors) == 1:
            return vectors[0]
        wide = float32_or_more(vectors[0].dtype)
        total = vectors[0].to(wide)
        for vector in vectors[1:]:
            total = total + vector
        return total.to(vectors[0].dtype)

    def _check_in_table(self, positions: Tensor, index: Tensor) -> None:
        if bool((index != positions).any()):
            raise ValueError("Learned takes integer positions; for fractions use Sinusoidal")
        for axis, size in enumerate(self.sizes):
            low, high = index[..., axis].aminmax()
            most = size - self.first + self.num_registers if axis == 0 else size
            if low < 0 or high >= most:
                raise ValueError(
                    f"position {int(low if low < 0 else high)} on axis {axis} is outside the learned table of {most}; "
                    "shorten the input, or train with larger sizes"
                )


def default_position(backbone: Backbone | None, spec: TokenSpec) -> type[PositionalEncoding]:
    """The positional encoding for `backbone` (None: unknown) where none was chosen.

    None where it uses positions itself, is recurrent and positions have one axis, or is to know no order; else
    sinusoids.
    """
    if spec.num_axes == 0:
        return NoPosition
    if backbone is None:
        return Sinusoidal
    knows_columns = backbone.is_recurrent and spec.num_axes == 1
    if backbone.uses_positions or knows_columns or backbone.ignores_order:
        return NoPosition
    return Sinusoidal
