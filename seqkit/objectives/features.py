"""Vectors of examples, from a model without a head of its own.

b batch · d width
"""

from __future__ import annotations

from typing import NoReturn

from torch import nn

from seqkit.errors import UsageError
from seqkit.interfaces import LabeledBatch, LossOutput, Objective
from seqkit.nn.embedder import TokenEmbedder
from seqkit.nn.heads import FeaturesHead, Pool, check_pool


class Features(Objective):
    """Pooled hidden states, one vector [d] for each example: what `seqkit embed` writes. It cannot be trained.

    Models of other libraries that have no head that is known are imported with it (`seqkit import`).
    pool: how an example's hidden states become one vector. normalize: True: vectors have length 1.
    """

    def __init__(self, *, pool: Pool = "mean", normalize: bool = False):
        self.pool, self.normalize = pool, normalize

    def check_trainable(self) -> NoReturn:
        """Raises UsageError: there is no loss."""
        raise UsageError(
            "Features has nothing to learn, and no loss to test; give --model.objective Masked, NextToken, Classify or "
            "Regress, or get vectors: seqkit embed"
        )

    def head(self, embedder: nn.Module) -> nn.Module:
        """Pooling alone, without parameters."""
        assert isinstance(embedder, TokenEmbedder)
        check_pool(embedder, self.pool)
        return FeaturesHead(pool=self.pool, normalize=self.normalize)

    def step(self, model: nn.Module, batch: LabeledBatch, *, training: bool = False) -> LossOutput:
        """Raises UsageError, as `check_trainable`."""
        self.check_trainable()
