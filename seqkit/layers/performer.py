"""Softmax attention in O(n), estimated with random features.

b batch · n tokens that read · m tokens that are read · h heads · g heads of keys and values · c channels · f features
"""

from __future__ import annotations

import torch
from einops import einsum
from torch import Tensor

from seqkit.layers.linear import FeatureAttention

ROOM = 40.0
"""Largest exponent of a key's feature: exp(40) leaves float32 (to exp(88)) room for sums over any length."""


class Performer(FeatureAttention):
    """FAVOR+: positive orthogonal random features whose products are exp(q k / sqrt(c)) on average.

    num_features: the error falls with its square root, and grows with exp(|q + k|^2 / (2 sqrt(c))): large queries and
    keys need more than there are tokens. Time and memory O(n num_features c).
    Choromanski et al. 2021, equation 5 and section 2.4 (without the constant that they add to features, and without
    drawing anew while training). Directions are drawn once, from torch's global generator, and saved with the weights.
    Rotation: it estimates the softmax of the turned, so a shift of all positions changes it by its error.
    Keys of a squared norm above about 170 sqrt(c) underflow in float32 and are not read; a qk_norm keeps them small.
    Raises ValueError if num_features < 1.
    """

    honours = FeatureAttention.honours | {"rotation"}
    directions: Tensor

    def __init__(self, num_heads: int, channels: int, *, num_features: int = 256):
        super().__init__()
        if num_features < 1:
            raise ValueError(f"num_features={num_features}; give at least 1, and hundreds for a good estimate")
        self.register_buffer("directions", orthogonal_directions(num_features, channels))

    def query_features(self, q: Tensor) -> Tensor:
        """[b h n f], largest 1. What a query's features are divided by is its own and falls out of its weights."""
        exponents = self._exponents(q)
        return (exponents - exponents.amax(dim=-1, keepdim=True).detach()).exp()

    def key_features(self, k: Tensor) -> Tensor:
        """[b g m f].

        A factor for all keys falls out of all weights; taken from the keys themselves, as is usual, it would tell of
        later tokens. This one depends on the directions alone: an exponent is at most half a direction's square.
        """
        largest = self.directions.to(k.dtype).square().sum(dim=-1).amax() / 2
        return (self._exponents(k) - (largest - ROOM).clamp(min=0.0)).exp()

    def _exponents(self, x: Tensor) -> Tensor:
        """x w - |x|^2 / 2 for every direction w; the temperature sqrt(c) is shared by queries and keys."""
        x = x * x.shape[-1] ** -0.25
        along = einsum(x, self.directions.to(x.dtype), "b h n c, f c -> b h n f")
        return along - x.square().sum(dim=-1, keepdim=True) / 2


def orthogonal_directions(num_features: int, channels: int) -> Tensor:
    """[f c], each standard normal by itself, those of each c orthogonal (Choromanski et al. 2021, section 2.4)."""
    blocks = []
    for start in range(0, num_features, channels):
        frame, triangle = torch.linalg.qr(torch.randn(channels, channels))
        frame = frame * triangle.diagonal().sign()  # else some signs are the routine's habit (Mezzadri 2007, section 5)
        blocks.append(frame.T[: num_features - start])
    lengths = torch.randn(num_features, channels).norm(dim=-1, keepdim=True)
    return torch.cat(blocks) * lengths
