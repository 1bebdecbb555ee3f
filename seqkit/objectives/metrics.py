"""torchmetrics as the objectives use them. Imported late: torchmetrics takes seconds to import."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric

from seqkit.contract import IGNORE


class Accuracy(Metric):
    """Share of predicted ids that equal the truth, whatever the number of classes."""

    full_state_update = False
    right: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("right", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, truth: Tensor) -> None:
        """predicted, truth: ids of one shape."""
        self.right += (predicted == truth).sum()
        self.count += truth.numel()

    def compute(self) -> Tensor:
        """Between 0 and 1."""
        return self.right / self.count


class Explained(Metric):
    """1 - squared error / squared distance from each feature's mean: 0 for predicting the mean, 1 for perfection."""

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

    def update(self, predicted: Tensor, truth: Tensor) -> None:
        """predicted, truth: [m f]."""
        truth = truth.double()
        self.error += (predicted.double() - truth).square().sum()
        self.count += len(truth)
        self.total = self.total + truth.sum(dim=0)
        self.squares = self.squares + truth.square().sum(dim=0)

    def compute(self) -> Tensor:
        """At most 1."""
        spread = (self.squares - self.total.square() / self.count).sum()
        return (1 - self.error / spread).float()


class TokenError(Metric):
    """Insertions, deletions and substitutions to the nearest right sequence, over the length of that sequence.

    Both are summed over all examples first, as word and phoneme error rates are; of two that are as near, the shorter
    counts. Above 1 where too much is written.
    """

    full_state_update = False
    errors: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("errors", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, written: Tensor, truth: Tensor) -> None:
        """written: ids [b t]; truth: [b a s], any of a is right (a row of IGNORE is none); IGNORE behind the end."""
        from torchmetrics.functional.text import edit_distance

        for said, right in zip(written.tolist(), truth.tolist()):
            texts = _answers(right)
            distances = edit_distance([_as_text(said)] * len(texts), texts, reduction="none").tolist()
            errors, length = min(zip(distances, map(len, texts)))
            self.errors += int(errors)
            self.count += length

    def compute(self) -> Tensor:
        """0 where all is right."""
        return self.errors / self.count


class SequenceError(Metric):
    """Share of sequences that are none of the right ones."""

    full_state_update = False
    wrong: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("wrong", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, written: Tensor, truth: Tensor) -> None:
        """written, truth: as `TokenError`'s."""
        for said, right in zip(written.tolist(), truth.tolist()):
            self.wrong += _as_text(said) not in _answers(right)
            self.count += 1

    def compute(self) -> Tensor:
        """Between 0 and 1."""
        return self.wrong / self.count


def _answers(rows: list[list[int]]) -> list[str]:
    """The right sequences among padded ones."""
    return [_as_text(ids) for ids in rows if ids[0] != IGNORE]


def _as_text(ids: list[int]) -> str:
    """A character for each id, as torchmetrics compares characters; IGNORE is left out."""
    return "".join(chr(i) for i in ids if i != IGNORE)
