"""The mean of a metric over random splits of one data set, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple


class Repeated(NamedTuple):
    """Mean, standard deviation between splits, and the 95 % interval of the mean."""

    mean: float
    sd: float
    low: float
    high: float


def repeated(values: Sequence[float], num_train: float, num_test: float) -> Repeated:
    """Values of one metric, each on a random split with so many training and test examples.

    The corrected interval of Nadeau and Bengio (2003), "Inference for the generalization error", section 5.2: splits
    share most of their training examples, so their values vary less than those of new data would. The variance of the
    mean is (1/J + num_test / num_train) S² in place of S² / J, with a t distribution of J - 1 degrees of freedom.
    A value that is not finite makes all four nan. Raises ValueError for fewer than two values.
    """
    if len(values) < 2:
        raise ValueError(f"{len(values)} values have no interval; give two or more")
    if not all(map(math.isfinite, values)):
        return Repeated(math.nan, math.nan, math.nan, math.nan)
    from scipy.stats import t

    mean, sd = fmean(values), stdev(values)
    reach = float(t.ppf(0.975, len(values) - 1)) * sd * math.sqrt(1 / len(values) + num_test / num_train)
    return Repeated(mean, sd, mean - reach, mean + reach)
