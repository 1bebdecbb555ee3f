"""Checks of a training's first steps: trained parameters, loss, learning rate, gradients, overfitting."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cached_property

import torch

from seqkit.config.record import learning_rates
from seqkit.doctor.findings import Result, faulty, first_few, not_applicable
from seqkit.doctor.subject import NUM_BATCHES, STEP_FLOPS, Subject
from seqkit.doctor.trials import Trial
from seqkit.interfaces import LabeledBatch, LossOutput
from seqkit.nn.block import PreNormBlock
from seqkit.training.health import EXPLODING_NORM, layer_of, vanishing_layers
from seqkit.training.module import evaluation_rng
from seqkit.training.optim import Constant

HIGH_START = 1.5
HIGH_START_SQUARED = 10.0
"""Multiples of the loss of guessing above which an initial loss is too high: in nats, and for squared errors, which a
sum over tokens blows up. The recipes have 0.99 to 1.01 and 1.0 to 4.8 (solubility)."""

LOW_START = 0.5
"""Multiple of the loss of guessing below which an untrained model knows too much. The recipes have 0.997 and more."""

FIRST_BATCHES = 8
"""Number of batches on which the initial loss is measured."""

MAX_RATIO = 0.7
HEALTHY_RATIO = 0.05
"""Size of the first update above which it replaces the weights, and its usual size, as a share of the weights' size:
the median over the matrices of a parameter group. The recipes have 0.01 to 0.31, at a hundred times their rate 1.1 to
16."""

OVERFIT_STEPS = 200
RAMP = 10
OVERFITTED = 0.5
"""Steps in which a handful of examples should be overfitted, those of them in which the rate rises, and the share of
the loss of the best constant prediction that counts as overfitted. The recipes take 10 to 120 steps."""

FEWEST = 10
"""Steps that the time must allow for a short training: a model for which it does not is not trained here."""


class Trials:
    """Short trainings of a subject, each made when it is needed. num_steps: of the first; 0: they cost too much."""

    def __init__(self, subject: Subject):
        self.subject = subject
        affordable = int(NUM_BATCHES * STEP_FLOPS / subject.example_flops(subject.batches[0]))
        self.num_steps = 0
        if affordable >= FEWEST:
            self.num_steps = min(len(subject.batches), affordable)

    @cached_property
    def short(self) -> Trial:
        """The first steps of the recipe's training, after which a long warm-up is over."""
        schedule = self.subject.prepared.built.schedule
        ramp = min(getattr(schedule, "warmup_steps", 0), NUM_BATCHES)
        return Trial(
            self.subject, self.subject.batches[: self.num_steps], Constant(warmup_steps=ramp)
        )

    @cached_property
    def overfit(self) -> Trial:
        """A training on a handful of examples."""
        schedule = Constant(warmup_steps=RAMP)
        return Trial(self.subject, [self.subject.handful] * OVERFIT_STEPS, schedule, repeats=True)

    @cached_property
    def update_ratios(self) -> list[tuple[float, float]]:
        """(learning rate, median size of the first update as a share of the weights') of each group with matrices.

        The step is made at the full learning rate. Matrices of zeros and those without a gradient do not count.
        """
        trial = Trial(self.subject, self.subject.batches[:1], None)
        before = dict(self.subject.model.named_parameters())
        names = {id(p): name for name, p in trial.model.named_parameters()}
        found = []
        for group in trial.optimizer.param_groups:
            ratios = []
            for p in group["params"]:
                old = before[names[id(p)]].detach()
                new = p.detach()
                if p.ndim >= 2 and not new.equal(old) and bool(old.any()):
                    ratios.append(float((new - old).norm() / old.norm()))
            if ratios:
                found.append((float(group["lr"]), statistics.median(ratios)))
        return found

    @property
    def is_wild(self) -> bool:
        """Whether an update replaces the weights, which explains what a training does."""
        return any(not ratio <= MAX_RATIO for _, ratio in self.update_ratios)


def check_start(trials: Trials) -> Result:
    """Is the initial loss that of guessing?"""
    subject = trials.subject
    batches = subject.batches[:FIRST_BATCHES]
    constant = guessed(subject, batches)
    if constant is None:
        return not_applicable(f"{type(subject.objective).__name__} has no constant prediction")
    model = subject.fresh().eval()
    with torch.no_grad():
        loss = mean_loss([subject.step(model, batch, seed) for seed, batch in enumerate(batches)])
    guess = mean_loss(constant)
    measured = f"the initial loss is {loss:.3g}, the best constant prediction's {guess:.3g}"
    highest = HIGH_START_SQUARED * guess
    inputs = constant[0].inputs
    prediction = constant[0].prediction
    if inputs is not None and prediction is not None and not inputs.target.is_floating_point():
        highest = HIGH_START * max(guess, math.log(prediction.shape[-1]))
    if not loss <= highest:
        cause = "the first predictions are confident and wrong: the head's initial weights or its input are too large"
        head = type(subject.model.head).__name__
        fix = f"--model.backbone.norm LayerNorm; --model.objective: a head other than {head}"
        return faulty(measured, cause, fix)
    if loss < LOW_START * guess:
        cause = "untrained weights cannot predict so well: the target is part of the input"
        return faulty(
            measured,
            cause,
            "--model.objective or --tokenizer: one that hides the target",
        )
    return Result(measured)


def check_trained_parameters(trials: Trials) -> Result:
    """Does every layer get a gradient, and does the optimizer change it?"""
    subject = trials.subject
    trial = trials.short
    named = {name: p for name, p in subject.model.named_parameters() if p.numel()}
    after = dict(trial.model.named_parameters())
    steps = len(trial.losses)
    frozen = [name for name, p in named.items() if not p.requires_grad]
    if not frozen and not trial.is_finite:
        return not_applicable("training diverges at once")
    untouched = [name for name in named if name not in trial.touched]
    unchanged = [name for name, p in named.items() if torch.equal(p, after[name])]
    missing = "they do not reach the loss: they are detached, or left out of forward"
    for names, problem, cause in (
        (frozen, "cannot be trained", "the layer is frozen: requires_grad is False"),
        (untouched, f"got no gradient in {steps} steps", missing),
        (unchanged, f"did not change in {steps} steps", "the optimizer was not given them"),
    ):
        if names:
            backbone = type(subject.model.backbone).__name__
            optimizer = type(subject.prepared.built.optimizer).__name__
            fix = f"--model.backbone (now {backbone}) or --optimizer (now {optimizer}): one that trains every layer"
            layers = first_few(list(dict.fromkeys(map(layer_of, names))))
            return faulty(f"{layers} {problem}", cause, fix)
    return Result(f"all parameters changed in {steps} steps")


def check_learning_rate(trials: Trials) -> Result:
    """Is an update small beside the weights?"""
    ratios = trials.update_ratios
    shown = " and ".join(f"{100 * ratio:.1f} % (learning rate {rate:g})" for rate, ratio in ratios)
    if ratios:
        measured = f"an update changes the weights by {shown}"
    else:
        measured = "nothing to compare an update with"
    if not trials.is_wild:
        return Result(measured)
    keys = []
    for key, own in learning_rates(trials.subject.config["optimizer"]).items():
        for rate, ratio in ratios:
            if math.isclose(own, rate, rel_tol=1e-6) and not ratio <= MAX_RATIO:
                keys.append(f"--optimizer.{key} {rate * HEALTHY_RATIO / ratio:.1g}")
    fix = ", ".join(keys) or "a lower --optimizer.lr"
    return faulty(
        measured,
        "the learning rate is too high: an update replaces the weights",
        fix,
    )


def check_gradients(trials: Trials) -> Result:
    """Are the gradients of all layers of a healthy size, and is the loss finite?"""
    short = trials.short
    norm = statistics.median(trials.short.norms)
    measured = f"median norm {norm:.2g} over {len(short.norms)} steps"
    if not short.is_finite:
        measured += f", loss or gradient not finite in step {len(short.losses) - 1}"
    if trials.is_wild:
        return Result(f"{measured}; the learning rate explains it")
    if not short.is_finite or norm > EXPLODING_NORM:
        first = max(short.gradients[0], key=short.gradients[0].__getitem__)
        return faulty(
            f"{measured}; {first} has the largest",
            "gradients explode",
            _calmer(trials),
        )
    vanished = set.intersection(*(set(vanishing_layers(norms)) for norms in short.gradients))
    if vanished:
        last = short.gradients[-1]
        problem = f"the gradient of {first_few(sorted(vanished))} has norm {min(last[one] for one in vanished):.1g}, "
        problem += f"elsewhere up to {max(last.values()):.1g}"
        cause = "gradients vanish on their way through the layers, which are hardly trained"
        fix = "smaller --model.backbone.depth"
        if not any(isinstance(module, PreNormBlock) for module in trials.subject.model.modules()):
            fix = f"--model.backbone.block PreNormBlock (residual connections, norms first), {fix}"
        return faulty(problem, cause, fix)
    return Result(measured)


def _calmer(trials: Trials) -> str:
    """Keys that make the first steps smaller."""
    rates = learning_rates(trials.subject.config["optimizer"])
    lower = [f"--optimizer.{key} {rate / 3:.1g}" for key, rate in rates.items()]
    return ", ".join(["--trainer.gradient_clip_val 1.0", "--schedule.warmup_steps 100", *lower])


def check_overfitting(trials: Trials) -> Result:
    """Can a handful of examples be overfitted?"""
    subject = trials.subject
    constant = guessed(subject, [subject.handful])
    if constant is None:
        return not_applicable(f"{type(subject.objective).__name__} has no constant prediction")
    guess = mean_loss(constant)
    number = len(subject.handful[0])
    if guess <= 1e-6:
        return not_applicable(f"{number} examples have the same target")
    lowest = min(trials.overfit.losses, key=lambda loss: math.inf if math.isnan(loss) else loss)
    measured = f"{number} examples: the loss falls from {guess:.3g} (guessing) to {lowest:.3g}"
    if lowest <= OVERFITTED * guess:
        return Result(measured)
    if trials.is_wild:
        return Result(f"{measured}; the learning rate explains it")
    problem = f"{number} examples cannot be learned: the loss stays at {lowest:.3g}, guessing gives {guess:.3g}"
    cause = "inputs do not reach the prediction, targets contradict each other, or the learning rate is too low"
    fix = "findings above first; then --optimizer.lr, --tokenizer, --model.objective, --model.backbone.dim or depth"
    return faulty(problem, cause, fix)


def mean_loss(outputs: Sequence[LossOutput]) -> float:
    """Mean over the predictions of several outputs."""
    return sum(float(one.loss) for one in outputs) / max(
        1.0, sum(float(one.count) for one in outputs)
    )


def guessed(subject: Subject, batches: Sequence[LabeledBatch]) -> list[LossOutput] | None:
    """Outputs of the best constant prediction, fitted on these batches; None: the objective knows none."""
    with evaluation_rng(subject.prepared.seed, 0):
        step = subject.objective.baseline_step(batches, subject.model.spec)
        if step is None:
            return None
        return [step(batch) for batch in batches]
