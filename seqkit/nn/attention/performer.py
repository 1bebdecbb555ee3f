"""Softmax attention in O(n), estimated with random features (Performer; Choromanski et al. 2021).

b batch · n queries · m keys · h heads · g key/value heads · c channels of one head · f features
"""

from __future__ import annotations

import torch
from einops import einsum
from torch import Tensor

from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.linear import FeatureMapAttention
from seqkit.nn.checks import check_at_least

MAX_EXPONENT = 40.0
"""Largest exponent of a key's feature: float32 reaches exp(88), so sums over any length stay finite."""


class PerformerAttention(FeatureMapAttention):
    """FAVOR+: linear attention with positive orthogonal random features, of mean product exp(q k / sqrt(c)).

    num_features: number of random features; the error falls with its square root, and grows with exp(|q + k|^2 / (2
    sqrt(c))): large queries and keys need more than there are tokens. Time and memory O(n num_features c).
    Choromanski et al. 2021, equation 5 and section 2.4 (without the constant that they add to features, and without
    drawing anew while training). Directions are drawn once, from torch's global generator, and saved with the weights.
    Rotary: it estimates the softmax of rotated queries and keys, so a shift of all positions changes it by its error.
    Keys of a squared norm above about 170 sqrt(c) underflow in float32 to weight zero; a qk_norm keeps them small.
    Raises ValueError if num_features < 1.
    """

    supports = FeatureMapAttention.supports | AttentionFeature.ROTARY
    directions: Tensor

    def __init__(self, num_heads: int, head_dim: int, *, num_features: int = 256):
        super().__init__()
        check_at_least(1, num_features=num_features)
        self.register_buffer("directions", orthogonal_directions(num_features, head_dim))

    def query_features(self, q: Tensor) -> Tensor:
        """[b h n f], largest 1. The factor that makes it so is the query's own and cancels in its weights."""
        exponents = self._exponents(q)
        return (exponents - exponents.amax(dim=-1, keepdim=True).detach()).exp()

    def key_features(self, k: Tensor) -> Tensor:
        """[b g m f].

        A factor for all keys cancels in all weights; taken from the keys themselves, as is usual, it would leak later
        tokens. This one depends on the directions alone: an exponent is at most half a direction's square.
        """
        largest = self.directions.to(k.dtype).square().sum(dim=-1).amax(dim=0) / 2
        return (self._exponents(k) - (largest - MAX_EXPONENT).clamp(min=0.0)).exp()

    def _exponents(self, x: Tensor) -> Tensor:
        """x w - |x|^2 / 2 for every direction w; the temperature sqrt(c) is shared by queries and keys."""
        x = x * x.shape[-1] ** -0.25
        projected = einsum(x, self.directions.to(x.dtype), "b h n c, f c -> b h n f")
        return projected - x.square().sum(dim=-1, keepdim=True) / 2


def orthogonal_directions(num_features: int, head_dim: int) -> Tensor:
    """[f c], each standard normal by itself, those of each c orthogonal (Choromanski et al. 2021, section 2.4)."""
    blocks = []
    for start in range(0, num_features, head_dim):
        frame, triangle = torch.linalg.qr(torch.randn(head_dim, head_dim))
        # QR alone is not uniformly distributed (Mezzadri 2007, section 5)
        frame = frame * triangle.diagonal().sign()
        blocks.append(frame.T[: num_features - start])
    lengths = torch.randn(num_features, head_dim).norm(dim=-1, keepdim=True)
    return torch.cat(blocks) * lengths
