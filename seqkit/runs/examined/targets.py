"""Whether what an objective predicts is an input, or is the token that follows.

b batch · n tokens · k fields · f features
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqkit.interfaces import IGNORE, ModelInput


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


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other.to(one.dtype))
