"""Costs of a model that `seqkit.analysis.speed` measures, as plain data; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Measured cost of a model in training, in seconds and bytes; medians.

    tokens_per_second: real tokens of training. step_seconds: time of a training step, without loading its batch.
    seconds_by_length, memory_by_length: (n, value) of a training step on one example of n tokens: its time, and its
    peak of memory with weights, gradients, optimizer and activations. A length that the model refuses is left out;
    None: the tokens have an adjacency, and no graph of n tokens is typical of the data.
    latency_by_context: (n, time per generated token by the cache) of the last tokens that fill a context of n, from 3;
    None: the model does not generate, or has no cache.
    """

    tokens_per_second: float
    step_seconds: float
    seconds_by_length: list[tuple[float, float]] | None = None
    latency_by_context: list[tuple[float, float]] | None = None
    memory_by_length: list[tuple[float, float]] | None = None
