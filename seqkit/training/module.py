"""The LightningModule that trains and evaluates a model for an objective."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from seqkit.errors import DivergedError
from seqkit.interfaces import Objective, TokenBatch
from seqkit.model import Model
from seqkit.nn.moe import AuxiliaryLoss
from seqkit.objectives.metrics import MeanLoss
from seqkit.training.optim import OptimizerFactory, Schedule

CHECK_EVERY = 50
"""Batches between two looks at the loss on an accelerator."""

LabeledBatch = tuple[TokenBatch, Tensor | None]


class TrainingModule(pl.LightningModule):
    """Trains a model for an objective.

    num_steps: optimizer steps of the whole training, for the schedule. seed: of the tokens that evaluation masks.
    The gradient of an optimizer step is that of the sum of losses over all its micro-batches and devices, divided by
    their count of predictions. So micro-batches with unequal numbers of tokens weigh as they would in one big batch.
    """

    def __init__(
        self,
        model: Model,
        objective: Objective,
        *,
        optimizer: OptimizerFactory | None = None,
        schedule: Schedule | None = None,
        num_steps: int = 1,
        seed: int = 0,
    ):
        super().__init__()
        self.model, self.objective = model, objective
        self.optimizer, self.schedule, self.num_steps, self.seed = optimizer, schedule, num_steps, seed
        self.metrics = torch.nn.ModuleDict(
            {
                split: torch.nn.ModuleDict({"loss": MeanLoss(), **objective.metrics(model.spec)})
                for split in ("valid", "test")
            }
        )
        self.generation_metrics = torch.nn.ModuleDict(
            {split: torch.nn.ModuleDict(objective.generation_metrics()) for split in ("valid", "test")}
        )
        self._num_tokens: Tensor | int = 0
        self._finite: Tensor | None = None
        self._count: Tensor | float = 0.0
        self._auxiliary = [module for module in model.modules() if isinstance(module, AuxiliaryLoss)]

    def training_step(self, batch: LabeledBatch, index: int) -> Tensor:
        """Raises DivergedError where the loss is not finite."""
        inputs = self.objective.prepare(*batch)
        prediction = self.model(inputs.batch, inputs.masked)
        output = self.objective.loss(prediction, inputs.target, training=True)
        self._check_finite(output.loss.detach(), index)
        self._num_tokens = self._num_tokens + inputs.batch.valid.sum()
        self._count = self._count + output.count
        mean = output.loss.detach() / output.count.clamp(min=1)
        self.log("train/loss", mean, batch_size=len(batch[0]), prog_bar=True)
        return output.loss + output.count * self._aux_loss() if self._auxiliary else output.loss

    def _check_finite(self, loss: Tensor, index: int) -> None:
        """Raise DivergedError where the loss is not finite: at once on the CPU, else every CHECK_EVERY batches.

        To look at a number makes an accelerator wait for all that was asked of it before.
        """
        finite = torch.isfinite(loss)
        self._finite = finite if self._finite is None else self._finite & finite
        if loss.device.type != "cpu" and (index + 1) % CHECK_EVERY:
            return
        all_finite, self._finite = bool(self._finite), None
        if not all_finite:
            since = "" if loss.device.type == "cpu" else f", or one of the {CHECK_EVERY - 1} batches before it,"
            raise DivergedError(
                f"the loss is {float(loss)} in step {self.global_step} "
                f"(batch {index} of epoch {self.current_epoch}{since}); "
                "lower the learning rate, clip gradients, or look for extreme inputs"
            )

    @property
    def tokens_seen(self) -> int:
        """Real tokens of all training batches so far."""
        return int(self._num_tokens)

    def _aux_loss(self) -> Tensor:
        """Sum of the auxiliary losses of the model's modules, per prediction; their statistics are logged as means.

        It weighs as the objective's mean does, so accumulation and devices weigh it by their predictions.
        """
        statistics: dict[str, list[float]] = {}
        for module in self._auxiliary:
            for name, value in module.statistics().items():
                statistics.setdefault(name, []).append(value)
        for name, values in statistics.items():
            self.log(f"train/{name}", sum(values) / len(values))
        return torch.stack([module.aux_loss() for module in self._auxiliary]).sum()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Turn the gradient of the summed loss into that of the mean, before clipping."""
        # Lightning divides each micro-batch's loss by their number, and DDP averages gradients over devices: undo both
        count = self.trainer.strategy.reduce(
            torch.as_tensor(self._count, device=self.device, dtype=torch.float32), reduce_op="sum"
        )
        scale = self.trainer.accumulate_grad_batches * self.trainer.world_size / count.clamp(min=1)
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, scale)
        self._count = 0.0

    def validation_step(self, batch: LabeledBatch, index: int) -> None:
        self._evaluate("valid", batch, index)

    def test_step(self, batch: LabeledBatch, index: int) -> None:
        self._evaluate("test", batch, index)

    def on_validation_epoch_end(self) -> None:
        self._report("valid")

    def on_test_epoch_end(self) -> None:
        self._report("test")

    def _evaluate(self, split: str, batch: LabeledBatch, index: int) -> None:
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(self.seed * 1_000_003 + index)  # the same tokens are masked in every evaluation
            inputs = self.objective.prepare(*batch)
        output = self.objective.loss(self.model(inputs.batch, inputs.masked), inputs.target)
        for name, metric in _of_split(self.metrics, split).items():
            if name == "loss":
                metric.update(output.loss, output.count)
            elif output.target is not None and output.target.numel():
                metric.update(output.preds, output.target)
        if generation_metrics := _of_split(self.generation_metrics, split):
            generated = self.objective.predict(self.model, batch[0])
            for metric in generation_metrics.values():
                metric.update(generated, batch[1])

    def _report(self, split: str) -> None:
        for name, metric in (_of_split(self.metrics, split) | _of_split(self.generation_metrics, split)).items():
            if metric.update_count:
                self.log(f"{split}/{name}", metric.compute(), prog_bar=name == "loss")
            metric.reset()

    def predict_step(self, batch: LabeledBatch, index: int) -> list[Any]:
        """Predictions in the user's terms, one per example."""
        return self.objective.decode(self.objective.predict(self.model, batch[0]))

    def configure_optimizers(self) -> Any:
        """The optimizer, and the scheduler of its learning rate, stepped once an optimizer step."""
        if self.optimizer is None:
            raise ValueError("this TrainingModule has no optimizer, so it only evaluates; pass one to train")
        optimizer = self.optimizer.build(self.model)
        if self.schedule is None:
            return optimizer
        scheduler = self.schedule.build(optimizer, self.num_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def _of_split(metrics: torch.nn.ModuleDict, split: str) -> dict[str, Any]:
    """The metrics of a split by name."""
    chosen = metrics[split]
    assert isinstance(chosen, torch.nn.ModuleDict)
    return dict(chosen.items())
