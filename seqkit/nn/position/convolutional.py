"""Positions by a convolution over the embeddings: what stands around a token says where it is.

b batch · n tokens · d width
"""

from __future__ import annotations

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from seqkit.nn.position.base import PositionalEncoding


class ConvolutionalPosition(PositionalEncoding):
    """Grouped convolution over the embeddings, then GELU, added to them (wav2vec 2.0; Baevski et al. 2020, section 2).

    kernel_size: tokens that it covers; of an even number, one more before the token than behind it. num_groups: groups
    of channels. Its weight is normalised for each place in the kernel (weight normalisation), as in the published code.
    Tokens are taken in their order; their positions are not looked at.
    Raises ValueError for tokens without exactly one axis, a kernel size below 1, or groups that do not divide dim.
    """

    mixes_tokens = True

    def __init__(self, dim: int, num_axes: int, *, kernel_size: int = 128, num_groups: int = 16):
        super().__init__(dim, num_axes)
        if num_axes != 1:
            raise ValueError(
                f"ConvolutionalPosition is for tokens on one axis, and these have {num_axes}"
            )
        if kernel_size < 1 or num_groups < 1 or dim % num_groups:
            raise ValueError(
                f"kernel_size={kernel_size}, num_groups={num_groups} of dim={dim}; give a size of at least 1, and "
                "groups that divide dim"
            )
        conv = nn.Conv1d(dim, dim, kernel_size, padding=kernel_size // 2, groups=num_groups)
        nn.init.normal_(conv.weight, std=2 * (kernel_size * dim) ** -0.5)
        nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        self.conv = weight_norm(conv, dim=2)

    def forward(self, positions: Tensor) -> Tensor:
        """Zeros that broadcast to [b n d]: nothing depends on the positions alone."""
        return positions.new_zeros(1, 1, self.dim, dtype=self.dtype)

    def add(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Embeddings [b n d], zero where padded, with what the convolution makes of those around each."""
        around = self.conv(rearrange(hidden, "b n d -> b d n"))[..., : hidden.shape[1]]
        return hidden + rearrange(F.gelu(around), "b d n -> b n d")
