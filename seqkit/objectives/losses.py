"""Cross-entropy of ids and classes, its baseline, label smoothing; positives of contrastive losses.

b batch · n tokens · k fields or parts · v vocabulary or classes · m candidates
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from seqkit.interfaces import IGNORE, LossOutput, TokenSpec


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    label_smoothing: float = 0.0,
    training: bool = False,
    weights: Tensor | None = None,
    keep_probabilities: bool = False,
) -> LossOutput:
    """Cross-entropy of logits [... v], in nats, summed over the targets [...] that are not IGNORE.

    label_smoothing: share of the target that is spread over all ids; an evaluation leaves it out. weights: [v], factors
    of the loss by target. keep_probabilities: True: an evaluation gives the probabilities of all ids, too.
    `preds` are the likeliest ids.
    """
    logits = rearrange(logits, "... v -> (...) v")
    target = rearrange(target, "... -> (...)")
    known = target != IGNORE
    smoothing = label_smoothing if training else 0.0
    loss = F.cross_entropy(
        logits.float(),
        target,
        weight=weights,
        reduction="sum",
        ignore_index=IGNORE,
        label_smoothing=smoothing,
    )
    if training:
        return LossOutput(loss, known.sum())
    shares = None
    if keep_probabilities:
        shares = logits.detach()[known].float().softmax(dim=-1)
    return LossOutput(
        loss, known.sum(), logits.detach().argmax(dim=-1)[known], target[known], shares
    )


def like(mask: Tensor, content: Tensor) -> Tensor:
    """Mask [b n] of tokens in the shape of content: [b n], or [b n 1] for all fields of [b n k]."""
    if content.ndim == mask.ndim:
        return mask
    return rearrange(mask, "b n -> b n 1")


def id_frequencies(targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
    """Constant prediction of ids [...], or of several ids a token [... k]: their log frequencies among `targets`.

    Logits of k fields are [... k v] with the largest vocabulary v; ids that a smaller one does not have get -inf.
    """
    if not spec.vocab_sizes:
        return frequencies(targets, spec.vocab_size)
    logits = torch.full([len(spec.vocab_sizes), max(spec.vocab_sizes)], float("-inf"))
    columns = zip(*(target.unbind(dim=-1) for target in targets), strict=True)
    for row, size, ids in zip(logits, spec.vocab_sizes, columns, strict=True):
        row[:size] = frequencies(ids, size)(torch.zeros(()))
    return lambda target: logits.expand(*target.shape, logits.shape[-1])


def frequencies(targets: Sequence[Tensor], num_classes: int) -> Callable[[Tensor], Tensor]:
    """Constant prediction of classes: the log frequency of each among `targets`.

    One is added to every count (Laplace smoothing), so that no class has probability 0.
    """
    counts = 1.0 + class_counts(targets, num_classes)
    logits = (counts / counts.sum()).log().float()
    return lambda target: logits.expand(*target.shape, num_classes)


def class_counts(targets: Iterable[Tensor], num_classes: int) -> Tensor:
    """How many targets are of each class, [k] float64; IGNORE counts as none."""
    counts = torch.zeros(num_classes, dtype=torch.float64)
    for target in targets:
        counts += torch.bincount(target[target != IGNORE].cpu(), minlength=num_classes)
    return counts


def checked_smoothing(label_smoothing: float) -> float:
    """The share of the target that label smoothing spreads. Raises ValueError if it is outside [0, 1)."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(
            f"label_smoothing={label_smoothing} is a share of the target; make it at least 0 and below 1"
        )
    return label_smoothing


def is_positive(anchors: Tensor, candidates: Tensor, i: int, j: int) -> Tensor:
    """Whether two examples are positives for parts i and j, [b m], by their keys [b k] and [m k]."""
    same = rearrange(anchors, "b k -> b 1 k") == candidates
    return same[..., i] | same[..., j]
