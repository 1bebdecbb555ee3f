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


def cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> LossOutput:
    """Cross-entropy of logits [... v], in nats, summed over the targets [...] that are not IGNORE.

    `preds` are the likeliest ids.
    """
    logits, target = rearrange(logits, "... v -> (...) v"), rearrange(target, "... -> (...)")
    known = target != IGNORE
    loss = F.cross_entropy(
        logits.float(), target, reduction="sum", ignore_index=IGNORE, label_smoothing=label_smoothing
    )
    preds = logits.detach().argmax(dim=-1)
    return LossOutput(loss, known.sum(), preds[known], target[known])


def frequencies(targets: Sequence[Tensor], num_classes: int) -> Callable[[Tensor], Tensor]:
    """Constant prediction: the log frequency of each class among `targets`.

    One is added to every count (Laplace smoothing), so that no class has probability 0.
    """
    counts = torch.ones(num_classes, dtype=torch.float64)
    for target in targets:
        counts += torch.bincount(target[target != IGNORE].cpu(), minlength=num_classes)
    logits = (counts / counts.sum()).log().float()
    return lambda target: logits.expand(*target.shape, num_classes)
