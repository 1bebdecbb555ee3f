"""How far a backbone's outputs look."""

from __future__ import annotations

import math

import torch

from seqkit.interfaces import TokenBatch
from seqkit.model import Model


def farthest_input(model: Model, batch: TokenBatch) -> int | None:
    """The largest number of tokens between an input and an output that depends on it, on the longest example.

    The first token's embedding is made NaN, which spreads to everything that is computed from it: exactly, where
    gradients of a recurrent network would have vanished. What a mask multiplies by zero counts as a dependence, so the
    distance is never too small. batch: batch as the objective prepares it.
    None: columns are no distance (an adjacency, an encoder–decoder), or the backbone refuses NaN.
    """
    longest = batch.select(batch.valid.sum(dim=1).argmax()[None])
    longest = longest.columns(slice(0, int(longest.valid.sum())))
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            embedded = model.embed(longest)
            if embedded.adjacency is not None or embedded.source is not None:
                return None
            hidden = embedded.hidden.clone()
            hidden[0, 0] = math.nan
            reached = (
                model.backbone(embedded.replace(hidden=hidden))[0].isnan().any(dim=-1).nonzero()
            )
    except (ValueError, RuntimeError):
        return None
    finally:
        model.train(training)
    return int(reached.max()) if len(reached) else None
