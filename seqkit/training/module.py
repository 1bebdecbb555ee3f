"""The LightningModule that trains and evaluates a model for an objective."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytorch_lightning as pl
import torch
from torch import Tensor

from seqkit.data.mixture import TaskBatch
from seqkit.errors import DivergedError
from seqkit.interfaces import LabeledBatch, LossOutput, Objective
from seqkit.mixture import Mixture
from seqkit.model import Model
from seqkit.nn.moe import AuxiliaryLoss
from seqkit.nn.position.bias import EdgeBias
from seqkit.training.checkpoint_files import Content
from seqkit.training.evaluation import Metrics, Task, evaluation_rng
from seqkit.training.optim import CombinedOptimizer, OptimizerFactory, Schedule, parts_of
from seqkit.training.outcome import MicroBatch, Outcome
from seqkit.training.parallel import (
    ShardedStrategy,
    gather_weights,
    is_sharded,
    shard,
    whole_tensor,
    without_weights,
)
from seqkit.training.private_names import is_attached, multiply_all, skips_by_itself, unfuse

log = logging.getLogger("seqkit")

STABILIZERS = "lower the learning rate (optimizer.lr), clip gradients (trainer.gradient_clip_val) or warm up (schedule)"
"""Advice for an unstable training."""

RELATIVE_LOSS = "valid/relative_loss"
"""Validation loss of a mixture: mean over tasks of the loss divided by the loss of the best constant prediction."""


def training_loss(task: Task, batch: LabeledBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of the losses of a training batch, its number of predictions, and its number of real tokens."""
    output = task.objective.step(task.model, batch, training=True)
    tokens = batch[0] if output.inputs is None else output.inputs.batch
    return output.loss, output.count, tokens.valid.sum()


class TrainingModule(pl.LightningModule):
    """Trains a model for an objective, or the models of a mixture in turn, each for its own.

    objective: objective of the model; for a mixture, one for each task by name. A mixture's metrics are
    `valid/TASK/NAME` and `RELATIVE_LOSS`. constants: loss of the best constant prediction for each task. optimizer: one
    for all tasks, or by name one for each task of a mixture, each with its own state for the shared weights.
    num_steps: optimizer steps of the whole training. seed: seed of the tokens that evaluation masks.
    skip_nonfinite: most optimizer steps that are skipped because their loss or gradient is not finite.
    An optimizer step uses the gradient of the loss summed over all micro-batches and devices, divided by the number of
    predictions. So micro-batches with unequal numbers of tokens weigh as they would in one big batch.
    In float16 the backward pass gets about the mean, since a sum would overflow at the scale of the first steps.
    A skipped step does not advance the schedule.
    On CUDA, where the optimizers are fused, the device itself skips the step, and `settle` reads a step later whether
    it did: no step waits for the device, but for those that are logged.
    """

    def __init__(
        self,
        model: Model | Mixture,
        objective: Objective | Mapping[str, Objective],
        *,
        constants: Mapping[str, float] | None = None,
        optimizer: OptimizerFactory | Mapping[str, OptimizerFactory] | None = None,
        schedule: Schedule | None = None,
        num_steps: int = 1,
        skip_nonfinite: int = 0,
        seed: int = 0,
    ):
        super().__init__()
        self.model = model
        self.objective = objective
        self.constants = constants
        self.tasks = _tasks_of(model, objective)
        self.task = ""
        """Task of the current step, as its metrics' names begin (TASK/); empty if the model is no mixture."""
        self.optimizer = optimizer
        self.schedule = schedule
        self.num_steps = num_steps
        self.seed = seed
        self.skip_nonfinite = skip_nonfinite
        self.valid_metrics = Metrics("valid", self.tasks)
        self.test_metrics = Metrics("test", self.tasks)
        self.losses: dict[str, Tensor | float] = {}
        """Loss of each task's last optimizer step since the last row of the log."""
        self.num_skipped = 0
        self.stop_requested: Callable[[], bool] = lambda: False
        self.seen: Callable[[LossOutput], None] = lambda _: None
        """Called with the output of each evaluated batch."""
        self.stop_agreed = False
        """Whether any rank was asked to stop before the last optimizer step; the same on all ranks."""
        self.whole_model: Model | Mixture | None = None
        """If weights are sharded: the model that gets all of them when training has ended."""
        self.statistics: dict[str, float] = {}
        """Mean statistics of the modules with an auxiliary loss in the last logged step, by column."""
        self._batches_to_evaluate = 0
        self._num_tokens: dict[str, Tensor | int] = dict.fromkeys(self.tasks, 0)
        self.loss_of: Callable[[Task, LabeledBatch], tuple[Tensor, Tensor, Tensor]] = training_loss
        """`training_loss`, or what computes the same faster."""
        self.run_step: Callable[[Any, Any], None] = lambda optimizer, closure: optimizer.step(
            closure=closure
        )
        """Runs an optimizer step, whose closure computes loss and gradient."""
        self.is_captured = False
        """Whether the device notes the current step, instead of running it."""
        self._step: list[MicroBatch] = []
        self._unread: Outcome | None = None
        """Outcome of the last optimizer step, if it was not read yet."""
        self._copies: torch.cuda.Stream | None = None
        self._due: list[Any] = []
        """Schedulers that step if that outcome is good."""
        self._unit: Tensor | float = 1.0
        """Divisor of the loss in float16: a power of two near the number of predictions of the first micro-batch."""
        self._left_out = False
        self._auxiliary = [
            module for module in model.modules() if isinstance(module, AuxiliaryLoss)
        ]

    def configure_model(self) -> None:
        """Shard the model if the strategy says so."""
        strategy = self.trainer.strategy
        if isinstance(strategy, ShardedStrategy) and not is_sharded(self.model):
            self.whole_model = cast(Model, without_weights(self.model))
            shard(self.model, strategy.mesh)

    def gather_model(self) -> Any:
        """Model with all weights; if they are sharded, only in the first process. All processes must call it."""
        if self.whole_model is None:
            return self.model
        gather_weights(self.model, self.whole_model, keep=self.trainer.is_global_zero)
        return self.whole_model

    def training_step(self, batch: LabeledBatch, index: int) -> Tensor:
        """Sum of the losses of a micro-batch."""
        self.task, task = self._task(batch)
        loss, count, num_tokens = self.loss_of(task, batch[:2])
        self._step.append(MicroBatch(loss.detach(), count, index))
        self._num_tokens[self.task] = self._num_tokens[self.task] + num_tokens
        if self._auxiliary:
            loss = loss + count * self._aux_loss()
        # DDP waits for a gradient of every parameter
        if len(self.tasks) > 1 and self.trainer.world_size > 1:
            for parameter in self._of_other_tasks():
                loss = loss + 0 * parameter.sum()
        if self._scaler is None:
            return loss
        if len(self._step) == 1:
            count = torch.as_tensor(count, device=self.device, dtype=torch.float32)
            # gradients of all devices are added
            count = cast(Tensor, self.trainer.strategy.reduce(count, reduce_op="sum"))
            self._unit = count.clamp(min=1).log2().floor().exp2()
        return loss / self._unit

    @property
    def _scaler(self) -> Any:
        """Gradient scaler of float16; None in any other precision."""
        if not is_attached(self):
            return None
        return getattr(self.trainer.precision_plugin, "scaler", None)

    def _task(self, batch: LabeledBatch) -> tuple[str, Task]:
        """Prefix of the metrics' names, and the task, of a batch."""
        name = f"{batch.task}/" if isinstance(batch, TaskBatch) else ""
        return name, self.tasks[name]

    def _of_other_tasks(self) -> list[torch.nn.Parameter]:
        """Trained parameters that the current task does not use: other tasks', and edge biases if it has no edges."""
        if len(self.tasks) == 1:
            return []
        model = self.tasks[self.task].model
        own = {id(p) for p in model.parameters()}
        if not model.spec.num_edge_types:
            biases = [one for one in model.backbone.modules() if isinstance(one, EdgeBias)]
            own -= {id(p) for bias in biases for p in bias.parameters()}
        return [p for p in self.model.parameters() if p.requires_grad and id(p) not in own]

    def tokens_by_task(self) -> dict[str, int]:
        """Real tokens of all training batches so far, on all devices: of each task, by the prefix of its metrics."""
        counted = torch.tensor(list(map(int, self._num_tokens.values())), device=self.device)
        if is_attached(self):
            counted = self.trainer.strategy.reduce(counted, reduce_op="sum")
        return dict(zip(self._num_tokens, counted.tolist()))

    @property
    def tokens_here(self) -> int:
        """Real tokens of the training batches of this process."""
        return sum(int(number) for number in self._num_tokens.values())

    def _aux_loss(self) -> Tensor:
        """Sum of the auxiliary losses of the model's modules.

        Its caller multiplies it by the number of predictions, so it is averaged as the objective's loss is.
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
        """Whether the current optimizer step is logged; the last step always is."""
        return self.is_logged(self.trainer.global_step + 1)

    def is_logged(self, step: int) -> bool:
        """Whether the optimizer step of that number, from 1, is logged."""
        every = cast(Any, self.trainer).log_every_n_steps
        return bool(every > 0 and (step % every == 0 or step == self.num_steps))

    def on_after_backward(self) -> None:
        """Settle the step before: the device has this one's work, so it stays busy meanwhile."""
        self.settle()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Turn the gradient of the summed loss into that of the mean, before clipping, and check that it is finite.

        If loss or gradient is not finite, neither weights nor the optimizer's state change in this step.
        Raises DivergedError as `settle`.
        """
        trainer = self.trainer
        step = self._step
        self._step = []
        # zeros, made for DDP only; the optimizer skips None
        for parameter in self._of_other_tasks():
            parameter.grad = None
        losses = torch.stack([one.loss for one in step]).float()
        counts = torch.stack(
            [torch.as_tensor(one.count, device=self.device, dtype=torch.float32) for one in step]
        )
        num_nonfinite = (~losses.isfinite()).float().sum()
        stops = torch.full((), float(self.stop_requested()), device=self.device)
        sums = torch.stack([losses.sum(), counts.sum(), num_nonfinite, stops])
        # one collective for all that ranks must agree on
        sums = cast(Tensor, trainer.strategy.reduce(sums, reduce_op="sum"))
        loss, count, num_nonfinite, num_stops = sums.unbind()
        parameters = [p for p in self.parameters() if p.grad is not None]
        gradients = [p.grad for p in parameters if p.grad is not None]
        # Lightning divides the loss by the number of micro-batches, and DDP averages gradients over devices: undo both
        scale = (
            trainer.accumulate_grad_batches * trainer.world_size / count.clamp(min=1) * self._unit
        )
        multiply_all(gradients, scale)
        self.gradient_norm = whole_tensor(torch.nn.utils.get_total_norm(gradients))
        self.step_loss = loss / count.clamp(min=1)
        is_wrong = ~torch.isfinite(self.gradient_norm)
        values = [
            num_nonfinite,
            is_wrong.float(),
            num_stops,
            self.step_loss,
            self.gradient_norm.float(),
        ]
        self.outcome = Outcome(torch.stack(values), step)
        skips_itself = self._device_skips(optimizer)
        if skips_itself:
            for one in parts_of(optimizer):
                one.found_inf = (is_wrong | (num_nonfinite > 0)).float()  # type: ignore[attr-defined]
        if self.is_captured:  # `conclude` follows each replay
            return
        if self.conclude(self.outcome, skips_itself=skips_itself):
            for parameter in parameters:
                parameter.grad = None  # then torch's optimizers change neither it nor its state

    def conclude(self, outcome: Outcome, *, skips_itself: bool) -> bool:
        """Note the outcome of a step; gives whether it is known by now that the step is left out.

        skips_itself: whether the device leaves it out by itself: then nothing waits, unless the step is logged.
        """
        self.losses[self.task] = self.step_loss
        arrived = None
        if skips_itself:
            values, arrived = _to_host(outcome.values)
        else:
            values = outcome.values.cpu()
        self._unread = replace(
            outcome,
            values=values,
            arrived=arrived,
            step=self.trainer.global_step,
            epoch=self.trainer.current_epoch,
        )
        if skips_itself and not self.logs_this_step:
            return False
        self.settle()
        if not self._left_out and self.logs_this_step:
            self.log(f"train/{self.task}loss", self.step_loss, logger=False)
        return self._left_out

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Any,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """Run a step as `run_step` says."""
        self.run_step(optimizer, optimizer_closure)

    def _device_skips(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether all optimizers skip a step by themselves where `found_inf` is 1, as torch's fused ones do."""
        can = all(map(skips_by_itself, parts_of(optimizer)))
        return (
            can
            and self.device.type == "cuda"
            and self._scaler is None
            and not is_sharded(self.model)
        )

    def settle(self) -> None:
        """Read the outcome of the last optimizer step, if it was not read yet, and let the schedule follow.

        Raises DivergedError, on all devices alike, if more than `skip_nonfinite` steps were not finite.
        """
        outcome = self._unread
        self._unread = None
        if outcome is None:
            return
        loss_is_finite, norm_is_finite, asked_to_stop = outcome.settled()
        alone = self.trainer.world_size == 1
        self.stop_agreed = asked_to_stop or (alone and self.stop_requested())
        self._left_out = not (loss_is_finite and norm_is_finite)
        due = self._due
        self._due = []
        if self._left_out:
            self._leave_out(outcome, loss_is_finite=loss_is_finite)
        else:
            for scheduler in due:
                scheduler.step()

    def on_validation_start(self) -> None:
        self.settle()

    def on_train_epoch_end(self) -> None:
        self.settle()

    def _leave_out(self, outcome: Outcome, *, loss_is_finite: bool) -> None:
        """Count a skipped step, or raise DivergedError if `skip_nonfinite` steps were skipped before."""
        # the scale was too large, and the scaler skips the step
        if self._scaler is not None and loss_is_finite:
            log.info("step %d: the gradient overflows float16; the step was left out", outcome.step)
            return
        self.num_skipped += 1
        most = self.skip_nonfinite
        fault = outcome.fault(self.trainer.train_dataloader)
        if self.num_skipped <= most:
            log.warning("%s: the step was left out, %d of %d", fault, self.num_skipped, most)
            return
        if most:
            fault += f", after {most} steps that were left out"
        raise DivergedError(
            f"{fault}; {STABILIZERS}, look for extreme inputs, or allow trainer.skip_nonfinite steps"
        )

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Step the schedule, unless the optimizer's step was skipped; if that is not known yet, `settle` does."""
        if self._unread is not None:
            self._due.append(scheduler)
        elif not self._left_out:
            scheduler.step()

    def setup(self, stage: str) -> None:
        """On CUDA, copy batches by `_copied`: for a method of the class, Lightning would warn beside a DataModule."""
        if self.trainer.strategy.root_device.type == "cuda":
            self.transfer_batch_to_device = self._copied  # type: ignore[method-assign]

    def _copied(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Copy a batch from pinned memory while the device computes; Lightning would wait for what is no tensor."""
        if self._copies is None:
            self._copies = torch.cuda.Stream(device)
        with torch.cuda.stream(self._copies):
            tokens, targets, *task = (
                x.to(device, non_blocking=True) if hasattr(x, "to") else x for x in batch
            )
        computes = torch.cuda.current_stream(device)
        computes.wait_stream(self._copies)
        for tensor in tokens.tensors().values():
            tensor.record_stream(computes)
        if targets is not None:
            targets.record_stream(computes)
        if task:
            return TaskBatch(tokens, targets, *task)
        return (tokens, targets)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the norm that was computed already, in every precision. Raises ValueError for another algorithm.

        Lightning's clipping refuses a fused optimizer under autocast; here gradients are unscaled before (`unfuse`).
        """
        if not gradient_clip_val:
            return
        if gradient_clip_algorithm not in (None, "norm"):
            raise ValueError(
                f"gradient_clip_algorithm={gradient_clip_algorithm!r}; gradients are clipped by norm only"
            )
        parameters = [p for p in self.parameters() if p.grad is not None]
        torch.nn.utils.clip_grads_with_norm_(parameters, gradient_clip_val, self.gradient_norm)

    def on_save_checkpoint(self, checkpoint: Content) -> None:
        losses = {name: float(loss) for name, loss in self.losses.items()}
        counts = {"num_tokens": self.tokens_by_task(), "num_skipped": self.num_skipped}
        checkpoint["training"] = {**counts, "losses": losses}

    def on_load_checkpoint(self, checkpoint: Content) -> None:
        counted = checkpoint["training"]
        if self.global_rank == 0:  # `tokens_by_task` sums over devices
            self._num_tokens = dict(counted["num_tokens"])
        self.num_skipped = counted["num_skipped"]
        self.losses = dict(counted["losses"])

    def validation_step(self, batch: LabeledBatch, index: int, dataloader_idx: int = 0) -> None:
        self._evaluate(self.valid_metrics, batch, index)

    def test_step(self, batch: LabeledBatch, index: int) -> None:
        self._evaluate(self.test_metrics, batch, index)

    def on_validation_epoch_start(self) -> None:
        """Find the most batches of any process, if weights are sharded: each forward pass then needs all processes."""
        if not is_sharded(self.model):
            return
        trainer = self.trainer
        numbers = trainer.num_val_batches
        if trainer.sanity_checking:
            numbers = trainer.num_sanity_val_batches
        own = int(sum(numbers))
        most = trainer.strategy.reduce(torch.tensor(own, device=self.device), reduce_op="max")
        self._batches_to_evaluate = int(most) - own

    def on_validation_epoch_end(self) -> None:
        # other processes need this one's part of the weights
        for _ in range(self._batches_to_evaluate):
            _, task = self._task(self._last_batch)
            task.objective.step(task.model, self._last_batch[:2])
        if self.constants is not None:
            losses = [
                self.valid_metrics.loss(prefix) / self.constants[prefix[:-1]]
                for prefix in self.tasks
            ]
            self.log(RELATIVE_LOSS, sum(losses) / len(losses), prog_bar=True)
        self.valid_metrics.report(self)

    def on_test_epoch_end(self) -> None:
        self.test_metrics.report(self)

    def _evaluate(self, metrics: Metrics, batch: LabeledBatch, index: int) -> None:
        if self.trainer.world_size > 1:  # the batch's number if there were one device
            index = index * self.trainer.world_size + self.trainer.global_rank
        prefix, task = self._task(batch)
        with evaluation_rng(self.seed, index, self.device):
            output = task.objective.step(task.model, batch[:2])
        self.seen(output)
        if is_sharded(self.model):
            self._last_batch = batch
        metrics.update(prefix, task, batch[:2], output)

    def build_optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """Optimizer of all trained parameters of `model`: the module's own model, or one of the same structure."""
        assert self.optimizer is not None
        if isinstance(self.optimizer, OptimizerFactory):
            return self.optimizer.build(model)
        models = cast(Mixture, model).tasks
        built = {f"{name}/": one.build(models[name]) for name, one in self.optimizer.items()}
        return CombinedOptimizer(built, lambda: self.task)

    def configure_optimizers(self) -> Any:
        """The optimizer, and the scheduler of its learning rate, which steps after each optimizer step."""
        if self.optimizer is None:
            raise ValueError(
                "this TrainingModule has no optimizer, so it only evaluates; pass one to train"
            )
        optimizer = self.build_optimizer(self.model)
        if self._scaler is not None:
            for one in parts_of(optimizer):
                unfuse(one)
        if self.schedule is None:
            return optimizer
        scheduler = self.schedule.build(optimizer, self.num_steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def _tasks_of(
    model: Model | Mixture, objective: Objective | Mapping[str, Objective]
) -> dict[str, Task]:
    """Tasks by the prefix of their metrics' names: TASK/, or the empty string if the model is no mixture."""
    if isinstance(objective, Objective):
        return {"": Task(cast(Model, model), objective)}
    tasks = cast(Mixture, model).tasks
    return {f"{name}/": Task(cast(Model, tasks[name]), one) for name, one in objective.items()}


def _to_host(x: Tensor) -> tuple[Tensor, torch.cuda.Event]:
    """Copy of a CUDA tensor in pinned memory, and the event after which it may be read."""
    copied = x.to("cpu", non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return copied, arrived
