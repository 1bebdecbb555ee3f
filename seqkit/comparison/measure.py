"""What training and generating cost each candidate, measured side by side on the same batches."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

NUM_BATCHES = 4
"""Training batches on which every candidate is timed."""

LENGTHS = (16, 32, 64, 128, 256)
"""Tokens at which time, memory and latency are measured, as long as a model takes them."""

SECONDS_EACH = 3.0
"""Of timed training on real batches, for each candidate."""


def measure_all(configs: Mapping[str, Any], *, seconds_each: float = SECONDS_EACH) -> dict[str, Any]:
    """Costs by candidate, as plain data: what `seqkit.analysis.speed.measure` says of their untrained models.

    configs: a complete configuration for each candidate.
    """
    from seqkit.analysis.speed import measure
    from seqkit.analysis.training_step import Candidate
    from seqkit.config import build
    from seqkit.runs.prepare import untrained

    candidates = {}
    for name, config in configs.items():
        model, data = untrained(config)
        loader = data.train_dataloader()
        candidates[name] = Candidate(
            model,
            data.objective,
            build(config).optimizer,
            list(islice(loader, NUM_BATCHES)),
            loader,
            config["trainer"]["gradient_clip_val"],
        )
    costs = measure(candidates, seconds=seconds_each * len(candidates), lengths=LENGTHS)
    return {
        name: {
            "tokens_per_second": cost.tokens_per_second.median,
            "step_seconds": cost.step_seconds.median,
            "glue_share": cost.shares.glue,
            "seconds_by_length": _medians(cost.seconds_by_length),
            "latency_by_context": _medians(cost.latency_by_context),
            "memory_by_length": [[n, value] for n, value in cost.memory_by_length or ()],
        }
        for name, cost in costs.items()
    }


def _medians(pairs: Any) -> list[list[float]] | None:
    return None if pairs is None else [[n, spread.median] for n, spread in pairs]
