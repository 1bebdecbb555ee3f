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
    assert found == pytest.approx((np.mean(VALUES), np.std(VALUES, ddof=1), low, high))


def test_common_training_examples_widen_it_by_nadeau_and_bengio():
    own, plain = repeated(VALUES, 80, 20), repeated(VALUES, 1e12, 1)
    assert (own.mean, own.sd) == (plain.mean, plain.sd)
    assert (own.high - own.low) / (plain.high - plain.low) == pytest.approx(math.sqrt((1 / 5 + 20 / 80) / (1 / 5)))


def test_a_value_that_is_not_defined_leaves_none():
    assert all(map(math.isnan, repeated([0.5, math.nan], 8, 2)))


def test_one_value_has_no_interval():
    with pytest.raises(ValueError, match="1 values have no interval"):
        repeated([0.5], 8, 2)
