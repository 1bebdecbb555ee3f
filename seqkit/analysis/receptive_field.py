"""How far a backbone's outputs look, and how much it keeps of what it has read."""

from __future__ import annotations

import math

import torch

from seqkit.analysis.forward_pass import storage_of, tensors_in
from seqkit.interfaces import Backbone, TokenBatch
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


def state_size(model: Model, batch: TokenBatch) -> int | None:
    """Number of numbers that a causal backbone keeps of an example, however long: the size of its cache.

    None: its cache grows with the number of tokens, or it has none (not causal, an adjacency, an encoder–decoder).
    """
    longest = batch.select(batch.valid.sum(dim=1).argmax()[None])
    num_tokens = int(longest.valid.sum())
    assert isinstance(model.backbone, Backbone)
    training = model.training
    model.eval()
    sizes = []
    try:
        for n in {num_tokens, num_tokens // 2}:
            cache = model.backbone.init_cache(max(n, 1))
            with torch.no_grad():
                model.backbone(model.embed(longest.columns(slice(0, max(n, 1)))), cache)
            held = {storage_of(tensor): tensor.numel() for tensor in tensors_in(cache)}
            sizes.append(sum(held.values()))
    except (ValueError, RuntimeError):
        return None
    finally:
        model.train(training)
    if len(set(sizes)) == 1 and num_tokens > 1:
        return sizes[0]
    return None
