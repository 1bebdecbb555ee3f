"""Expected duration of a comparison, from a few training steps of each candidate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from seqkit.comparison.candidates import Candidate, naming
from seqkit.comparison.plan import Plan
from seqkit.config import build
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
    """Steps of a whole run, and wall time of a training step and of the test split."""

    num_steps: int
    step_seconds: float
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
    tests = data.test_dataloader()
    model.eval()
    started = time.perf_counter()
    with torch.inference_mode():
        for batch in islice(tests, 1):
            objective.predict(model, batch[0])
    test = (time.perf_counter() - started) * len(tests) * 2  # once for the metrics, once for the scores
    return Estimate(count_steps(config["trainer"], len(loader)), min(times), test)


def minutes(plan: Plan, estimates: Mapping[str, Estimate], done: Mapping[str, Mapping[str, Any]], jobs: int) -> float:
    """Minutes until all cells have ended, those in `done` (results by id) left out."""
    seconds, measuring = 0.0, 0.0
    for step in plan.steps(done).values():
        if step.id in done:
            continue
        if step.kind == "measure":
            measuring = MEASURE_SECONDS * sum(candidate.of is None for candidate in plan.candidates.values())
            continue
        own = estimates[step.candidate]
        share = plan.settings.trial_share if step.kind == "trial" else step.share
        seconds += own.num_steps * own.step_seconds * share + own.test_seconds + RUN_SECONDS
    start = START_SECONDS if seconds or measuring else 0.0
    return (start + seconds / jobs + measuring) / 60
