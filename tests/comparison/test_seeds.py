"""What a mean over seeds hides is said, and nothing is said of seeds like those of a normal distribution."""

from dataclasses import replace

import numpy as np
import pytest

from seqkit.comparison.scores import METRICS
from seqkit.comparison.seeds import CHANCE, GAPS, ahead_of_all, groups
from seqkit.comparison.types import Results, Row, Run

ACCURACY = Results(recipe="", metric=METRICS["accuracy"], candidates=[], num_test=1000)
LOSS = replace(ACCURACY, metric=METRICS["loss"])
S4D = (0.8617, 0.9135, 0.9182, 0.9232, 0.932, 0.9323, 0.9338, 0.935, 0.938, 0.9405)
MAMBA = (0.235, 0.6093, 0.6403, 0.8573, 0.989, 0.9997, 0.9998, 0.9998, 1.0, 1.0)
"""Of selective copy."""


def row(values, name="A"):
    runs = [Run(seed=i, folder="", value=float(value)) for i, value in enumerate(values)]
    return Row(name=name, parameters=1, config="", runs=runs, mean=float(np.mean(values)))


def test_two_groups_are_counted_whichever_way_is_better():
    values = [0.99, 0.98, 0.985, 0.13, 0.12, 0.14]
    assert groups(row(values), ACCURACY) == (
        "3 of 6 seeds of A reach 98.00 % or better, the others 14.00 % or worse "
        "(A: median 56.00, from 12.00 to 99.00 %)."
    )
    text = groups(row(values), LOSS)
    assert text.startswith("3 of 6 seeds of A reach 0.1400 nats or better, the others 0.9800")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.1, 0.12, 0.11, 0.12, 0.9], "between 10.00 and 12.00 %, and that one has 90.00 %."),
        ([0.9, 0.91, 0.92, 0.93, 0.1], "between 90.00 and 93.00 %, and that one has 10.00 %."),
        ([0.9, 0.9, 0.1], "at 90.00 %, and that one has 10.00 %."),
    ],
)
def test_a_seed_that_is_far_from_all_others_is_told(values, text):
    assert groups(row(values), ACCURACY) == f"All seeds of A but one lie {text}"


@pytest.mark.parametrize(
    "values",
    [
        [0.9],
        [0.1, 0.9],
        [0.1, 0.5, 0.9],
        [1.0, 1.0, 1.0],
        [1.0, 1.0, 1.0, 1.0, 0.9992],  # two of a thousand answers
        MAMBA,  # spread, without a gap
    ],
)
def test_seeds_that_are_few_alike_or_spread_are_not_told_of(values):
    assert groups(row(values), ACCURACY) == ""


@pytest.mark.parametrize("seeds", [3, 5, 10, 20])
def test_of_normal_seeds_two_groups_are_told_in_one_of_200_pages(seeds):
    values = np.random.default_rng(0).normal(10.0, 1.0, size=(1000, seeds))
    assert np.mean([groups(row(one), LOSS) != "" for one in values]) <= 0.01
    rounded = np.random.default_rng(0).binomial(1000, 0.98, size=(1000, seeds)) / 1000
    assert np.mean([groups(row(one), ACCURACY) != "" for one in rounded]) <= 0.01
    assert all(one > other for one, other in zip(GAPS.values(), list(GAPS.values())[1:]))


def test_seeds_ahead_of_every_seed_of_the_other_are_counted_whichever_is_named_first():
    one, other = row(S4D, "S4D"), row(MAMBA, "Mamba")
    text = ahead_of_all(one, other, ACCURACY)
    assert text == ahead_of_all(other, one, ACCURACY)
    assert text.startswith(
        "6 of 10 seeds of Mamba are better than every seed of S4D (Mamba: median 99.44, from 23.50 to 100.00 %; S4D: "
    )
    assert "in 1.1 % of comparisons" in text
    assert ahead_of_all(one, one, ACCURACY) == ""
    assert ahead_of_all(row([3.0, 3.1, 3.2]), row([2.0, 2.1, 2.2]), LOSS) == "", "1 of 10"


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_seeds_of_equal_candidates_are_seldom_ahead_of_all(seeds):
    draws = np.random.default_rng(0).standard_cauchy(size=(1000, 2, seeds))
    told = [ahead_of_all(row(one), row(other), LOSS) != "" for one, other in draws]
    assert np.mean(told) <= CHANCE + 0.01
