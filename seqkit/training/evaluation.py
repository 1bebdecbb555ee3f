"""Evaluation of the objectives of a training: random numbers that repeat, and metrics by split and task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from seqkit.interfaces import LabeledBatch, LossOutput, Objective
from seqkit.model import Model
from seqkit.objectives.metrics import MeanLoss, update

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Task:
    """A model and its objective."""

    model: Model
    objective: Objective


class Metrics(nn.Module):
    """Metrics of one split: of all tasks, by the prefix of each and its name."""

    def __init__(self, split: str, tasks: Mapping[str, Task]):
        super().__init__()
        self.split = split
        self.measured = nn.ModuleDict()
        self.generated = nn.ModuleDict()
        for prefix, task in tasks.items():
            usual = {"loss": MeanLoss(), **task.objective.metrics(task.model.spec)}
            self.measured.update({prefix + name: one for name, one in usual.items()})
            of_texts = task.objective.generation_metrics()
            self.generated.update({prefix + name: one for name, one in of_texts.items()})

    def loss(self, prefix: str) -> float:
        """Mean loss of a task so far."""
        return float(self._of(self.measured, prefix + "loss")[0].compute())

    def update(self, prefix: str, task: Task, batch: LabeledBatch, output: LossOutput) -> None:
        """Count a batch of a task. output: of its step."""
        for metric in self._of(self.measured, prefix):
            update(metric, output)
        if of_texts := self._of(self.generated, prefix):
            generated = task.objective.predict(task.model, batch[0])
            references = task.objective.references(batch)
            for metric in of_texts:
                metric.update(generated, references)

    def report(self, module: Any) -> None:
        """Log what was counted with a LightningModule, and begin anew."""
        trainer = module.trainer
        metrics: dict[str, Any] = {**self.measured, **self.generated}
        for name, metric in metrics.items():
            # `compute` is a collective, so all devices must agree
            count = torch.tensor(metric.update_count, device=module.device)
            if trainer.strategy.reduce(count, reduce_op="sum"):
                module.log(f"{self.split}/{name}", metric.compute(), prog_bar=name == "loss")
            metric.reset()

    @staticmethod
    def _of(metrics: nn.ModuleDict, prefix: str) -> list[Any]:
        return [metric for name, metric in metrics.items() if name.startswith(prefix)]


@contextmanager
def evaluation_rng(seed: int, index: int, device: torch.device = CPU) -> Iterator[None]:
    """Context that is seeded for batch `index`, so that every evaluation masks the same tokens.

    Only the generators of the CPU and of `device` are seeded, and both are restored. (`torch.manual_seed` seeds every
    device, and `torch.random.fork_rng` does not restore MPS.)
    """
    number = seed * 1_000_003 + index
    generators = None if device.type == "cpu" else torch.get_device_module(device)
    before = None if generators is None else generators.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(number)
        if generators is not None:
            generators.manual_seed(number)
        try:
            yield
        finally:
            if generators is not None:
                generators.set_rng_state(before)
