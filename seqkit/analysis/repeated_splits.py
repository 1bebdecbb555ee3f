"""The mean of a metric over random splits of one data set, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

EQUAL = 1e-9
"""Values of splits that differ by less are equal: what is between them is rounding."""


class Repeated(NamedTuple):
    """Mean, standard deviation between splits, and the 95 % interval of the mean (nan: there is none).

    interval_from: what the interval is computed from, `splits` or the test `examples` of one; None: no interval.
    """

    mean: float
    sd: float
    low: float
    high: float
    interval_from: str | None = "splits"


def repeated(
    values: Sequence[float], num_train: float, num_test: float, *, proportion: bool = False
) -> Repeated:
    """Values of one metric, each on a random split with so many training and test examples.

    The corrected interval of Nadeau and Bengio (2003), "Inference for the generalization error", section 5.2: splits
    share most of their training examples, so the variance of the mean is (1/J + num_test / num_train) S² in place of
    S² / J, with a t distribution of J - 1 degrees of freedom. Equal values have no variance to go by: the interval of a
    proportion is then that of one split's test examples (Clopper and Pearson 1934); any other metric has none.
    A value that is not finite makes all four nan. Raises ValueError for fewer than two values.
    """
    from scipy import stats

    if len(values) < 2:
        raise ValueError(f"{len(values)} values have no interval; give two or more")
    if not all(map(math.isfinite, values)):
        return Repeated(math.nan, math.nan, math.nan, math.nan, None)
    mean = fmean(values)
    sd = stdev(values)
    if max(values) - min(values) >= EQUAL:
        half = (
            float(stats.t.ppf(0.975, len(values) - 1))
            * sd
            * math.sqrt(1 / len(values) + num_test / num_train)
        )
        return Repeated(mean, sd, mean - half, mean + half)
    # the only example of a graph file is the graph, and one example has no interval
    if not proportion or num_test < 2:
        return Repeated(mean, sd, math.nan, math.nan, None)
    found = stats.binomtest(round(mean * num_test), round(num_test)).proportion_ci()
    return Repeated(mean, sd, float(found.low), float(found.high), "examples")
