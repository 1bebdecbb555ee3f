"""Metrics and the mean loss, as torchmetrics. Imported late: torchmetrics takes seconds to import.

b batch · a references · t tokens · m predictions · f features
"""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric

from seqkit.interfaces import IGNORE


class Accuracy(Metric):
    """Share of predicted ids that equal their target, whatever the number of classes."""

    higher_is_better = True
    full_state_update = False
    correct: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("correct", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: ids of one shape."""
        self.correct += (preds == target).sum()
        self.count += target.numel()

    def compute(self) -> Tensor:
        """Between 0 and 1."""
        return self.correct / self.count


class R2Score(Metric):
    """R²: 1 - squared error / squared distance from each feature's mean; 0 for predicting the mean, 1 for no error.

    As torchmetrics' R2Score with multioutput="variance_weighted", for any number of features.
    """

    higher_is_better = True
    full_state_update = False
    error: Tensor
    count: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("error", "count"):
            self.add_state(name, torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        for name in ("total", "squares"):
            self.add_state(name, torch.zeros(1, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: [m f]."""
        target = target.double()
        self.error += (preds.double() - target).square().sum()
        self.count += len(target)
        self.total = self.total + target.sum(dim=0)
        self.squares = self.squares + target.square().sum(dim=0)

    def compute(self) -> Tensor:
        """At most 1."""
        variation = (self.squares - self.total.square() / self.count).sum()
        return (1 - self.error / variation).float()


class TokenErrorRate(Metric):
    """Insertions, deletions and substitutions to the nearest reference, over the length of that reference.

    Both are summed over all examples first, as in word and phoneme error rates. Of two references as near, the shorter
    counts. Above 1 where much more than a reference is generated.
    """

    higher_is_better = False
    full_state_update = False
    errors: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("errors", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds: generated ids [b t], IGNORE after the end. target: references [b a t]; a row of IGNORE is none."""
        from torchmetrics.functional.text import edit_distance

        for generated, padded in zip(preds.tolist(), target.tolist()):
            references = _references(padded)
            distances = edit_distance([_as_text(generated)] * len(references), references, reduction="none").tolist()
            errors, length = min(zip(distances, map(len, references)))
            self.errors += int(errors)
            self.count += length

    def compute(self) -> Tensor:
        """0 where every sequence equals a reference."""
        return self.errors / self.count


class SequenceErrorRate(Metric):
    """Share of generated sequences that equal none of their references."""

    higher_is_better = False
    full_state_update = False
    wrong: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("wrong", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: as in `TokenErrorRate`."""
        for generated, padded in zip(preds.tolist(), target.tolist()):
            self.wrong += _as_text(generated) not in _references(padded)
            self.count += 1

    def compute(self) -> Tensor:
        """Between 0 and 1."""
        return self.wrong / self.count


def _references(rows: list[list[int]]) -> list[str]:
    """The references among padded rows."""
    return [_as_text(ids) for ids in rows if ids[0] != IGNORE]


def _as_text(ids: list[int]) -> str:
    """A character for each id, as torchmetrics compares characters; IGNORE is left out."""
    return "".join(chr(i) for i in ids if i != IGNORE)


class MeanLoss(Metric):
    """Sum of losses over the number of predictions, over all batches and devices."""

    higher_is_better = False
    full_state_update = False
    loss: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("loss", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, loss: Tensor, count: Tensor) -> None:
        """One batch's sum and count."""
        self.loss += loss.double()
        self.count += count

    def compute(self) -> Tensor:
        """NaN if nothing was predicted."""
        return (self.loss / self.count).float()
