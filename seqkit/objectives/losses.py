"""Cross-entropy and its baseline, which objectives over ids and classes share.

v vocabulary or classes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from seqkit.interfaces import IGNORE, LossOutput


def cross_entropy(
    logits: Tensor, target: Tensor, *, label_smoothing: float = 0.0, training: bool = False
) -> LossOutput:
    """Cross-entropy of logits [... v], in nats, summed over the targets [...] that are not IGNORE.

    label_smoothing: in training alone; the loss of an evaluation is the plain one. `preds` are the likeliest ids.
    """
    logits, target = rearrange(logits, "... v -> (...) v"), rearrange(target, "... -> (...)")
    known = target != IGNORE
    smoothing = label_smoothing if training else 0.0
    loss = F.cross_entropy(logits.float(), target, reduction="sum", ignore_index=IGNORE, label_smoothing=smoothing)
    if training:
        return LossOutput(loss, known.sum())
    return LossOutput(loss, known.sum(), logits.detach().argmax(dim=-1)[known], target[known])


def frequencies(targets: Sequence[Tensor], num_classes: int) -> Callable[[Tensor], Tensor]:
    """Constant prediction: the log frequency of each class among `targets`.

    One is added to every count (Laplace smoothing), so that no class has probability 0.
    """
    counts = torch.ones(num_classes, dtype=torch.float64)
    for target in targets:
        counts += torch.bincount(target[target != IGNORE].cpu(), minlength=num_classes)
    logits = (counts / counts.sum()).log().float()
    return lambda target: logits.expand(*target.shape, num_classes)
