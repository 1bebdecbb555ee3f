"""The interval of a mean over random splits."""

import math

import numpy as np
import pytest
from scipy import stats

from seqkit.analysis.repeated_splits import repeated

VALUES = [0.81, 0.78, 0.84, 0.8, 0.79]


def test_without_common_training_examples_it_is_students():
    found = repeated(VALUES, num_train=1e12, num_test=1)
    low, high = stats.t.interval(0.95, 4, np.mean(VALUES), stats.sem(VALUES))
    assert found == pytest.approx((np.mean(VALUES), np.std(VALUES, ddof=1), low, high, "splits"))


def test_common_training_examples_widen_it_by_nadeau_and_bengio():
    own, plain = repeated(VALUES, 80, 20), repeated(VALUES, 1e12, 1)
    assert (own.mean, own.sd) == (plain.mean, plain.sd)
    assert (own.high - own.low) / (plain.high - plain.low) == pytest.approx(
        math.sqrt((1 / 5 + 20 / 80) / (1 / 5))
    )


def test_a_value_that_is_not_defined_leaves_none():
    found = repeated([0.5, math.nan], 8, 2)
    assert all(map(math.isnan, found[:4]))
    assert found.interval_from is None


@pytest.mark.parametrize("hits", [0, 51, 60])
def test_an_equal_proportion_on_all_splits_has_the_interval_of_the_test_examples_of_one(hits):
    found = repeated([hits / 60] * 3, 240, 60, proportion=True)
    exact = stats.binomtest(hits, 60).proportion_ci(0.95, method="exact")
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))
    assert (found.sd, found.interval_from) == (0.0, "examples")


def test_an_equal_value_of_another_metric_or_of_one_example_has_no_interval():
    for found in (repeated([0.1 + 0.2, 0.3], 240, 60), repeated([0.5, 0.5], 1, 1, proportion=True)):
        assert math.isnan(found.low)
        assert math.isnan(found.high)
        assert found.interval_from is None


def test_one_value_has_no_interval():
    with pytest.raises(ValueError, match="1 values have no interval"):
        repeated([0.5], 8, 2)
