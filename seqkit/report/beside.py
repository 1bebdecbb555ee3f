"""A classical method beside a run, and how much better or worse the run is on the same test examples."""

from __future__ import annotations

from typing import Any

from seqkit.analysis.strong_baseline import strong_baseline
from seqkit.comparison.scores import metric_of, score_of
from seqkit.comparison.statistics import Scores, differences
from seqkit.data.module import DataModule
from seqkit.runs.evaluate import Tested


def beside(data: DataModule, tested: Tested) -> dict[str, Any] | None:
    """As `strong_baseline`, with `difference`: the model's main metric less the method's, and its 95 % interval.

    The difference is paired by test example, or by group of them; it is left out of metrics that are no mean.
    """
    found, metric = strong_baseline(data, tested), metric_of(data.objective)
    *both, target = (found or {}).pop("paired", [None])
    if target is not None and metric.name == data.objective.primary_metric:
        each = [[data.objective.loss(x[i : i + 1], target[i : i + 1]) for i in range(len(target))] for x in both]
        runs = [(0, *zip(*(score_of(metric, output) for output in outputs))) for outputs in each]
        scores = {name: Scores.of([run], data.test_groups()) for name, run in zip("ab", runs)}
        (one,) = differences(scores, metric)
        found |= {} if one.interval is None else {"difference": [one.difference, *one.interval]}
    return found
