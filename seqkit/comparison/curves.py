"""Candidates by the length of their training: where two of them cross, and how much more training one needs.

Each point is a whole training with a schedule of its own. Between two points the metric is linear in the logarithm of
the steps, for every seed and example, so an interval there is that of the same crossed random effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from seqkit.comparison.statistics import Scores, interval_of
from seqkit.comparison.types import Metric
from seqkit.report.numbers import count, times

GRID = 201
"""Lengths between the shortest and the longest at which two candidates are set against each other."""


class Point(NamedTuple):
    """Scores after so many optimizer steps."""

    steps: int
    scores: Scores


class Curve:
    """Points of a candidate, the shortest first, with the seeds and test examples that all of them have.

    costs: what a step takes, by unit (FLOPs, seconds), where it is known.
    """

    def __init__(self, name: str, points: Sequence[Point], metric: Metric, costs: Mapping[str, float]):
        self.name, self.costs = name, costs
        ordered = sorted(points, key=lambda point: point.steps)
        self.steps = [point.steps for point in ordered]
        self.seeds = [s for s in ordered[-1].scores.seeds if all(s in point.scores.seeds for point in ordered)]
        self._linear = [point.scores.only(self.seeds).linear(metric) for point in ordered]
        self._seeds = {seed: row for row, seed in enumerate(self.seeds)}

    def at(self, steps: float, seeds: Sequence[int]) -> np.ndarray:
        """Scores [s u] of these seeds after so many steps, which lie between the first point's and the last's."""
        after = min(max(int(np.searchsorted(self.steps, steps)), 1), len(self.steps) - 1)
        low, high = self.steps[after - 1], self.steps[after]
        share = np.log(steps / low) / np.log(high / low)
        rows = [self._seeds[seed] for seed in seeds]
        found: np.ndarray = (1 - share) * self._linear[after - 1][rows] + share * self._linear[after][rows]
        return found

    @property
    def grid(self) -> np.ndarray:
        """Numbers of steps from the first point to the last."""
        return np.geomspace(self.steps[0], self.steps[-1], GRID)


def exchange_rate(one: Curve, other: Curve, metric: Metric) -> dict[str, Any] | None:
    """How many times the steps the worse of two needs, to be as good as the better.

    The level is what the worse reaches by all its steps; the better reaches it earlier. The interval holds every ratio
    at which the two are not told apart at that level. is_more, low and high: the better is better than the level at its
    shortest training already, so the ratio or its bound is larger than the number; a bound of None is not known, as it
    lies beyond the longest training. None where they have no seed or no examples in common.
    """
    seeds = [seed for seed in one.seeds if seed in other.seeds]
    if not seeds or one.at(one.steps[-1], seeds).shape != other.at(other.steps[-1], seeds).shape:
        return None
    sign = 1 if metric.higher_is_better else -1
    is_ahead = sign * (one.at(one.steps[-1], seeds).mean() - other.at(other.steps[-1], seeds).mean()) > 0
    better, worse = (one, other) if is_ahead else (other, one)
    level, grid = worse.at(worse.steps[-1], seeds), better.grid
    gaps = [sign * (better.at(steps, seeds) - level) for steps in grid]
    reached = next(i for i in range(GRID) if gaps[i].mean() >= 0 or i == GRID - 1)
    intervals = [interval_of(gap) for gap in gaps]
    unsure = [i for i, found in enumerate(intervals) if found is not None and found[0] <= 0 <= found[1]]
    unsure = unsure or [reached]
    ratio = worse.steps[-1] / grid
    shared = [unit for unit in worse.costs if better.costs.get(unit)]
    found = {
        "worse": worse.name,
        "better": better.name,
        "after": worse.steps[-1],
        "level": float(level.mean()),
        "steps": float(ratio[reached]),
        "is_more": reached == 0 and float(gaps[0].mean()) > 0,
        "low": None if unsure[-1] == GRID - 1 else float(ratio[unsure[-1]]),
        "high": None if unsure[0] == 0 else float(ratio[unsure[0]]),
        "by_unit": {unit: worse.costs[unit] / better.costs[unit] for unit in shared},
    }
    return {**found, "text": exchange_sentence(found, metric)}


def exchange_sentence(found: Mapping[str, Any], metric: Metric) -> str:
    """How much more training the worse needs, in steps and, by the costs of a step, in every other unit."""
    low, high, worse, better = found["low"], found["high"], found["worse"], found["better"]
    level, more = f"{metric.number(found['level'])} {metric.unit}".strip(), "more than " if found["is_more"] else ""
    ratio = f"{more}{times(found['steps'])} the steps of {better} to reach {level}"
    reached = f"the mean of {worse} after {count(found['after'])} steps"
    if low is None:
        end = "any ratio is possible" if high is None else f"95 % confidence interval below 1 to {times(high)}"
        return f"{worse} is not shown to need more training than {better}: it took {ratio}, {reached} ({end})."
    top = "beyond these lengths" if high is None else times(high)
    units = [f"{more}{times(found['steps'] * factor)} the {unit}" for unit, factor in found["by_unit"].items()]
    also = f" This is {' and '.join(units)}." if units else ""
    return f"{worse} needs {ratio}, {reached} (95 % confidence interval {times(low)} to {top}).{also}"


def crossover_sentence(found: Mapping[str, Any], shortest: int, longest: int) -> str:
    """Where two candidates change places, between the shortest and the longest training."""
    low, high = map(count, found["interval"])
    return (
        f"{found['first']} is better after {count(shortest)} steps, and {found['then']} after {count(longest)}. They "
        f"cross at {count(found['steps'])} steps (95 % confidence interval {low} to {high})."
    )


def crossovers(curves: Sequence[Curve], metric: Metric) -> list[dict[str, Any]]:
    """Pairs of which one is better after the shortest training and the other after the longest.

    Only where both are told apart at their end (each interval at 95 %, not corrected for the number of pairs). The
    interval holds every length at which the two are not told apart. Lengths are those that both have.
    """
    found = []
    for one, other in combinations(curves, 2):
        seeds = [seed for seed in one.seeds if seed in other.seeds]
        if (
            not seeds
            or one.steps != other.steps
            or one.at(one.steps[0], seeds).shape != other.at(one.steps[0], seeds).shape
        ):
            continue
        gaps = [one.at(steps, seeds) - other.at(steps, seeds) for steps in one.grid]
        intervals = [interval_of(gap) for gap in gaps]
        signs = [0 if i is None or i[0] <= 0 <= i[1] else 1 if i[0] > 0 else -1 for i in intervals]
        if signs[0] * signs[-1] != -1:
            continue
        unsure = [i for i, sign in enumerate(signs) if sign != signs[0]]
        place = next(i for i in unsure if gaps[i].mean() * signs[0] <= 0)
        last = max(i for i, sign in enumerate(signs) if sign != signs[-1])
        first = one.name if (signs[0] > 0) == metric.higher_is_better else other.name
        then = other.name if first == one.name else one.name
        steps, low, high = (float(one.grid[i]) for i in (place, unsure[0], last))
        crossing = {"first": first, "then": then, "steps": steps, "interval": [low, high]}
        found.append({**crossing, "text": crossover_sentence(crossing, one.steps[0], one.steps[-1])})
    return found
