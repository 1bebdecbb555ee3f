"""Short trainings of a recipe's model: a few dozen steps on its data, and a handful of examples overfitted.

They are plain loops over the recipe's own optimizer, objective and clipping, on the CPU in float32. A warm-up that
is longer than their forty steps takes all of them; after it the learning rate stays at its peak.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from seqkit.doctor.subject import NUM_BATCHES, STEP_FLOPS, Subject
from seqkit.interfaces import LabeledBatch, LossOutput
from seqkit.nn.moe import AuxiliaryLoss
from seqkit.training.health import HeadEntropy, gradient_norms, record_attention_entropy, total_norm
from seqkit.training.module import evaluation_rng

RAMP = 10
"""Steps of warm-up before a handful of examples is learned, whatever the recipe has."""

MAX_PLANNED = 20_000
"""Number of the schedule's first steps in which the peak of the learning rate is looked for."""

MIN_STEPS = 10
"""Number of steps below which a short training says nothing: a model whose steps cost too much is not trained."""

OVERFIT_STEPS, OTHER_STEPS = 200, 100
"""Number of steps in which a handful of examples should be overfitted, at the learning rate and at others. The recipes
take 10 to 120."""

OVERFITTED = 0.5
"""Share of the loss of the best constant prediction below which a handful counts as overfitted."""

FACTORS = (1.0, 0.1, 0.01, 10.0, 100.0)
"""Factors on the learning rate, tried in this order until a handful is overfitted."""

USUAL_STD = 0.02
"""Standard deviation (GPT-2's) of the weights that matrices of zeros get before updates are compared with weights."""

HEALTHY_RATIO = 0.05
"""Usual size of the first update at the full rate, as a share of the weights' size, median over the matrices of a
parameter group. The recipes have 0.01 to 0.31."""

MAX_RATIO = 0.7
"""Size of the first update above which it replaces the weights. A hundred times their learning rate gives the recipes
1.1 to 16."""

MIN_RATIO = 0.004
"""Size of the first update of all groups below which it may be too small. A hundredth of their learning rate gives the
recipes 0.0002 to 0.003."""

MIN_MOVE = 10.0
"""Sum of the updates of a whole training, as a multiple of the weights, that a low learning rate should reach. A
hundredth of their learning rate gives the recipes up to 5."""

HIGHER, LEARNS_BETTER = 100.0, 0.8
"""Factor on a learning rate that may be too low, and share of the loss at the rate itself below which a handful's loss
must fall at the higher rate: the small first updates of another optimizer may be right."""


@dataclass
class Trajectory:
    """Record of a short training, step by step.

    model: the trained model. losses: mean losses over predictions. norms: norms of the gradient before clipping.
    gradients: the same norms by layer. touched: names of parameters that had a gradient other than zero.
    """

    model: nn.Module
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    gradients: list[dict[str, float]] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)

    @property
    def is_finite(self) -> bool:
        """Whether all losses and gradients were finite; a training stops after the first that is not."""
        return all(map(math.isfinite, (*self.losses, *self.norms)))


@dataclass(frozen=True)
class Plan:
    """Schedule of a recipe. peaks: highest learning rate of each parameter group. warmup_steps: steps up to the
    peak."""

    peaks: tuple[float, ...]
    warmup_steps: int


@dataclass(frozen=True)
class Overfit:
    """How a handful of examples was overfitted.

    factor: factor on the learning rate at which it was; None: it was not. guess: loss of the best constant prediction.
    losses: lowest loss for each factor that was tried.
    """

    factor: float | None
    guess: float
    losses: Mapping[float, float]


class Trials:
    """Short trainings of a subject, each made when it is first needed."""

    def __init__(self, subject: Subject):
        self.subject = subject
        trainer = subject.prepared.built.trainer
        self.clip: float | None = trainer["gradient_clip_val"] or None

    @property
    def num_steps(self) -> int:
        """Number of steps of a short training, fewer if single examples cost much; 0: the model is too large to try."""
        subject = self.subject
        affordable = int(NUM_BATCHES * STEP_FLOPS / subject.flops(subject.first_batch))
        return min(NUM_BATCHES, affordable) if affordable >= MIN_STEPS else 0

    @cached_property
    def plan(self) -> Plan:
        """Peaks and warm-up of the schedule."""
        subject = self.subject
        optimizer = subject.prepared.built.optimizer.build(subject.fresh())
        scheduler = subject.prepared.built.schedule.build(optimizer, subject.num_steps)
        rates = []
        for _ in range(min(subject.num_steps, MAX_PLANNED)):
            rates.append([float(group["lr"]) for group in optimizer.param_groups])
            optimizer.step()  # without gradients it changes nothing; torch wants it before the scheduler's
            scheduler.step()
        peaks = tuple(max(column) for column in zip(*rates))
        first = next(i for i, row in enumerate(rates) if all(rate >= 0.9 * peak for rate, peak in zip(row, peaks)))
        return Plan(peaks, first + 1 if first else 0)

    @cached_property
    def short(self) -> Trajectory:
        """The first steps of the recipe's training."""
        return self.train(self.subject.batches[: self.num_steps], ramp=min(self.plan.warmup_steps, NUM_BATCHES))

    @cached_property
    def entropy_at_start(self) -> list[HeadEntropy]:
        """Attention entropy with the initial weights."""
        return attention_entropy(self.subject, self.subject.model)

    @cached_property
    def overfit(self) -> Overfit | None:
        """How a handful of examples was overfitted; None if the model is too large to try."""
        subject = self.subject
        handful = subject.handful
        if OVERFIT_STEPS * subject.flops(handful) > NUM_BATCHES * STEP_FLOPS:
            return None
        outputs = guessed(subject, [handful])
        if outputs is None:
            return None
        guess, losses = mean_loss(outputs), dict[float, float]()
        for factor in FACTORS:
            if factor < 1 and self.has_small_updates:
                continue
            losses[factor] = self._overfitted(handful, factor, OVERFITTED * guess)
            if losses[factor] <= OVERFITTED * guess:
                return Overfit(factor, guess, losses)
        return Overfit(None, guess, losses)

    def _overfitted(self, handful: LabeledBatch, factor: float, enough: float) -> float:
        """The lowest loss that training on a handful reaches; it ends once that is low enough."""
        lowest, training = math.inf, Training(self, factor, RAMP)
        for step in range(OVERFIT_STEPS if factor == 1 else OTHER_STEPS):
            if not training.step(handful, 0):
                break
            if step % 10 == 9:
                lowest = min(lowest, evaluate(self.subject, training.model, {0: handful}))
                if lowest <= enough:
                    break
        return lowest

    def train(self, batches: Sequence[LabeledBatch], *, factor: float = 1.0, ramp: int = RAMP) -> Trajectory:
        """A step on each batch, up to the first whose loss or gradient is not finite."""
        training = Training(self, factor, ramp)
        for seed, batch in enumerate(batches):
            if not training.step(batch, seed):
                break
        return training.trajectory

    @cached_property
    def update_ratios(self) -> list[tuple[float, float]]:
        """(learning rate, median size of the first update as a share of the weights') of each group with matrices.

        The first step is made at the highest learning rate; matrices without a gradient do not count. Matrices of zeros
        get usual values first: they would have no share, and the layers before them no gradient.
        """
        model = self.subject.fresh()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for parameter in model.parameters():
                if parameter.ndim >= 2 and not bool(parameter.any()):
                    parameter.normal_(std=USUAL_STD)
        before = {id(parameter): parameter.detach().clone() for parameter in model.parameters()}
        training = Training(self, 1.0, 1, model)
        training.step(self.subject.first_batch, 0)
        found = []
        for group, peak in zip(training.optimizer.param_groups, self.plan.peaks):
            ratios = [
                float((p.detach() - before[id(p)]).norm() / before[id(p)].norm())
                for p in group["params"]
                if p.ndim >= 2 and p.grad is not None and bool(p.grad.any())
            ]
            if ratios:
                found.append((peak, statistics.median(ratios)))
        return found

    @property
    def has_small_updates(self) -> bool:
        """Whether an update changes the weights of no parameter group by more than MIN_RATIO."""
        return bool(self.update_ratios) and max(ratio for _, ratio in self.update_ratios) < MIN_RATIO

    @cached_property
    def is_timid(self) -> bool:
        """Whether the learning rate is so low that the planned training cannot change the weights enough."""
        if not self.has_small_updates or self.overfit is None:
            return False
        if self.subject.num_steps * max(ratio for _, ratio in self.update_ratios) > MIN_MOVE:
            return False
        return self._overfitted(self.subject.handful, HIGHER, 0.0) < LEARNS_BETTER * self.overfit.losses[1.0]

    @property
    def is_wild(self) -> bool:
        """Whether the learning rate is so high that it explains any other fault."""
        if any(not ratio <= MAX_RATIO for _, ratio in self.update_ratios):
            return True
        return self.overfit is not None and self.overfit.factor is not None and self.overfit.factor < 1


class Training:
    """Training of a copy of the model, step by step as `TrainingModule` does it.

    factor: factor on the learning rate. ramp: steps of warm-up. model: model to train; None: a copy with the initial
    weights.
    """

    def __init__(self, trials: Trials, factor: float, ramp: int, model: nn.Module | None = None):
        subject = trials.subject
        self.subject, self.trials, self.ramp = subject, trials, ramp
        self.model = subject.fresh() if model is None else model
        self.optimizer = subject.prepared.built.optimizer.build(self.model)
        self.rates = [peak * factor for peak in trials.plan.peaks]
        self.trajectory = Trajectory(self.model)
        self._auxiliary = [module for module in self.model.modules() if isinstance(module, AuxiliaryLoss)]

    def step(self, batch: LabeledBatch, seed: int) -> bool:
        """One optimizer step; returns False if it was left out because loss or gradient are not finite.

        seed: of the masked tokens, so that a batch which is trained on again has the same. Dropout differs by step.
        """
        made = self.trajectory
        share = min(1.0, (len(made.losses) + 1) / max(1, self.ramp))
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            group["lr"] = rate * share
        loss = self._loss(batch, seed)
        self.optimizer.zero_grad()
        loss.backward()
        gradients = gradient_norms(self.model)
        made.losses.append(float(loss.detach()))
        made.norms.append(total_norm(gradients))
        made.gradients.append(gradients)
        if not made.is_finite:
            return False
        made.touched |= {n for n, p in self.model.named_parameters() if p.grad is not None and bool(p.grad.any())}
        if self.trials.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.trials.clip)
        self.optimizer.step()
        return True

    def _loss(self, batch: LabeledBatch, seed: int) -> Tensor:
        step = len(self.trajectory.losses)

        def drop_others(*_: Any) -> None:
            torch.manual_seed(self.subject.seed * 1_000_003 + step)

        hook = self.model.register_forward_pre_hook(drop_others)
        output = self.subject.step(self.model, batch, seed, training=True)
        hook.remove()
        loss = output.loss / output.count.clamp(min=1)
        return loss + torch.stack([module.aux_loss() for module in self._auxiliary]).sum() if self._auxiliary else loss


@torch.no_grad()
def evaluate(subject: Subject, model: nn.Module, batches: Mapping[int, LabeledBatch]) -> float:
    """Mean loss over the predictions of batches, in evaluation mode. batches: by their seeds."""
    was_training = model.training
    model.eval()
    outputs = [subject.step(model, batch, seed) for seed, batch in batches.items()]
    model.train(was_training)
    return mean_loss(outputs)


def mean_loss(outputs: Sequence[LossOutput]) -> float:
    """Mean over the predictions of several outputs."""
    return sum(float(one.loss) for one in outputs) / max(1.0, sum(float(one.count) for one in outputs))


def guessed(subject: Subject, batches: Sequence[LabeledBatch]) -> list[LossOutput] | None:
    """Outputs of the best constant prediction, fitted on these batches; None: the objective knows none."""
    with evaluation_rng(subject.seed, 0):
        step = subject.objective.baseline_step(batches, subject.model.spec)
        return None if step is None else [step(batch) for batch in batches]


@torch.no_grad()
def attention_entropy(subject: Subject, model: nn.Module) -> list[HeadEntropy]:
    """Attention entropy of a copy of the model on the handful, in evaluation mode."""
    model = copy.deepcopy(model).eval()
    with record_attention_entropy(model) as heads:
        subject.step(model, subject.handful)
    return heads


def rates_in(config: Any, path: str = "optimizer") -> list[tuple[str, float]]:
    """(dotted key, learning rate) pairs of an optimizer's configuration and of the optimizers inside it."""
    found = []
    for key, value in config.items():
        if key == "lr" and isinstance(value, int | float):
            found.append((f"{path}.{key}", float(value)))
        elif isinstance(value, Mapping):
            found += rates_in(value, f"{path}.{key}")
    return found
