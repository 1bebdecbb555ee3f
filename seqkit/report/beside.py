"""A classical method beside a run, and how much better or worse the run is on the same test examples."""

from __future__ import annotations

import math
from typing import Any

from seqkit.analysis.strong_baseline import strong_baseline
from seqkit.comparison.scores import metric_of, score_of
from seqkit.comparison.statistics import Scores, differences
from seqkit.data.module import DataModule
from seqkit.runs.evaluate import Tested


def beside(data: DataModule, tested: Tested) -> dict[str, Any] | None:
    """As `strong_baseline`, with `difference`: the model's main metric less the method's, and its 95 % interval.

    It is paired by test example, or by group of them, as in a comparison; metrics that are no mean have none.
    """
    found, metric = strong_baseline(data, tested), metric_of(data.objective)
    *both, target = (found or {}).pop("paired", [()])
    if found is None or not both or metric.name != data.objective.primary_metric:
        return found
    outputs = ([data.objective.loss(x[i : i + 1], target[i : i + 1]) for i in range(len(target))] for x in both)
    runs = ((0, *zip(*(score_of(metric, output) for output in each))) for each in outputs)
    (one,) = differences({f"{i}": Scores.of([run], data.test_groups()) for i, run in enumerate(runs)}, metric)
    is_known = one.interval is not None and all(map(math.isfinite, one.interval))
    return found | ({"difference": [one.difference, *one.interval]} if is_known else {})
