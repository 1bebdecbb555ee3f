"""Base classes of positions: added to the embeddings (absolute), or used inside attention (relative).

Both take positions [b n p] with any number of axes p, and know no modality.

b batch · n queries · m keys · p axes · d width · h heads · c channels of one head · r channel pairs of one head
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from einops import rearrange
from torch import Tensor, nn

from seqkit.nn.attention.features import AttentionFeature


class PositionalEncoding(nn.Module, ABC):
    """Vectors [b n d] for positions [b n p], which the Embedder adds to the embedded content.

    std: about the standard deviation of its entries; the Embedder initialises its lookup table alike, so that neither
    drowns the other. num_positions: positions of an axis that it has vectors
    for, from 0 on; None: any position. mixes_tokens: True: what it adds depends on the order of the tokens and on their
    embeddings (`add`), so models that predict the next token and packed sequences are refused.

    The vectors have the dtype that the module was moved to (`dtype`), whatever that of the positions is: a model in
    half precision would otherwise become float32 here.
    """

    _moved: Tensor
    std: float = 0.02
    num_positions: int | None = None
    mixes_tokens: bool = False

    def __init__(self, dim: int, num_axes: int):
        super().__init__()
        self.dim = dim
        self.num_axes = num_axes
        # a module itself has no dtype
        self.register_buffer("_moved", torch.zeros(()), persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the vectors."""
        return self._moved.dtype

    @abstractmethod
    def forward(self, positions: Tensor) -> Tensor:
        """Vectors [b n d] for positions [b n p], in the module's dtype."""

    def add(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Embeddings [b n d], zero where padded, with their positions."""
        return hidden + self(positions)

    def begin_with_std(self, std: float) -> None:
        """Give learned vectors, if it has any, that standard deviation before training."""


class RelativePosition(nn.Module):
    """Positions inside attention: rotated queries and keys, or a bias on the scores.

    requires: the features that an attention layer must support: ROTARY or BIAS, as the method that a subclass writes.
    takes_unlike_axes: True: joined parts may have positions of different numbers of axes.
    supports_cache: False: tokens cannot be generated one by one with a cache.
    """

    requires: ClassVar[AttentionFeature] = AttentionFeature(0)
    rotates: ClassVar[bool] = False
    has_bias: ClassVar[bool] = False
    takes_unlike_axes: bool = False
    supports_cache: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        """Keep what `requires` says as booleans too: torch's compiler (2.11) traces no flags."""
        super().__init_subclass__(**options)
        cls.rotates = AttentionFeature.ROTARY in cls.requires
        cls.has_bias = AttentionFeature.BIAS in cls.requires

    def check_complete(self) -> None:
        """Raise ValueError where `requires` and the methods that the class writes contradict each other (called when a
        backbone is built)."""
        own = type(self)
        for name in ("rotary", "bias"):
            feature = AttentionFeature[name.upper()]
            method = getattr(own, name)
            is_written = method is not getattr(RelativePosition, name)
            if is_written and feature not in self.requires:
                raise ValueError(
                    f"{own.__name__} writes `{name}`, which its `requires` does not name, so an attention without that "
                    f"feature would drop it; write `requires = AttentionFeature.{feature.name}` in the class"
                )
            if feature in self.requires and not is_written:
                raise ValueError(
                    f"{own.__name__} requires AttentionFeature.{feature.name} and has no method `{name}`, so it would "
                    f"do nothing; write `{name}`, as RelativePosition describes it"
                )

    def check_heads(self, num_heads: int, head_dim: int) -> None:
        """Raise ValueError if it does not fit heads of that number and width (called when a backbone is built)."""

    def check_axes(self, num_axes: int, head_dim: int) -> None:
        """Raise ValueError if it does not support tokens with that many axes (called when a model is built)."""

    def rotary(self, positions: Tensor, head_dim: int) -> Tensor | None:
        """Complex numbers [b 1 n r] that rotate channel pairs (2 i, 2 i + 1) of a head; None: none.

        Their length is one, but where a scaling has a factor of queries and keys.
        """
        return None

    def bias(self, query_positions: Tensor, key_positions: Tensor, num_heads: int) -> Tensor | None:
        """[b h n m] to be added to the scores of queries at [b n p] with keys at [b m p]; None: nothing."""
        return None


def offsets(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Key position minus query position on one axis, rounded, [b n m]."""
    return (
        rearrange(key_positions, "b m 1 -> b 1 m") - rearrange(query_positions, "b n 1 -> b n 1")
    ).round()


def distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Euclidean distances over all axes, [b n m]."""
    difference = rearrange(key_positions, "b m p -> b 1 m p") - rearrange(
        query_positions, "b n p -> b n 1 p"
    )
    # not torch's norm: compiled, it keeps an axis of size 1 (torch 2.11); a square's root is exact
    return difference.square().sum(dim=-1).sqrt()
