"""Bootstrap intervals: known differences, coverage, and what pairing is worth."""

import numpy as np
import pytest

from seqkit.comparison.scores import METRICS
from seqkit.comparison.statistics import Scores, difference, spread

MEAN = METRICS["loss"]


def scores(values, seeds=None):
    values = np.asarray(values, dtype=float)
    return Scores.of([(seed, row, np.ones_like(row)) for seed, row in zip(seeds or range(1, 99), values)])


def test_a_split_is_the_ratio_of_sums_and_for_rmse_its_root():
    two = Scores.of([(1, [1.0, 7.0], [1.0, 3.0]), (2, [9.0, 9.0], [1.0, 1.0])])
    assert two.values(MEAN).tolist() == [2.0, 9.0]
    assert two.values(METRICS["rmse"]).tolist() == pytest.approx([2**0.5, 3.0])
    mean, std, _ = spread(two, MEAN)
    assert mean == 5.5
    assert std == pytest.approx(np.std([2.0, 9.0], ddof=1))
    assert spread(two.only([1]), MEAN)[1] is None


def test_a_candidate_and_itself_do_not_differ():
    own = scores(np.random.default_rng(0).random((3, 50)))
    found = difference(own, own, MEAN)
    assert found.difference == 0
    assert found.interval == (0, 0)


def test_a_constant_shift_is_found_exactly_because_it_is_paired():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(3, 97))
    found = difference(scores(common + 0.25), scores(common), MEAN)
    assert found.difference == pytest.approx(0.25)
    assert found.interval == pytest.approx((0.25, 0.25))
    unpaired = difference(scores(common + 0.25, [1, 2, 3]), scores(common, [4, 5, 6]), MEAN)
    assert unpaired.interval[1] - unpaired.interval[0] > 0.1
    assert "no seed in common" in unpaired.pairs


def test_the_interval_covers_the_true_difference_about_as_often_as_it_says():
    rng, hits, rounds = np.random.default_rng(1), 0, 60
    for _ in range(rounds):
        a = 0.3 + rng.normal(size=(10, 1)) + rng.normal(size=(10, 61))
        b = rng.normal(size=(10, 1)) + rng.normal(size=(10, 61))
        low, high = difference(scores(a), scores(b), MEAN).interval
        hits += low <= 0.3 <= high
    assert 0.8 * rounds <= hits  # 95 % asked; ten seeds make it a little narrow


@pytest.mark.parametrize("shape", [(1, 401), (401, 1)], ids=["examples", "seeds"])
def test_the_interval_of_a_mean_is_its_standard_error_on_both_sides(shape):
    """For many independent values the bootstrap agrees with the normal distribution: 1.96 standard errors."""
    values = np.random.default_rng(0).normal(size=shape)
    mean, _, (low, high) = spread(scores(values, range(shape[0])), MEAN)
    error = values.std() / values.size**0.5
    assert mean == pytest.approx(values.mean())
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.1)
    assert (high + low) / 2 == pytest.approx(mean, abs=0.2 * error)


def test_a_ratio_is_resampled_with_its_denominator():
    """Of examples of very different size that all have one ratio, every resample has it, too."""
    sizes = np.random.default_rng(0).integers(1, 90, size=61).astype(float)
    own = Scores.of([(seed, 3.0 * sizes, sizes) for seed in (1, 2)])
    assert spread(own, MEAN)[2] == pytest.approx((3.0, 3.0), rel=1e-6)


def test_seeds_stay_paired_where_the_test_examples_differ():
    common = 10 * np.random.default_rng(0).normal(size=(5, 1))
    found = difference(scores(common + np.full(31, 0.25)), scores(common + np.zeros(37)), MEAN)
    assert found.interval == pytest.approx((0.25, 0.25), abs=1e-4)


def test_seeds_that_only_one_of_them_finished_are_left_out():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(3, 31))
    found = difference(scores(common + 1), scores(common[:2]), MEAN)
    assert found.pairs == "2 seeds x 31 examples"
    assert found.difference == pytest.approx(1.0)


def test_other_test_examples_are_not_paired_and_it_is_said():
    rng = np.random.default_rng(0)
    found = difference(scores(rng.normal(size=(3, 31))), scores(rng.normal(size=(3, 37))), MEAN)
    assert "test examples differ" in found.pairs


def test_one_seed_of_one_example_has_no_interval_and_no_winner():
    one, other = scores([[0.5]]), scores([[0.9]])
    assert spread(one, MEAN)[2] is None
    found = difference(one, other, MEAN)
    assert found.interval is None
    assert found.difference == pytest.approx(-0.4)
    assert difference(scores([[0.5], [0.6]]), scores([[0.9], [0.7]]), MEAN).interval is not None
