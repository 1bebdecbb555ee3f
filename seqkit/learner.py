"""The LightningModule: thin, and knows protocols only."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torchmetrics import Metric

from seqkit.contract import Objective, TokenBatch
from seqkit.model import Model
from seqkit.optim import OptimizerPart, Schedule

Labelled = tuple[TokenBatch, Tensor | None]


class DivergedError(RuntimeError):
    """The loss is no longer a number, so going on would only destroy the weights."""


class MeanLoss(Metric):
    """Sum of losses over the number of predictions, over all batches and devices."""

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


class Learner(pl.LightningModule):
    """Trains a model for an objective.

    num_steps: optimiser steps that the schedule plans for. seed: what evaluation draws (hidden tokens) follows from it.
    Gradients are those of the sum of losses over everything between two optimiser steps, divided by its count:
    micro-batches and devices with unequal numbers of tokens weigh as they would in one big batch.
    """

    def __init__(
        self,
        model: Model,
        objective: Objective,
        *,
        optimizer: OptimizerPart | None = None,
        schedule: Schedule | None = None,
        num_steps: int = 1,
        seed: int = 0,
    ):
        super().__init__()
        self.model, self.objective = model, objective
        self.optimizer_part, self.schedule, self.num_steps, self.seed = optimizer, schedule, num_steps, seed
        self.measures = torch.nn.ModuleDict(
            {split: torch.nn.ModuleDict({"loss": MeanLoss(), **objective.metrics()}) for split in ("valid", "test")}
        )
        self.generated = torch.nn.ModuleDict(
            {split: torch.nn.ModuleDict(objective.generated_metrics()) for split in ("valid", "test")}
        )
        self.tokens_seen = 0
        self._count: Tensor | float = 0.0
        # experts and the like: `extra_loss()`, a scalar of the last forward pass, and `statistics()`, figures by name
        self._extra: list[Any] = [part for part in model.modules() if hasattr(part, "extra_loss")]

    def training_step(self, batch: Labelled, index: int) -> Tensor:
        """Raises DivergedError where the loss is not finite."""
        task = self.objective.prepare(*batch)
        prediction = self.model(task.batch, task.hide)
        score = self.objective.score(prediction, task.target)
        if not bool(torch.isfinite(score.loss)):
            raise DivergedError(
                f"the loss is {float(score.loss.detach())} in step {self.global_step} "
                f"(batch {index} of epoch {self.current_epoch}); "
                "lower the learning rate, clip gradients, or look for extreme inputs"
            )
        self.tokens_seen += task.batch.num_tokens
        self._count = self._count + score.count
        mean = score.loss.detach() / score.count.clamp(min=1)
        self.log("train/loss", mean, batch_size=int(score.count), prog_bar=True)
        return score.loss + score.count * self._extra_loss() if self._extra else score.loss

    def _extra_loss(self) -> Tensor:
        """What parts of the model add to the objective (`extra_loss`), per prediction; their figures are logged, the
        mean of those of one name.

        It weighs as the objective's mean does, so accumulation and devices weigh it by their predictions.
        """
        figures: dict[str, list[float]] = {}
        for part in self._extra:
            for name, value in part.statistics().items():
                figures.setdefault(name, []).append(value)
        for name, values in figures.items():
            self.log(f"train/{name}", sum(values) / len(values))
        return torch.stack([part.extra_loss() for part in self._extra]).sum()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Turn the gradient of a sum into that of a mean, before clipping."""
        # Lightning divides each micro-batch's loss by their number, and DDP averages gradients over devices: undo both
        count = self.trainer.strategy.reduce(
            torch.as_tensor(self._count, device=self.device, dtype=torch.float32), reduce_op="sum"
        )
        scale = self.trainer.accumulate_grad_batches * self.trainer.world_size / count.clamp(min=1)
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, scale)
        self._count = 0.0

    def validation_step(self, batch: Labelled, index: int) -> None:
        self._evaluate("valid", batch, index)

    def test_step(self, batch: Labelled, index: int) -> None:
        self._evaluate("test", batch, index)

    def on_validation_epoch_end(self) -> None:
        self._report("valid")

    def on_test_epoch_end(self) -> None:
        self._report("test")

    def _evaluate(self, split: str, batch: Labelled, index: int) -> None:
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(self.seed * 1_000_003 + index)  # the same tokens are hidden in every evaluation
            task = self.objective.prepare(*batch)
        score = self.objective.score(self.model(task.batch, task.hide), task.target)
        for name, measure in _of(self.measures, split).items():
            if name == "loss":
                measure.update(score.loss, score.count)
            elif score.truth.numel():
                measure.update(score.predicted, score.truth)
        if generated := _of(self.generated, split):
            written = self.objective.predict(self.model, batch[0])
            for measure in generated.values():
                measure.update(written, batch[1])

    def _report(self, split: str) -> None:
        for name, measure in (_of(self.measures, split) | _of(self.generated, split)).items():
            if measure.update_count:
                self.log(f"{split}/{name}", measure.compute(), prog_bar=name == "loss")
            measure.reset()

    def predict_step(self, batch: Labelled, index: int) -> list[Any]:
        """Answers in the user's words, one per example."""
        return self.objective.answer(self.objective.predict(self.model, batch[0]))

    def configure_optimizers(self) -> Any:
        """The parts' optimiser, its rate scheduled by step."""
        if self.optimizer_part is None:
            raise ValueError("this Learner was built without an optimizer, for evaluation only; pass one to train")
        optimizer = self.optimizer_part.build(self.model)
        if self.schedule is None:
            return optimizer
        schedule, num_steps = self.schedule, self.num_steps
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule.factor(step, num_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def _of(measures: torch.nn.ModuleDict, split: str) -> dict[str, Any]:
    """A split's measures by name."""
    chosen = measures[split]
    assert isinstance(chosen, torch.nn.ModuleDict)
    return dict(chosen.items())
