"""Checks of a training's first steps: trained parameters, loss, warm-up, learning rate, attention, gradients."""

from __future__ import annotations

import math
import statistics

import torch
from torch import nn

from seqkit.doctor.findings import Finding, Result, key_of_type, keys_named, listed, not_applicable
from seqkit.doctor.trials import (
    HEALTHY_RATIO,
    HIGHER,
    MAX_RATIO,
    Trials,
    attention_entropy,
    evaluate,
    guessed,
    mean_loss,
    rates_in,
)
from seqkit.nn.block import PostNormBlock, PreNormBlock
from seqkit.training.health import (
    COLLAPSED,
    COLLAPSED_AT_START,
    EXPLODING_NORM,
    HeadEntropy,
    collapsed_layers,
    indifferent_layers,
    layer_of,
    loss_spikes,
    vanishing_layers,
)

TOO_LARGE = "training steps of this model cost too much to try them here"

WARMUP_SHARE, ENOUGH_WARMUP = 0.01, 100
"""Share of a training with post-norm that warm-up should take, and number of steps that are enough. Vaswani et al. 2017
take 4 % (4,000 steps), BERT 1 %."""

HIGH_START, HIGH_START_SQUARED = 1.5, 10.0
"""Multiples of the loss of guessing above which an initial loss is too high: in nats, and for squared errors, which a
sum over tokens blows up. The recipes have 0.99 to 1.01 and 1.0 to 4.8 (graph/solubility)."""

LOW_START = 0.5
"""Multiple of the loss of guessing below which an untrained model knows too much. The recipes have 0.997 and more."""

WORSE = 3.0
"""Multiple of the initial loss above which the loss at the end of a short training has risen: medians over the last
batches. The recipes have 0.01 to 1.0, the recurrent presets of graph/solubility up to 1.8. SGD at a hundred
times its rate gives 34."""

MANY_SPIKES = 4
"""Number of spikes from which on a short training is unstable; one may be a batch of outliers. The recipes have none in
40 steps, the recurrent presets of graph/solubility 0 to 3 in three seeds."""

FIRST_BATCHES = 8
"""Number of batches on which the initial loss is measured."""


def check_start(trials: Trials) -> Result:
    """Is the initial loss that of guessing?"""
    subject = trials.subject
    batches = subject.batches[:FIRST_BATCHES]
    loss, outputs = evaluate(subject, subject.model, dict(enumerate(batches))), guessed(subject, batches)
    if outputs is None:
        return not_applicable("initial loss", f"{type(subject.objective).__name__} has no constant prediction")
    guess = mean_loss(outputs)
    measured = f"the initial loss is {loss:.3g}, the best constant prediction's {guess:.3g}"
    lowest, highest = LOW_START * guess, HIGH_START_SQUARED * guess
    inputs, constant = outputs[0].inputs, outputs[0].prediction
    if inputs is not None and constant is not None and not inputs.target.is_floating_point():
        num_classes = constant.shape[-1]
        highest = HIGH_START * max(guess, math.log(num_classes))
    head = type(subject.model.head).__name__
    if not loss <= highest:
        cause = "the first predictions are confident and wrong: the head's initial weights or its input are too large"
        fix = f"--model.backbone.norm LayerNorm; --model.objective: a head other than {head} (tied, pool)"
        return Result("initial loss", measured, Finding(measured, cause, fix))
    if loss < lowest:
        cause = "untrained weights cannot predict so well: the target is part of the input"
        fix = "--model.objective or --tokenizer: one that keeps the target out of the input"
        return Result("initial loss", measured, Finding(measured, cause, fix))
    return Result("initial loss", measured)


def check_trained_parameters(trials: Trials) -> Result:
    """Does every layer get a gradient, and does the optimizer change it?"""
    model = trials.subject.model
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    if not trials.num_steps and not frozen:
        return not_applicable("trained layers", TOO_LARGE)
    number = sum(p.numel() for p in model.parameters())
    if frozen:
        layers = list(dict.fromkeys(map(layer_of, frozen)))
        share = sum(p.numel() for p in model.parameters() if not p.requires_grad) / number
        problem = f"{listed(layers)} cannot be trained ({100 * share:.0f} % of the parameters)"
        return _untrained(trials, problem, "the layer is frozen: requires_grad is False")
    if not trials.short.is_finite:
        return not_applicable("trained layers", "training diverges at once")
    after = dict(trials.short.model.named_parameters())
    still = [name for name, p in model.named_parameters() if p.numel() and torch.equal(p, after[name])]
    without = [name for name, p in model.named_parameters() if p.numel() and name not in trials.short.touched]
    steps = len(trials.short.losses)
    for names, problem, cause in (
        (
            without,
            f"got no gradient in {steps} steps",
            "they do not reach the loss: they are detached, or left out of forward",
        ),
        (still, f"did not change in {steps} steps", "the optimizer was not given them"),
    ):
        if names:
            layers = list(dict.fromkeys(map(layer_of, names)))
            return _untrained(trials, f"{listed(layers)} {problem}", cause)
    return Result("trained layers", f"all of {number:,} parameters changed in {steps} steps")


def _untrained(trials: Trials, problem: str, cause: str) -> Result:
    names = {
        "--model.backbone": type(trials.subject.model.backbone).__name__,
        "--optimizer": type(trials.subject.prepared.built.optimizer).__name__,
    }
    fix = " or ".join(f"{key} (now {name})" for key, name in names.items()) + ": one that trains every layer"
    return Result("trained layers", problem, Finding(problem, cause, fix))


def check_warmup(trials: Trials) -> Result:
    """Do post-norm blocks get a warm-up?"""
    subject, plan = trials.subject, trials.plan
    num_post_norm = sum(map(_is_post_norm, subject.model.modules()))
    measured = f"warm-up of {plan.warmup_steps:,} of {subject.num_steps:,} steps, {num_post_norm} post-norm blocks"
    wanted = min(ENOUGH_WARMUP, math.ceil(WARMUP_SHARE * subject.num_steps))
    if not num_post_norm or plan.warmup_steps >= wanted:
        return Result("warm-up", measured)
    cause = "with post-norm the first gradients of the last layers are large, and full steps do lasting harm"
    steps = max(2, wanted, min(4000, subject.num_steps // 25))  # 4 %, as Vaswani et al. 2017
    key = key_of_type(subject.config, "PostNormBlock") or "model.backbone.block"
    return Result(
        "warm-up", measured, Finding(measured, cause, f"--schedule.warmup_steps {steps}, or --{key} PreNormBlock")
    )


def _is_post_norm(module: nn.Module) -> bool:
    if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        return not module.norm_first
    return isinstance(module, PostNormBlock)


def check_learning_rate(trials: Trials) -> Result:
    """Is an update small beside the weights, and can a handful of examples be learned at this rate?"""
    if not trials.num_steps:
        return not_applicable("learning rate", TOO_LARGE)
    ratios = trials.update_ratios
    shown = " and ".join(f"{100 * ratio:.1f} % (learning rate {rate:g})" for rate, ratio in ratios)
    measured = f"an update changes the weights by {shown}" if ratios else "nothing to compare an update with"
    wild = [(rate, rate * HEALTHY_RATIO / ratio) for rate, ratio in ratios if not ratio <= MAX_RATIO]
    if wild:
        cause = "the learning rate is too high: an update replaces the weights"
        return Result("learning rate", measured, Finding(measured, cause, _rate_keys(trials, dict(wild))))
    if trials.is_timid:
        largest = max(ratio for _, ratio in ratios)
        factor = min(HIGHER, HEALTHY_RATIO / largest)
        problem = f"{measured}, and {trials.subject.num_steps:,} steps are planned"
        cause = "the learning rate is too low: the weights stay near their initial values"
        keys = _rate_keys(trials, {rate: rate * factor for rate, _ in ratios})
        return Result("learning rate", measured, Finding(problem, cause, keys))
    overfit = trials.overfit
    if overfit is not None and overfit.factor not in (None, 1.0, 10.0):
        assert overfit.factor is not None
        high = overfit.factor < 1
        problem = f"a handful of examples is learned at {overfit.factor:g} times the learning rate, and not at it"
        cause = f"the learning rate is too {'high' if high else 'low'}"
        new = {rate: rate * overfit.factor for rate, _ in ratios}
        return Result("learning rate", f"{measured}; {problem}", Finding(problem, cause, _rate_keys(trials, new)))
    return Result("learning rate", measured)


def _rate_keys(trials: Trials, new: dict[float, float]) -> str:
    """Keys of the configuration with new learning rates. new: the new rate by the present one."""
    keys = {
        key: value
        for key, rate in rates_in(trials.subject.config["optimizer"])
        for old, value in new.items()
        if math.isclose(rate, old, rel_tol=1e-6)
    }
    keys = keys or {"optimizer.lr": max(new.values())}  # a schedule that sets its own, such as OneCycleLR
    return ", ".join(f"--{key} {value:.1g}" for key, value in keys.items())


def check_overfitting(trials: Trials) -> Result:
    """Can a handful of examples be overfitted?"""
    overfit = trials.overfit
    if overfit is None:
        return not_applicable("overfitting", TOO_LARGE)
    number = len(trials.subject.handful[0])
    if overfit.guess <= 1e-6:
        return not_applicable("overfitting", f"{number} examples have the same target")
    lowest = min(overfit.losses.values())
    measured = f"{number} examples: the loss falls from {overfit.guess:.3g} (guessing) to {lowest:.3g}"
    if overfit.factor is not None:
        return Result(
            "overfitting", measured if overfit.factor == 1 else f"{measured}, at {overfit.factor:g} x the rate"
        )
    if trials.is_timid:
        return Result("overfitting", f"{measured}; the learning rate explains it")
    problem = f"{number} examples cannot be learned: the loss stays at {lowest:.3g}, guessing gives {overfit.guess:.3g}"
    cause = "inputs do not reach the prediction, targets contradict each other, or the model is too small"
    fix = "findings above first; then --tokenizer, --model.objective, --model.backbone.dim or depth"
    return Result("overfitting", problem, Finding(problem, cause, fix))


def check_gradients(trials: Trials) -> Result:
    """Are the gradients of all layers of a healthy size?"""
    if not trials.num_steps:
        return not_applicable("gradients", TOO_LARGE)
    short = trials.short
    norm = statistics.median(short.norms)
    measured = f"median norm {norm:.2g} over {len(short.norms)} steps"
    if not all(map(math.isfinite, short.norms)) or norm > EXPLODING_NORM:
        first = max(short.gradients[0], key=short.gradients[0].__getitem__)
        problem = f"{measured}; {first} has the largest"
        cause = "gradients explode" if trials.clip is None else "gradients explode, and clipping hides how far"
        return Result("gradients", problem, Finding(problem, cause, _calmer(trials)))
    by_step = [set(vanishing_layers(norms)) for norms in short.gradients]
    vanished = sorted(set.intersection(*by_step)) if by_step else []
    if vanished:
        largest = max(short.gradients[-1].values())
        least = min(short.gradients[-1][layer] for layer in vanished)
        problem = f"the gradient of {listed(vanished)} has norm {least:.1g}, elsewhere up to {largest:.1g}"
        cause = "gradients vanish on their way through the layers, which are hardly trained"
        fix = "smaller --model.backbone.depth"
        if not any(isinstance(module, PreNormBlock) for module in trials.subject.model.modules()):
            fix = f"--model.backbone.block PreNormBlock (residual connections, norms first), {fix}"
        return Result("gradients", problem, Finding(problem, cause, fix))
    return Result("gradients", measured)


def check_attention(trials: Trials) -> Result:
    """Does attention choose among several keys?"""
    start = trials.entropy_at_start
    if not start:
        return not_applicable("attention", "there are no attention weights")
    heads = torch.cat([one.entropy for one in start])
    measured = f"entropy at the start {float(heads.min()):.2f} to {float(heads.max()):.2f} of the largest possible"
    collapsed = collapsed_layers(start, COLLAPSED_AT_START)
    after: list[HeadEntropy] = []
    if not collapsed and trials.num_steps and trials.short.is_finite:
        after = attention_entropy(trials.subject, trials.short.model)
        heads = torch.cat([one.entropy for one in after])
        steps = len(trials.short.losses)
        measured += f", {float(heads.min()):.2f} to {float(heads.max()):.2f} after {steps} steps"
        collapsed = collapsed_layers(after, COLLAPSED)
        if collapsed and trials.is_wild:
            return Result("attention", f"{measured}; the learning rate explains it")
    if collapsed:
        cause = "scores are so large that each query attends to a single key and gets no gradient"
        return Result("attention", measured, _scale_finding(trials, f"{listed(collapsed)}: {measured}", cause))
    indifferent = [name for name in indifferent_layers(start) if name in indifferent_layers(after or start)]
    if indifferent:
        cause = "scores are so small that attention is a plain mean and gets no gradient"
        largest = max(float(one.divergence.max()) for one in start if one.name in indifferent)
        problem = f"{listed(indifferent)}: the weights differ by {largest:.0e} from a plain mean"
        return Result("attention", measured, _scale_finding(trials, problem, cause))
    return Result("attention", measured)


def _scale_finding(trials: Trials, problem: str, cause: str) -> Finding:
    keys = [(key, value) for key, value in keys_named(trials.subject.config["model"], "temperature", "model")]
    wrong = [(key, value) for key, value in keys if value is not None]
    fix = ", ".join(f"--{key} null (now {value:g}): the square root of a head's width" for key, value in wrong)
    norm = next(
        (key for key, value in keys_named(trials.subject.config["model"], "qk_norm", "model") if not value), None
    )
    own = f"--{norm} LayerNorm bounds the scores" if norm else "--model.backbone Transformer: smaller initial weights"
    return Finding(problem, cause, fix or own)


def _calmer(trials: Trials) -> str:
    """Keys that make the first steps smaller, without those that are set already."""
    rates = [f"--{key} {rate / 3:.1g}" for key, rate in rates_in(trials.subject.config["optimizer"])]
    clip = ["--trainer.gradient_clip_val 1.0"] if trials.clip is None else []
    warmup = ["--schedule.warmup_steps 100"] if trials.plan.warmup_steps < 90 else []
    return ", ".join([*clip, *warmup, *rates])


def check_stability(trials: Trials) -> Result:
    """Does the loss fall in the first steps, without spikes?"""
    if not trials.num_steps:
        return not_applicable("stability", TOO_LARGE)
    subject, losses = trials.subject, trials.short.losses
    last = range(len(losses) - max(1, len(losses) // 5), len(losses))
    first = [evaluate(subject, subject.model, {i: subject.batches[i]}) for i in last]  # on the same batches
    start, end = statistics.median(first), statistics.median(losses[i] for i in last)
    rise = statistics.median(losses[i] - before for i, before in zip(last, first))
    spikes = loss_spikes(losses)
    measured = f"loss of {start:.3g} becomes {end:.3g} in {len(losses)} steps, {len(spikes)} spikes"
    problem, cause = "", "training diverges"
    if not trials.short.is_finite:
        problem = f"loss or gradient is not finite in step {len(losses) - 1}"
    elif rise > (WORSE - 1) * abs(start):
        problem = f"the loss rises from {start:.3g} to {end:.3g} in {len(losses)} steps"
    elif len(spikes) >= MANY_SPIKES:
        before = statistics.median(losses[: spikes[0]])
        problem = f"the loss jumps {len(spikes)} times, first in step {spikes[0]}, "
        problem += f"from {before:.3g} to {losses[spikes[0]]:.3g}"
        cause = "training is unstable"
    if problem and trials.is_wild:
        return Result("stability", f"{problem}; the learning rate explains it")
    return Result("stability", measured, Finding(problem, cause, _calmer(trials)) if problem else None)
