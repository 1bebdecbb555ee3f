"""Intervals of a run's main metric, and how much better or worse it is than other predictions for the same examples."""

from __future__ import annotations

import math
from typing import Any, cast

from torch import Tensor

from seqkit.comparison.scores import metric_of, scores_of
from seqkit.comparison.statistics import Scores, differences, spread
from seqkit.data.module import DataModule
from seqkit.interfaces import IGNORE


class Scored:
    """A run's predictions for all test examples, or nodes, scored one by one.

    A metric that is no mean over examples has no intervals, nor has one that means another thing for a user's objective
    than for ours. Examples of a group count as one, as in a comparison.
    run: predictions [m k] in the order of the split. target: theirs. value: the run's main metric on the split.
    """

    def __init__(self, data: DataModule, run: Tensor, target: Tensor, value: float):
        self.objective = cast(Any, data.objective)
        self.groups = data.test_groups()
        self.metric = metric_of(self.objective)
        self.known: slice | Tensor = slice(None)
        if not target.is_floating_point() and target.ndim == 1:  # nodes of other splits are unknown
            self.known = target != IGNORE
        self.target = target[self.known]
        self.run: Scores | None = None
        if self.metric.name == self.objective.primary_metric and self.objective.separable:
            scores = self._scores(run)
            (again,) = scores.values(self.metric).tolist()
            if math.isclose(again, value, rel_tol=1e-3, abs_tol=1e-6):
                self.run = scores

    def interval(self) -> tuple[float, float] | None:
        """Ends of the 95 % interval of the run's main metric, that of an RMSE not below 0; None: it has none."""
        if self.run is None:
            return None
        _, _, found = spread(self.run, self.metric)
        if found is None or not math.isfinite(sum(found)):
            return None
        low, high = found
        return max(low, 0.0) if self.metric.root else low, high

    def difference(self, other: Tensor) -> list[float] | None:
        """The run's main metric less that of other predictions [m k], and the ends of its 95 % interval; None: it has
        none. It is paired by test example, or by group of them.
        """
        if self.run is None:
            return None
        (one,) = differences({"run": self.run, "other": self._scores(other)}, self.metric)
        found = [one.difference, *(one.interval or (math.nan, math.nan))]
        return found if math.isfinite(sum(found)) else None

    def _scores(self, predictions: Tensor) -> Scores:
        each = scores_of(self.metric, self.objective, predictions[self.known], self.target)
        numerator, denominator = zip(*each)
        return Scores.of([(0, numerator, denominator)], self.groups)
