"""A classical method beside a run, and how much better or worse the run is on the same test examples."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch

from seqkit.classical.strong_baseline import strong_baseline
from seqkit.comparison.scores import metric_of, score_of
from seqkit.comparison.statistics import Scores, differences
from seqkit.data.module import DataModule
from seqkit.interfaces import IGNORE
from seqkit.runs.evaluate import Tested


def beside(data: DataModule, tested: Tested) -> dict[str, Any] | None:
    """The strong baseline, with `difference`: the model's main metric less the method's, and its 95 % interval.

    It is paired by test example, or by group of them, as in a comparison; metrics that are no mean have none.
    """
    baseline = strong_baseline(data)
    if baseline is None:
        return None
    found = baseline.record
    method = baseline.test
    objective = cast(Any, data.objective)
    scores = {}
    metric = metric_of(objective)
    if method is None or not tested or metric.name != objective.primary_metric:
        return found
    order = np.argsort([i for batch in data.test_dataloader().batch_indices() for i in batch])
    model, target = (torch.cat(column)[order] for column in zip(*tested))
    if model.ndim == 3:  # nodes of one graph, of which a part is of the test split
        is_tested = target[0] != IGNORE
        model = model[0][is_tested]
        method = method[is_tested]
        target = target[0][is_tested]
    for name, rows in {"model": model, "method": method}.items():
        outputs = (objective.loss(rows[i : i + 1], target[i : i + 1]) for i in range(len(target)))
        numerator, denominator = zip(*(score_of(metric, output) for output in outputs))
        scores[name] = Scores.of([(0, numerator, denominator)], data.test_groups())
    (one,) = differences(scores, metric)
    ends = one.interval or (math.nan, math.nan)
    return found | ({"difference": [one.difference, *ends]} if math.isfinite(sum(ends)) else {})
