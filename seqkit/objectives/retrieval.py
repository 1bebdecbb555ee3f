"""Recall of retrieval, as torchmetrics: is the nearest vector of another part that of the same example or class?

m examples · k parts · p pairs of parts · d width of the vectors
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from einops import einsum
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from seqkit.objectives.losses import is_positive

ROWS = 1024
"""Number of examples whose similarities to all others are in memory together."""


class Recall(Metric):
    """Share of examples that have a positive among the nearest vectors of another part, over the whole split.

    Asked are the examples that have both parts of a pair; found may be all that have the other part.
    pairs: numbers of two parts each, (asked, found); their shares are averaged. most: number of nearest vectors. Of
    equally near ones a random order is assumed, so vectors that are all alike have the recall of guessing.
    """

    higher_is_better = True
    full_state_update = False
    preds: list[Tensor]
    target: list[Tensor]

    def __init__(self, pairs: Sequence[tuple[int, int]], most: int) -> None:
        super().__init__()
        self.pairs = list(pairs)
        self.most = most
        self.add_state("preds", [], dist_reduce_fx="cat")
        self.add_state("target", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds: vectors [m k d] of length 1, NaN where a part is absent. target: keys [m k], equal for positives."""
        self.preds.append(preds)
        self.target.append(target)

    def compute(self) -> Tensor:
        """The mean share; NaN where no example has both parts of a pair."""
        return self.hits().nanmean(dim=0).mean()

    def hits(self) -> Tensor:
        """Hits [m p] of each example in each pair, in the order of the updates; NaN where it lacks a part."""
        vectors = dim_zero_cat(self.preds).float()
        keys = dim_zero_cat(self.target)
        return torch.stack([self._hits(vectors, keys, *pair) for pair in self.pairs], dim=1)

    def _hits(self, vectors: Tensor, keys: Tensor, i: int, j: int) -> Tensor:
        asked, found = (~vectors[:, part, 0].isnan() for part in (i, j))
        asked = asked & found
        hits = torch.full((len(vectors),), torch.nan, device=vectors.device)
        others = vectors[found, j]
        other_keys = keys[found]
        if asked.any():
            hits[asked] = torch.cat(
                [
                    hit_rate(
                        einsum(own, others, "b d, m d -> b m"),
                        is_positive(own_keys, other_keys, i, j),
                        self.most,
                    )
                    for own, own_keys in zip(vectors[asked, i].split(ROWS), keys[asked].split(ROWS))
                ]
            )
        return hits


def hit_rate(similarity: Tensor, positive: Tensor, most: int) -> Tensor:
    """Probability [b] that a positive is among the `most` nearest, equally near ones being in a random order.

    similarity, positive: [b m]. Where a nearest positives and t others are equally near, and s places are left for
    them, it is 1 - t (t - 1) … (t - s + 1) / ((t + a) … (t + a - s + 1)).
    """
    best = similarity.masked_fill(~positive, -torch.inf).amax(dim=1, keepdim=True)
    places = most - (similarity > best).sum(dim=1)
    level = similarity == best
    others = (level & ~positive).sum(dim=1)
    nearest = (level & positive).sum(dim=1)
    miss = torch.ones(len(similarity), device=similarity.device)
    for s in range(most):
        factor = (others - s).clamp(min=0) / (others + nearest - s).clamp(min=1)
        miss = torch.where(s < places, miss * factor, miss)
    return 1 - miss
