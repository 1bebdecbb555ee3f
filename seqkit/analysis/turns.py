"""Models measured in turn: rounds in which another one begins each time, and the spread over the rounds.

The models take turns, so that a busy machine slows all alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MIN_ROUNDS = 3
"""Rounds that are made however long they take: below that there are no quartiles."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ValueError for no values."""
        if not values:
            raise ValueError("there are no values; a spread needs at least one")
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


def rotated(names: list[str], count: int) -> Iterator[str]:
    """Another candidate begins each round: who comes first finds other caches than who comes last."""
    start = count % len(names)
    yield from names[start:] + names[:start]
