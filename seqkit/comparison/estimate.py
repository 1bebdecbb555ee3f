"""How long a comparison will take, from a few training steps of each candidate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from seqkit.comparison.candidates import Candidate
from seqkit.comparison.settings import Settings
from seqkit.config import build
from seqkit.errors import UsageError
from seqkit.runs.run import untrained
from seqkit.training.trainer import count_steps

TIMED_STEPS = 2
START_SECONDS = 6.0
"""What a worker process takes to import everything."""
MEASURE_SECONDS = 8.0
"""What measuring costs a candidate, beside the rounds of training."""


@dataclass(frozen=True)
class Estimate:
    """num_steps: of a whole run. step_seconds, test_seconds: of a training step, and of the test split (wall time)."""

    num_steps: int
    step_seconds: float
    test_seconds: float


def estimate(candidates: Sequence[Candidate]) -> dict[str, Estimate]:
    """Steps and seconds of each candidate, the pretrained ones as those that they come from. Trains for two steps.

    Raises UsageError where one cannot take a step, with what to change.
    """
    found: dict[str, Estimate] = {}
    for candidate in candidates:
        try:
            found[candidate.name] = found[candidate.of] if candidate.of else _estimate(candidate.config)
        except ValueError as error:
            raise UsageError(f"{candidate.name}: {error}") from error
    return found


def _estimate(config: Mapping[str, Any]) -> Estimate:
    torch.manual_seed(config["seed"])
    model, data = untrained(config)
    loader, objective = data.train_dataloader(), data.objective
    optimizer = build(config).optimizer.build(model)
    times = []
    model.train()
    for batch in islice(loader, TIMED_STEPS + 1):
        started = time.perf_counter()
        inputs = objective.prepare(*batch)
        output = objective.loss(model(inputs.batch, inputs.masked), inputs.target, training=True)
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


def minutes(settings: Settings, estimates: Mapping[str, Estimate], done: Sequence[str], jobs: int) -> float:
    """Minutes until all cells have ended, those in `done` (their ids) left out."""
    from seqkit.comparison.plan import slug_of

    total = 0.0
    for name, own in estimates.items():
        whole = own.num_steps * own.step_seconds
        trials = settings.lr_trials + settings.dropout_trials
        ended = [key for key in done if key.startswith(f"{slug_of(name)}/")]
        num_trials = trials - sum("/seed-" not in key and "/pretrain-" not in key for key in ended)
        num_runs = settings.seeds - sum("/seed-" in key for key in ended)
        total += num_trials * (whole * settings.trial_share + own.test_seconds / 4)
        total += num_runs * (whole + own.test_seconds)
        if " pretraining" in name:
            total += (settings.seeds - sum("/pretrain-" in key for key in ended)) * (whole + own.test_seconds)
    measuring = len(estimates) * MEASURE_SECONDS if settings.measure and "measure" not in done else 0.0
    return (START_SECONDS + total / jobs + measuring) / 60
