"""Checks of a run: its learning curve, its result, and the attention of its trained weights."""

from __future__ import annotations

import math

import torch

from seqkit.doctor.findings import Finding, Result, listed, not_applicable
from seqkit.doctor.subject import Subject
from seqkit.doctor.trials import attention_entropy
from seqkit.training import metrics_csv
from seqkit.training.health import collapsed_layers, loss_spikes


def check_curve(subject: Subject) -> Result:
    """Did the training loss fall, without spikes?"""
    assert subject.run is not None
    rows = metrics_csv.read(subject.run / metrics_csv.NAME)
    steps = [int(row["step"]) for row in rows if "train/loss" in row]
    losses = [row["train/loss"] for row in rows if "train/loss" in row]
    if len(losses) < 2:
        return not_applicable("learning curve", "metrics.csv has fewer than two training losses")
    spikes = loss_spikes(losses)
    measured = f"training loss {losses[0]:.3g} to {losses[-1]:.3g} in {steps[-1] + 1:,} steps, {len(spikes)} spikes"
    fix = "--trainer.gradient_clip_val 1.0, more --schedule.warmup_steps, a lower --optimizer.lr"
    if not all(map(math.isfinite, losses)):
        step = next(step for step, loss in zip(steps, losses) if not math.isfinite(loss))
        problem = f"the training loss is not finite in step {step:,}"
        return Result("learning curve", problem, Finding(problem, "training diverged", fix))
    if spikes:
        problem = f"the training loss jumps in {len(spikes)} places, first in step {steps[spikes[0]]:,}"
        return Result("learning curve", measured, Finding(problem, "training is unstable", fix))
    return Result("learning curve", measured)


def check_result(subject: Subject) -> Result:
    """Is the trained model better than the best constant prediction?"""
    assert subject.run is not None
    if subject.trained is None:
        return not_applicable("result", "the run did not train to its end")
    summary = subject.trained.summary
    loss, guess = summary["metrics"].get("loss"), summary.get("baseline", {}).get("loss")
    if loss is None or guess is None:
        return not_applicable("result", "the run was not tested")
    measured = f"test loss {loss:.3g}, the best constant prediction's {guess:.3g}"
    if loss < guess:
        return Result("result", measured)
    problem = f"the trained model is no better than guessing: {measured}"
    cause = "it was trained for too few steps, or does not generalise beyond its training data"
    return Result("result", measured, Finding(problem, cause, "more --trainer.max_epochs; then the findings above"))


def check_trained_weights(subject: Subject) -> Result:
    """Are the trained weights finite, and does attention spread over more than one key?"""
    if subject.trained is None:
        return not_applicable("trained weights", "the run did not train to its end")
    model = subject.trained.model
    bad = [name for name, p in model.named_parameters() if not bool(torch.isfinite(p).all())]
    if bad:
        problem = f"{listed(bad)} are not finite"
        return Result("trained weights", problem, Finding(problem, "training diverged", "a lower --optimizer.lr"))
    heads = attention_entropy(subject, model)
    if not heads:
        return Result("trained weights", "finite; there are no attention weights")
    entropy = torch.cat([one.entropy for one in heads])
    measured = (
        f"finite; attention entropy {float(entropy.min()):.2f} to {float(entropy.max()):.2f} of the largest possible"
    )
    if len(collapsed_layers(heads)) < len(heads):
        return Result("trained weights", measured)
    cause = "attention has collapsed: every head of every layer attends to a single key"
    fix = "--model.backbone.block.attention.qk_norm LayerNorm, --model.backbone.dropout 0.1, a lower --optimizer.lr"
    return Result("trained weights", measured, Finding(measured, cause, fix))
