"""Whether what an objective predicts is an input, is the token that follows, or changes the input.

b batch · n tokens · k fields · f features
"""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor

from seqkit.interfaces import IGNORE, LabeledBatch, ModelInput, PredictionObjective
from seqkit.testing.process import same, seeded


def predicts_next(inputs: ModelInput) -> bool:
    """Whether the target of each token is the content of the token after it."""
    content = inputs.batch.content
    target = inputs.target
    if content.is_floating_point() or inputs.masked is not None or target.shape != content.shape:
        return False
    following = inputs.batch.valid[:, 1:] & (target[:, :-1] != IGNORE)
    return bool(following.any()) and bool((target[:, :-1] == content[:, 1:])[following].all())


def target_is_input(inputs: ModelInput) -> bool:
    """Whether every target is the content of its own token, or a number beside it; False if all targets are alike."""
    batch = inputs.batch
    target = inputs.target
    given = [] if target.shape != batch.content.shape else [batch.content]
    if batch.features is not None and target.shape == batch.valid.shape:
        given += batch.features.unbind(dim=-1)
    if not given:
        return False
    known = ~target.isnan() if target.is_floating_point() else target != IGNORE
    if known.ndim > 2:
        known = known.all(dim=-1)
    known = known & batch.valid
    right = target[known]
    if not len(right) or bool((right == right[:1]).all()):
        return False
    return any(_equal(one[known], right) for one in given)


def labels_reach_inputs(objective: PredictionObjective, labeled: LabeledBatch) -> bool:
    """Whether other labels change what the model gets; False for a decoder, which gets those before."""
    batch, label = labeled
    if not isinstance(label, Tensor) or objective.target_spec is not None:
        return False
    other = (label + 1) % (label.nan_to_num().max() + 1).clamp(min=2)
    found = []
    with suppress(Exception):  # labels that it refuses show nothing
        for one in (label, other.where(label != IGNORE, label)):
            with seeded(0):
                inputs = objective.prepare(batch, one)
            found.append([inputs.batch.tensors(), inputs.masked])
    return len(found) == 2 and not same(*found)


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other.to(one.dtype))
