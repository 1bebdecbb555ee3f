"""Vectors of examples, from a model without a head of its own.

b batch · d width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.errors import UsageError
from seqkit.interfaces import Embedded, LabeledBatch, LossOutput, Objective
from seqkit.nn.embedder import TokenEmbedder
from seqkit.nn.heads import Pool, pooled

NOTHING = "Features has nothing to learn; give --model.objective Masked, NextToken, Classify or Regress"


class Features(Objective):
    """Pooled hidden states, one vector [d] for each example: what `seqkit embed` writes. It cannot be trained.

    Models of other libraries that have no head that is known are imported with it (`seqkit import`).
    pool: how an example's hidden states become one vector. normalize: True: vectors have length 1.
    """

    def __init__(self, *, pool: Pool = "mean", normalize: bool = False):
        self.pool, self.normalize = pool, normalize

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Raises UsageError: there is nothing to learn."""
        raise UsageError(NOTHING)

    def head(self, embedder: nn.Module) -> nn.Module:
        """Pooling alone, without parameters."""
        assert isinstance(embedder, TokenEmbedder)
        if self.pool == "parts" and not embedder.spec.is_joined:
            raise ValueError("pool=parts is for joined tokens, and these have no parts; use mean")
        return FeaturesHead(self.pool, normalize=self.normalize)

    def step(self, model: nn.Module, batch: LabeledBatch, *, training: bool = False) -> LossOutput:
        """Raises UsageError: there is no loss."""
        raise UsageError(NOTHING)


class FeaturesHead(nn.Module):
    """Pools the real tokens: [b n d] → [b d]. pool, normalize: as of `Features`."""

    def __init__(self, pool: Pool, *, normalize: bool = False):
        super().__init__()
        self.pool, self.normalize = pool, normalize

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Vectors [b d] from hidden [b n d]."""
        vectors = pooled(hidden, embedded.valid, self.pool, embedded.parts)
        return F.normalize(vectors, dim=-1) if self.normalize else vectors
