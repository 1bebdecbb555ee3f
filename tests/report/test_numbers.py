"""Numbers as text: dashes for what is not known, one minus sign, prefixes that do not round up to themselves."""

import math

import pytest

from seqkit.objectives.metric import Metric
from seqkit.report.numbers import finite, format_number, plural

ACCURACY = Metric("m", "test accuracy", "%", 100, 2, True)
LOSS = Metric("m", "test loss", "nats per token", 1, 3, False)


@pytest.mark.parametrize("write", [format_number, LOSS.number, LOSS.signed])
def test_what_is_not_known_is_a_dash(write):
    assert write(None) == "–"


def test_thousands_of_a_count_are_apart():
    assert [plural(n, "step") for n in (1, 3, 1200)] == ["1 step", "3 steps", "1,200 steps"]


def test_nan_and_infinity_become_none_at_any_depth():
    value = {"a": [1.5, math.nan, {"b": -math.inf}], "c": "nan", "d": True}
    assert finite(value) == {"a": [1.5, None, {"b": None}], "c": "nan", "d": True}


@pytest.mark.parametrize(
    ("value", "text", "short"),
    [
        (0, "0", "0"), (0.00045712, "0.0004571", "0.0004571"), (45.7026, "45.7", "45.7"), (-2500.0, "−2,500", "−2.5k"),
        (81234, "81,234", "81.23k"), (297488.531, "297,489", "297.5k"), (999_960.0, "999,960", "1M"),
        (1_200_000_000, "1,200,000,000", "1.2G"), (float("nan"), "–", "–"), (999, "999", "999"),
        (1e-6, "1e-06", "1e-06"),
    ],
)  # fmt: skip
def test_numbers_have_four_digits_one_minus_and_thousands_or_a_prefix(value, text, short):
    assert (format_number(value), format_number(value, prefix=True)) == (text, short)


def test_values_are_scaled_and_rounded_as_the_metric_says():
    assert ACCURACY.mean(0.981234, 0.00204) == "98.12 ± 0.20"
    assert ACCURACY.mean(0.981234, None) == "98.12"
    assert ACCURACY.interval([0.977, 0.985]) == "[97.70, 98.50]"
    assert LOSS.interval([-0.1, 0.25], signed=True) == "[−0.100, +0.250]"
    assert ACCURACY.interval([None, 0.5]) == ""
    assert (ACCURACY.title, ACCURACY.difference_unit) == ("test accuracy (%)", "percentage points")
    assert (LOSS.title, LOSS.difference_unit) == ("test loss (nats per token)", "nats per token")


def test_a_difference_that_rounds_to_zero_has_no_sign():
    assert ACCURACY.signed(-0.00001) == ACCURACY.signed(0.00001) == "0.00"
    assert (ACCURACY.signed(0.008), ACCURACY.signed(-0.008)) == ("+0.80", "−0.80")
