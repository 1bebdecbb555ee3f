"""How much better or worse a run is than other predictions for the same test examples."""

from __future__ import annotations

import math
from typing import Any, cast

from torch import Tensor

from seqkit.comparison.scores import metric_of, score_of
from seqkit.comparison.statistics import Scores, differences
from seqkit.data.module import DataModule
from seqkit.interfaces import IGNORE


def difference(data: DataModule, run: Tensor, other: Tensor, target: Tensor) -> list[float] | None:
    """The run's main metric less another's, and the ends of its 95 % interval; None for a metric that is no mean.

    run, other: predictions [m k] for all test examples, or nodes, in their order; target: theirs. It is paired by test
    example, or by group of them, as in a comparison.
    """
    objective = cast(Any, data.objective)
    metric = metric_of(objective)
    if metric.name != objective.primary_metric:
        return None
    if not target.is_floating_point() and target.ndim == 1:  # nodes of other splits are unknown
        known = target != IGNORE
        run, other, target = (rows[known] for rows in (run, other, target))
    scores = {}
    for name, rows in {"run": run, "other": other}.items():
        outputs = (objective.loss(rows[i : i + 1], target[i : i + 1]) for i in range(len(target)))
        numerator, denominator = zip(*(score_of(metric, output) for output in outputs))
        scores[name] = Scores.of([(0, numerator, denominator)], data.test_groups())
    (one,) = differences(scores, metric)
    found = [one.difference, *(one.interval or (math.nan, math.nan))]
    return found if math.isfinite(sum(found)) else None
