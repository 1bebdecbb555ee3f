"""Checks of a run: its learning curve and its weights."""

from __future__ import annotations

import math

import torch

from seqkit.doctor.findings import Result, faulty, first_few, not_applicable
from seqkit.doctor.subject import Subject
from seqkit.training import metrics_csv
from seqkit.training.health import loss_spikes


def check_curve(subject: Subject) -> Result:
    """Did the training loss fall, without spikes?"""
    assert subject.run is not None
    rows = metrics_csv.read(subject.run / metrics_csv.NAME)
    points = [(int(row["step"]), row["train/loss"]) for row in rows if "train/loss" in row]
    if len(points) < 2:
        return not_applicable("metrics.csv has fewer than two training losses")
    steps, losses = zip(*points)
    spikes = loss_spikes(losses)
    measured = f"training loss {losses[0]:.3g} to {losses[-1]:.3g} in {steps[-1] + 1:,} steps, {len(spikes)} spikes"
    if not spikes:
        return Result(measured)
    problem = f"the training loss jumps in {len(spikes)} places, first in step {steps[spikes[0]]:,}"
    if not math.isfinite(losses[spikes[0]]):
        problem = f"the training loss is not finite in step {steps[spikes[0]]:,}"
    fix = "--trainer.gradient_clip_val 1.0, more --schedule.warmup_steps, a lower --optimizer.lr"
    return faulty(problem, "training is unstable", fix)


def check_trained_weights(subject: Subject) -> Result:
    """Are the trained weights finite?"""
    if subject.trained is None:
        return not_applicable("the run did not train to its end")
    named = subject.trained.model.named_parameters()
    if bad := [name for name, p in named if not bool(torch.isfinite(p).all())]:
        return faulty(
            f"{first_few(bad)} are not finite",
            "training diverged",
            "a lower --optimizer.lr",
        )
    return Result("finite")
