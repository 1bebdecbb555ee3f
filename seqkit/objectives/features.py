"""Vectors of examples, from a model without a head of its own.

b batch · d width of the hidden states · k width of a projection
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from torch import nn

from seqkit.errors import UsageError
from seqkit.interfaces import LabeledBatch, LossOutput, Objective
from seqkit.nn.embedder import TokenEmbedder
from seqkit.nn.pooling import FeaturesHead, Pool, check_pool
from seqkit.nn.projection import Projection


class Features(Objective):
    """Pooled hidden states, one vector [d] for each example: as `seqkit predict --embed` writes. It cannot be trained.

    Models of other libraries that have no head that is known are imported with it (`seqkit import`).
    pool: how an example's hidden states become one vector. normalize: True: vectors have length 1. projection: layers
    that make the vector, [k], in the place of pooling; None: there are none. dim: k; None: d.
    Raises ValueError for a pooling beside a projection, which has its own, or a width without one.
    """

    def __init__(
        self,
        *,
        pool: Pool = "mean",
        normalize: bool = False,
        projection: Callable[[int, int], Projection] | None = None,
        dim: int | None = None,
    ):
        if projection is not None and pool != "mean":
            raise ValueError(
                f"pool={pool} stands beside a projection, which pools itself; give projection.pool"
            )
        if dim is not None and (projection is None or dim < 1):
            raise ValueError(
                f"dim={dim} is the width of a projection's vectors; give 1 or more, and a projection"
            )
        self.pool = pool
        self.normalize = normalize
        self.projection = projection
        self.dim = dim

    def check_trainable(self) -> NoReturn:
        """Raises UsageError: there is no loss."""
        raise UsageError(
            "Features has nothing to learn, and no loss to test; give --model.objective Masked, NextToken, Classify or "
            "Regress, or get vectors: seqkit predict --embed"
        )

    def head(self, embedder: nn.Module) -> nn.Module:
        """Pooling alone, without parameters, or the projection."""
        assert isinstance(embedder, TokenEmbedder)
        check_pool(embedder, self.pool)
        if self.projection is None:
            made = None
        else:
            made = self.projection(embedder.dim, self.dim or embedder.dim)
        return FeaturesHead(pool=self.pool, normalize=self.normalize, projection=made)

    def step(self, model: nn.Module, batch: LabeledBatch, *, training: bool = False) -> LossOutput:
        """Raises UsageError, as `check_trainable`."""
        self.check_trainable()
