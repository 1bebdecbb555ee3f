"""Expected duration of a comparison, from a few training steps of each candidate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.nn import Module

from seqkit.comparison.candidates import Candidate, naming
from seqkit.comparison.plan import VALIDATIONS, Plan, Step
from seqkit.config import build
from seqkit.data.batching import BatchLoader
from seqkit.interfaces import Objective
from seqkit.runs.prepare import untrained
from seqkit.training.trainer import count_steps

TIMED_STEPS = 2
START_SECONDS = 6.0
"""Time in which a worker process imports everything."""
MEASURE_SECONDS = 8.0
"""Time in which a candidate is measured."""
RUN_SECONDS = 1.5
"""Time of a run beside its steps: reading data, building, writing its page."""


@dataclass(frozen=True)
class Estimate:
    """Steps of a whole run, and wall time of a training step, of a pass over validation and of the test split."""

    num_steps: int
    step_seconds: float
    valid_seconds: float
    test_seconds: float


def estimate(candidates: Sequence[Candidate]) -> dict[str, Estimate]:
    """Steps and seconds of each candidate, from two training steps; a pretrained one takes as long as its original.

    Raises UsageError where one cannot take a step, with what to change.
    """
    found: dict[str, Estimate] = {}
    for candidate in candidates:
        with naming(candidate.name):
            found[candidate.name] = found[candidate.of] if candidate.of else _estimate(candidate.config)
    return found


def _estimate(config: Mapping[str, Any]) -> Estimate:
    torch.manual_seed(config["seed"])
    model, data = untrained(config)
    loader, objective = data.train_dataloader(), data.objective
    optimizer = build(config).optimizer.build(model)
    times = []
    model.train()
    batches = iter(loader)
    for _ in range(min(TIMED_STEPS + 1, len(loader))):
        started = time.perf_counter()
        output = objective.step(model, next(batches), training=True)
        (output.loss / output.count.clamp(min=1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - started)
    model.eval()
    valid, test = (_pass_seconds(objective, model, some) for some in (data.val_dataloader(), data.test_dataloader()))
    # the test split once for the metrics, once for the scores
    return Estimate(count_steps(config["trainer"], len(loader)), min(times), valid, 2 * test)


def _pass_seconds(objective: Objective, model: Module, loader: BatchLoader | list[Any]) -> float:
    """Wall time of predictions for all batches, from the first one."""
    started = time.perf_counter()
    with torch.inference_mode():
        for batch in islice(loader, 1):
            objective.predict(model, batch[0])
    return (time.perf_counter() - started) * len(loader)


def minutes(plan: Plan, estimates: Mapping[str, Estimate], done: Mapping[str, Mapping[str, Any]], jobs: int) -> float:
    """Minutes until all cells have ended, those in `done` (results by id) left out, at the pace of those."""
    steps = plan.steps(done).values()
    seconds = {step.id: _seconds(plan, estimates, step) for step in steps}
    known = {key: done[key]["seconds"] for key in seconds if "seconds" in done.get(key, {})}
    pace = sum(known.values()) / sum(seconds[key] for key in known) if known else 1.0
    left = [step for step in steps if step.id not in done]
    alone = sum(seconds[step.id] for step in left if step.kind == "measure")
    shared = sum(seconds[step.id] for step in left if step.kind != "measure")
    return (START_SECONDS * bool(left) + pace * (shared / jobs + alone)) / 60


def _seconds(plan: Plan, estimates: Mapping[str, Estimate], step: Step) -> float:
    """Expected wall time of a cell."""
    if step.kind == "measure":
        return MEASURE_SECONDS * sum(candidate.of is None for candidate in plan.candidates.values())
    own = estimates[step.candidate]
    share = plan.settings.trial_share if step.kind == "trial" else step.share
    test = 0.0 if step.kind == "trial" else own.test_seconds
    return own.num_steps * own.step_seconds * share + VALIDATIONS * own.valid_seconds + test + RUN_SECONDS
