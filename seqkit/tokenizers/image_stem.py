"""Convolutional stem of images: embeddings of patches with a margin, as `TokenSpec.embedder`.

A token holds all pixels that its embedding depends on, so its embedding is the same beside others and beside padding.

b batch · n tokens · c channels · P Q window height and width · f = c P Q · d width
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

KERNEL = 3
STRIDE = 2


def size_after(size: int, num_convolutions: int) -> int:
    """Side of a window after so many convolutions; below 1 where it is too small for them."""
    for _ in range(num_convolutions):
        size = (size - KERNEL) // STRIDE + 1
    return size


class ConvStem(nn.Module):
    """3 × 3 convolutions of stride 2 with GELU over each window, a linear layer over what is left of it, and LayerNorm.

    window: its (height, width) in pixels. widths: channels after each convolution.
    Xiao et al. 2021 (2106.14881), with one norm, at the end: embeddings are then as large as sinusoidal positions.
    """

    def __init__(self, window: tuple[int, int], channels: int, widths: Sequence[int], dim: int):
        super().__init__()
        self.window = window
        self.channels = channels
        layers = [nn.Conv2d(i, o, KERNEL, STRIDE) for i, o in zip((channels, *widths), widths)]
        for convolution in layers:
            # torch's own start makes them smaller with each convolution
            nn.init.kaiming_normal_(convolution.weight)
        self.convolutions = nn.ModuleList(layers)
        height, width = (size_after(side, len(widths)) for side in window)
        self.linear = nn.Linear(widths[-1] * height * width, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, content: Tensor) -> Tensor:
        """Embeddings [b n d] of content [b n f]."""
        b = content.shape[0]  # len would be a constant of an exported graph
        height, width = self.window
        x = rearrange(content, "b n (c P Q) -> (b n) c P Q", c=self.channels, P=height, Q=width)
        for convolution in self.convolutions:
            x = F.gelu(convolution(x))
        return self.norm(self.linear(rearrange(x, "(b n) c P Q -> b n (c P Q)", b=b)))
