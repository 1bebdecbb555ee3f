"""The LightningModule that trains and evaluates a model for an objective."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from seqkit.data.batching import BatchLoader
from seqkit.errors import DivergedError
from seqkit.interfaces import LabeledBatch, Objective
from seqkit.model import Model
from seqkit.nn.moe import AuxiliaryLoss
from seqkit.objectives.metrics import MeanLoss, update
from seqkit.training.optim import OptimizerFactory, Schedule
from seqkit.training.parallel import ShardedStrategy, gather_weights, is_sharded, shard, without_weights

log = logging.getLogger("seqkit")

CPU = torch.device("cpu")

NAMED = 4
"""Number of examples of a batch that an error names."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Sum of the losses of one micro-batch, its number of predictions, and its number in the epoch."""

    loss: Tensor
    count: Tensor
    index: int


class TrainingModule(pl.LightningModule):
    """Trains a model for an objective.

    num_steps: optimizer steps of the whole training. seed: seed of the tokens that evaluation masks.
    skip_nonfinite: optimizer steps that may be left out because their loss or gradient is not finite.
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
        skip_nonfinite: int = 0,
        seed: int = 0,
    ):
        super().__init__()
        self.model, self.objective = model, objective
        self.optimizer, self.schedule, self.num_steps, self.seed = optimizer, schedule, num_steps, seed
        self.skip_nonfinite = skip_nonfinite
        self.metrics = torch.nn.ModuleDict(
            {
                split: torch.nn.ModuleDict({"loss": MeanLoss(), **objective.metrics(model.spec)})
                for split in ("valid", "test")
            }
        )
        self.generation_metrics = torch.nn.ModuleDict(
            {split: torch.nn.ModuleDict(objective.generation_metrics()) for split in ("valid", "test")}
        )
        self.num_skipped = 0
        self.stop_requested: Callable[[], bool] = lambda: False
        self.stop_agreed = False
        """Whether any rank was asked to stop before the last optimizer step; the same on all of them."""
        self.whole_model: Model | None = None
        """Model that gets all weights when training has ended, if they are sharded."""
        self.statistics: dict[str, float] = {}
        """Means of what the auxiliary losses' modules report of the last step that is logged, by column."""
        self._batches_to_evaluate = 0
        self._num_tokens: Tensor | int = 0
        self.tokens_processed = 0
        """Tokens of the training batches of this process as the model gets them, padding included, since it began."""
        self._step: list[MicroBatch] = []
        self._auxiliary = [module for module in model.modules() if isinstance(module, AuxiliaryLoss)]

    def configure_model(self) -> None:
        """Shard the model if the strategy says so."""
        strategy = self.trainer.strategy
        if isinstance(strategy, ShardedStrategy) and not is_sharded(self.model):
            self.whole_model = cast(Model, without_weights(self.model))
            shard(self.model, strategy.mesh)

    def gather_model(self) -> Model:
        """Model with all weights; if they are sharded, in the first process alone. All processes take part."""
        if self.whole_model is None:
            return self.model
        gather_weights(self.model, self.whole_model, keep=self.trainer.is_global_zero)
        return self.whole_model

    def training_step(self, batch: LabeledBatch, index: int) -> Tensor:
        """Sum of the losses of a micro-batch."""
        output = self.objective.step(self.model, batch, training=True)
        self._step.append(MicroBatch(output.loss.detach(), output.count, index))
        valid = (batch[0] if output.inputs is None else output.inputs.batch).valid
        self._num_tokens = self._num_tokens + valid.sum()
        self.tokens_processed += valid.numel()
        return output.loss + output.count * self._aux_loss() if self._auxiliary else output.loss

    @property
    def tokens_seen(self) -> int:
        """Real tokens of all training batches so far, on all devices."""
        if self._trainer is None or self.trainer.world_size == 1:
            return self.tokens_here
        counted = torch.as_tensor(self._num_tokens, device=self.device)
        return int(self.trainer.strategy.reduce(counted.clone(), reduce_op="sum"))

    @property
    def tokens_here(self) -> int:
        """Real tokens of the training batches of this process."""
        return int(self._num_tokens)

    def _aux_loss(self) -> Tensor:
        """Sum of the auxiliary losses of the model's modules, per prediction.

        It weighs as the objective's mean does, so accumulation and devices weigh it by their predictions.
        """
        if self.logs_this_step:
            reported: dict[str, list[float]] = {}
            for module in self._auxiliary:
                for name, value in module.statistics().items():
                    reported.setdefault(f"train/{name}", []).append(value)
            self.statistics = {name: sum(values) / len(values) for name, values in reported.items()}
        return torch.stack([module.aux_loss() for module in self._auxiliary]).sum()

    @property
    def logs_this_step(self) -> bool:
        """Whether the current optimizer step is one that is logged; the last one is."""
        every = cast(Any, self.trainer).log_every_n_steps
        step = self.trainer.global_step + 1
        return bool(every > 0 and (step % every == 0 or step == self.num_steps))

    def stabilizers(self) -> str:
        """Advice for an unstable training: what of the usual remedies is not set yet."""
        advice = ["lower the learning rate (optimizer.lr)"]
        if not self.trainer.gradient_clip_val:
            advice.append("clip gradients (trainer.gradient_clip_val)")
        if not getattr(self.schedule, "warmup_steps", 0):
            advice.append("warm up (schedule.warmup_steps)")
        return " or ".join([", ".join(advice[:-1]), advice[-1]] if advice[1:] else advice)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Turn the gradient of the summed loss into that of the mean, before clipping, and look whether it is finite.

        Where loss or gradient are not finite, no weight and no state of the optimizer changes in this step.
        Raises DivergedError where that has happened more often than `skip_nonfinite` times, on all devices alike.
        """
        trainer, step, self._step = self.trainer, self._step, []
        losses = torch.stack([one.loss for one in step]).float()
        counts = [torch.as_tensor(one.count, device=self.device, dtype=torch.float32) for one in step]
        stops = torch.full((), float(self.stop_requested()), device=self.device)
        sums = torch.stack([losses.sum(), torch.stack(counts).sum(), (~losses.isfinite()).float().sum(), stops])
        if trainer.world_size > 1:  # one collective for all that the ranks have to agree on
            sums = trainer.strategy.reduce(sums, reduce_op="sum")
        loss, count, num_nonfinite, num_stops = sums.unbind()
        self.stop_agreed = bool(num_stops)
        parameters = [p for p in self.parameters() if p.grad is not None]
        gradients = [p.grad for p in parameters if p.grad is not None]
        # Lightning divides each micro-batch's loss by their number, and DDP averages gradients over devices: undo both
        scale = trainer.accumulate_grad_batches * trainer.world_size / count.clamp(min=1)
        torch._foreach_mul_(gradients, scale)
        norm = torch.nn.utils.get_total_norm(gradients)
        self.gradient_norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        self.step_loss = loss / count.clamp(min=1)
        if not bool(torch.isfinite(self.gradient_norm) & (num_nonfinite == 0)):
            self._leave_out(parameters, step, loss_is_finite=not bool(num_nonfinite))
        elif self.logs_this_step:
            self.log("train/loss", self.step_loss, logger=False)

    def _leave_out(self, parameters: list[torch.nn.Parameter], step: list[MicroBatch], *, loss_is_finite: bool) -> None:
        """Make the optimizer step do nothing, or raise DivergedError if the budget is spent."""
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None and loss_is_finite:
            return  # float16: its scale was too large, and the scaler leaves the step out itself
        self.num_skipped += 1
        what = f"the norm of the gradient is {float(self.gradient_norm)}"
        if not loss_is_finite:
            what = f"the loss is {float(self.step_loss)}"
        where = f"in step {self.trainer.global_step} (epoch {self.trainer.current_epoch}, {self._batches(step)})"
        if self.num_skipped > self.skip_nonfinite:
            budget = f", after {self.skip_nonfinite} steps that were left out" if self.skip_nonfinite else ""
            raise DivergedError(
                f"{what} {where}{budget}; {self.stabilizers()}, look for extreme inputs, "
                "or allow trainer.skip_nonfinite steps"
            )
        log.warning("%s %s: the step was left out, %d of %d", what, where, self.num_skipped, self.skip_nonfinite)
        for parameter in parameters:
            parameter.grad = None  # torch's optimizers touch neither such a parameter nor its state

    def _batches(self, step: list[MicroBatch]) -> str:
        """Batches of an optimizer step, and some examples of those whose loss is not finite, or of all."""
        named = [one.index for one in step if not bool(torch.isfinite(one.loss))] or [one.index for one in step]
        numbers = f"batch {', '.join(map(str, named[:NAMED]))}"
        loader = self.trainer.train_dataloader
        if not isinstance(loader, BatchLoader) or not named:
            return numbers
        examples = loader.epoch_batches.own()[named[0]]
        more = f" and {len(examples) - NAMED} more" if len(examples) > NAMED else ""
        return f"{numbers}: {', '.join(loader.examples.name(i) for i in examples[:NAMED])}{more}"

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the norm that was computed already, in every precision.

        Lightning's own refuses under autocast if an optimizer is fused, since that may unscale by itself; here
        gradients are unscaled when they arrive (`configure_optimizers`).
        """
        if not gradient_clip_val:
            return
        parameters = [p for p in self.parameters() if p.grad is not None]
        if gradient_clip_algorithm == "value":
            torch.nn.utils.clip_grad_value_(parameters, gradient_clip_val)
        else:
            torch.nn.utils.clip_grads_with_norm_(parameters, gradient_clip_val, self.gradient_norm)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["training"] = {"num_tokens": self.tokens_seen, "num_skipped": self.num_skipped}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        counted = checkpoint["training"]
        self._num_tokens = counted["num_tokens"] if self.global_rank == 0 else 0  # `tokens_seen` sums over devices
        self.num_skipped = counted["num_skipped"]

    def validation_step(self, batch: LabeledBatch, index: int) -> None:
        self._evaluate("valid", batch, index)

    def test_step(self, batch: LabeledBatch, index: int) -> None:
        self._evaluate("test", batch, index)

    def on_validation_epoch_start(self) -> None:
        """Agree on the number of batches of the process that has most, if all take part in each forward pass."""
        if is_sharded(self.model):
            trainer = self.trainer
            numbers = trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
            number = torch.tensor(int(sum(numbers)), device=self.device)
            self._batches_to_evaluate = int(trainer.strategy.reduce(number, reduce_op="max")) - int(sum(numbers))

    def on_validation_epoch_end(self) -> None:
        for _ in range(self._batches_to_evaluate):  # the others need this process's part of the weights
            self.objective.step(self.model, self._last_batch)
        self._report("valid")

    def on_test_epoch_end(self) -> None:
        self._report("test")

    def _evaluate(self, split: str, batch: LabeledBatch, index: int) -> None:
        if self.trainer.world_size > 1:  # the batch's number as one device would count it
            index = index * self.trainer.world_size + self.trainer.global_rank
        with evaluation_rng(self.seed, index, self.device):
            output = self.objective.step(self.model, batch)
        if is_sharded(self.model):
            self._last_batch = batch
        for metric in _of_split(self.metrics, split).values():
            update(metric, output)
        if generation_metrics := _of_split(self.generation_metrics, split):
            generated = self.objective.predict(self.model, batch[0])
            for metric in generation_metrics.values():
                metric.update(generated, self.objective.references(batch))

    def _report(self, split: str) -> None:
        for name, metric in (_of_split(self.metrics, split) | _of_split(self.generation_metrics, split)).items():
            if self._updated(metric):
                self.log(f"{split}/{name}", metric.compute(), prog_bar=name == "loss")
            metric.reset()

    def _updated(self, metric: Any) -> bool:
        """Whether a metric was updated on any device: `compute` waits for all of them."""
        if self.trainer.world_size == 1:
            return bool(metric.update_count)
        count = torch.tensor(metric.update_count, device=self.device)
        return bool(self.trainer.strategy.reduce(count, reduce_op="sum"))

    def predict_step(self, batch: LabeledBatch, index: int) -> list[Any]:
        """Predictions in the user's terms, one per example."""
        return self.objective.decode(self.objective.predict(self.model, batch[0]))

    def configure_optimizers(self) -> Any:
        """Optimizer, and the scheduler of its learning rate, stepped once an optimizer step."""
        if self.optimizer is None:
            raise ValueError("this TrainingModule has no optimizer, so it only evaluates; pass one to train")
        optimizer = self.optimizer.build(self.model)
        attached = self._trainer is not None
        if attached and getattr(self.trainer.precision_plugin, "scaler", None) is not None:
            _unfuse(optimizer)
        if self.schedule is None:
            return optimizer
        scheduler = self.schedule.build(optimizer, self.num_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


@contextmanager
def evaluation_rng(seed: int, index: int, device: torch.device = CPU) -> Iterator[None]:
    """Context with the random numbers of batch `index`, so that every evaluation masks the same tokens."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed * 1_000_003 + index)
        yield


def _unfuse(optimizer: torch.optim.Optimizer) -> None:
    """Make fused optimizers leave unscaling to the scaler, so that clipping sees true gradients."""
    for one in getattr(optimizer, "optimizers", [optimizer]):
        one._step_supports_amp_scaling = False
        for group in one.param_groups:
            if group.get("fused"):
                group["fused"] = False


def _of_split(metrics: torch.nn.ModuleDict, split: str) -> dict[str, Any]:
    """Metrics of a split by name."""
    chosen = metrics[split]
    assert isinstance(chosen, torch.nn.ModuleDict)
    return dict(chosen.items())
