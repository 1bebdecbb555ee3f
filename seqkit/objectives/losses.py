"""Cross-entropy and its baseline, which objectives over ids and classes share.

b batch · n tokens · k fields · v vocabulary or classes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from seqkit.interfaces import IGNORE, LossOutput


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

    label_smoothing: in training alone; the loss of an evaluation is the plain one. weights: [v], factors of the loss by
    target. `preds` are the likeliest ids. keep_probabilities: True: an evaluation gives those of all ids, too.
    """
    logits, target = rearrange(logits, "... v -> (...) v"), rearrange(target, "... -> (...)")
    known = target != IGNORE
    smoothing = label_smoothing if training else 0.0
    loss = F.cross_entropy(
        logits.float(), target, weight=weights, reduction="sum", ignore_index=IGNORE, label_smoothing=smoothing
    )
    if training:
        return LossOutput(loss, known.sum())
    shares = logits.detach()[known].float().softmax(dim=-1) if keep_probabilities else None
    return LossOutput(loss, known.sum(), logits.detach().argmax(dim=-1)[known], target[known], shares)


def like(mask: Tensor, content: Tensor) -> Tensor:
    """A mask [b n] of tokens for content [b n] or [b n k], whose fields it counts alike."""
    return mask if content.ndim == mask.ndim else rearrange(mask, "b n -> b n 1")


def field_frequencies(targets: Sequence[Tensor], vocab_sizes: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """As `frequencies` for targets [... k] of k fields, each with its own vocabulary: logits [... k v].

    v is the largest vocabulary; ids that a smaller one does not have get -inf.
    """
    logits = torch.full([len(vocab_sizes), max(vocab_sizes)], float("-inf"))
    for row, (size, *ids) in zip(logits, zip(vocab_sizes, *(target.unbind(dim=-1) for target in targets), strict=True)):
        row[:size] = frequencies(ids, size)(torch.zeros(()))
    return lambda target: logits.expand(*target.shape, logits.shape[-1])


def frequencies(targets: Sequence[Tensor], num_classes: int) -> Callable[[Tensor], Tensor]:
    """Constant prediction: the log frequency of each class among `targets`.

    One is added to every count (Laplace smoothing), so that no class has probability 0.
    """
    counts = torch.ones(num_classes, dtype=torch.float64)
    for target in targets:
        counts += torch.bincount(target[target != IGNORE].cpu(), minlength=num_classes)
    logits = (counts / counts.sum()).log().float()
    return lambda target: logits.expand(*target.shape, num_classes)
