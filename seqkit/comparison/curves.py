"""Candidates by the length of their training: where two of them cross, and how much more training one needs.

Each point is a whole training with a schedule of its own. Between two points the metric is linear in the logarithm of
the steps, for every seed and example, so an interval there is that of the same crossed random effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from seqkit.comparison.statistics import Scores, interval_of
from seqkit.comparison.types import Crossover, ExchangeRate, Metric

GRID = 201
"""Lengths between the shortest and the longest at which two candidates are set against each other."""


class Curve:
    """Points of a candidate, by steps, with the seeds and test examples that all of them have.

    costs: what a step takes, by unit (FLOPs, time), where it is known.
    """

    def __init__(self, name: str, points: Mapping[int, Scores], metric: Metric, costs: Mapping[str, float]):
        self.name, self.costs, self.steps = name, costs, sorted(points)
        self.seeds = [s for s in points[self.steps[-1]].seeds if all(s in points[n].seeds for n in self.steps)]
        self._linear = [points[n].only(self.seeds).linear(metric) for n in self.steps]

    def at(self, steps: float, seeds: Sequence[int]) -> np.ndarray:
        """Scores [s u] of these seeds after so many steps, which lie between the first point's and the last's."""
        after = min(max(int(np.searchsorted(self.steps, steps)), 1), len(self.steps) - 1)
        low, high = self.steps[after - 1], self.steps[after]
        share = np.log(steps / low) / np.log(high / low)
        rows = [self.seeds.index(seed) for seed in seeds]
        found: np.ndarray = (1 - share) * self._linear[after - 1][rows] + share * self._linear[after][rows]
        return found

    @property
    def grid(self) -> np.ndarray:
        """Numbers of steps from the first point to the last."""
        return np.geomspace(self.steps[0], self.steps[-1], GRID)


def _shared_seeds(one: Curve, other: Curve) -> list[int]:
    """Seeds of both, if they have the same number of units; else none."""
    seeds = [seed for seed in one.seeds if seed in other.seeds]
    same = bool(seeds) and one.at(one.steps[-1], seeds).shape == other.at(other.steps[-1], seeds).shape
    return seeds if same else []


def exchange_rate(one: Curve, other: Curve, metric: Metric) -> ExchangeRate | None:
    """How many times the steps the worse of two needs, to be as good as the better.

    The level is what the worse reaches by all its steps; the better reaches it earlier. The interval holds every ratio
    at which the two are not told apart at that level. None where they have no seed or no examples in common.
    """
    if not (seeds := _shared_seeds(one, other)):
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
    return ExchangeRate(
        worse=worse.name,
        better=better.name,
        after=worse.steps[-1],
        level=float(level.mean()),
        steps=float(ratio[reached]),
        is_more=reached == 0 and float(gaps[0].mean()) > 0,
        low=None if unsure[-1] == GRID - 1 else float(ratio[unsure[-1]]),
        high=None if unsure[0] == 0 else float(ratio[unsure[0]]),
        by_unit={unit: cost / better.costs[unit] for unit, cost in worse.costs.items() if better.costs.get(unit)},
    )


def crossovers(curves: Sequence[Curve], metric: Metric) -> list[Crossover]:
    """Pairs of which one is better after the shortest training and the other after the longest.

    Only where both are told apart at their end (each interval at 95 %, not corrected for the number of pairs). The
    interval holds every length at which the two are not told apart.
    """
    found = []
    for one, other in combinations(curves, 2):
        seeds = _shared_seeds(one, other)
        if not seeds or one.steps != other.steps:
            continue
        gaps = [one.at(steps, seeds) - other.at(steps, seeds) for steps in one.grid]
        intervals = [interval_of(gap) for gap in gaps]
        signs = [0 if i is None or i[0] <= 0 <= i[1] else 1 if i[0] > 0 else -1 for i in intervals]
        if signs[0] * signs[-1] != -1:
            continue
        unsure = [i for i, sign in enumerate(signs) if sign != signs[0]]
        place = next(i for i in unsure if gaps[i].mean() * signs[0] <= 0)
        last = max(i for i, sign in enumerate(signs) if sign != signs[-1])
        names = (one.name, other.name) if (signs[0] > 0) == metric.higher_is_better else (other.name, one.name)
        steps, low, high = (float(one.grid[i]) for i in (place, unsure[0], last))
        ends = {"shortest": one.steps[0], "longest": one.steps[-1]}
        found.append(Crossover(first=names[0], then=names[1], steps=steps, interval=(low, high), **ends))
    return found
