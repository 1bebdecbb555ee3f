"""Outcome of an optimizer step: its loss, the norm of its gradient, and whether it may count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqkit.data.batching import BatchLoader
from seqkit.data.mixture import TaskExamples

NAMED = 4
"""Most examples that an error names."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Sum of the losses of one micro-batch, its number of predictions, and its number in the epoch."""

    loss: Tensor
    count: Tensor
    index: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of an optimizer step, and its micro-batches.

    values: [5]: number of losses that are not finite, whether the norm of the gradient is not, number of processes that
    were asked to stop, mean loss, norm of the gradient. arrived: event after which a copy on the CPU may be read; None:
    it may. step, epoch: numbers of the step and its epoch.
    """

    values: Tensor
    micro_batches: list[MicroBatch]
    arrived: torch.cuda.Event | None = None
    step: int = 0
    epoch: int = 0

    def settled(self) -> tuple[bool, bool, bool]:
        """Whether losses are finite, whether the norm of the gradient is, and whether a process was asked to stop."""
        if self.arrived is not None:
            self.arrived.synchronize()
        num_nonfinite, is_wrong, num_stops = self.values[:3].tolist()
        return not num_nonfinite, not is_wrong, num_stops > 0

    def fault(self, loader: Any) -> str:
        """Sentence that says what is not finite, and where. loader: of the training, which names the examples."""
        *_, loss, norm = self.values.tolist()
        what = f"the norm of the gradient is {norm}"
        if self.values[0]:
            what = f"the loss is {loss}"
        return f"{what} in step {self.step} (epoch {self.epoch}, {self._batch(loader)})"

    def _batch(self, loader: Any) -> str:
        """Number and examples of the first batch with a loss that is not finite, or of the first batch."""
        wrong = [one for one in self.micro_batches if not bool(torch.isfinite(one.loss))]
        index = (wrong or self.micro_batches)[0].index
        if not isinstance(loader, BatchLoader):
            return f"batch {index}"
        key: Any = loader.epoch_batches.own()[index]
        if isinstance(loader.examples, TaskExamples):
            examples = loader.examples
            loader = examples.loaders[key[0]]
            key = examples.indices(key)
        names = [loader.examples.name(i) for i in key[:NAMED]]
        more = " …" if len(key) > NAMED else ""
        return f"batch {index}: {', '.join(names)}{more}"
