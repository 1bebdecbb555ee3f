"""torchmetrics as the objectives use them. Imported late: torchmetrics takes seconds to import."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric


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
