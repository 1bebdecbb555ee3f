"""Intervals of means and differences: against textbook results, and what pairing, groups and seeds do to them."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from seqkit.comparison.scores import METRICS
from seqkit.comparison.statistics import PLANNED, Scores, corrected, differences, spread

MEAN, ACCURACY = METRICS["loss"], METRICS["accuracy"]


def difference(a, b, metric):
    """The difference of two candidates that are alone on a page."""
    return differences({"a": a, "b": b}, metric)[0]


def scores(values, seeds=None, groups=None):
    values = np.asarray(values, dtype=float)
    return Scores.of(
        [(seed, row, np.ones_like(row)) for seed, row in zip(seeds or range(1, 999), values)],
        groups,
    )


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def half(interval):
    return (interval[1] - interval[0]) / 2


def test_a_split_is_the_ratio_of_sums_and_for_rmse_its_root():
    two = Scores.of([(1, [1.0, 7.0], [1.0, 3.0]), (2, [9.0, 9.0], [1.0, 1.0])])
    assert two.values(MEAN).tolist() == [2.0, 9.0]
    assert two.values(METRICS["rmse"]).tolist() == pytest.approx([2**0.5, 3.0])
    mean, std, _ = spread(two, MEAN)
    assert mean == 5.5
    assert std == pytest.approx(np.std([2.0, 9.0], ddof=1))
    assert spread(Scores.of([(1, [1.0], [1.0])]), MEAN)[1] is None


def test_of_one_seed_the_interval_is_that_of_students_t_over_examples():
    x = normal(1, 23)
    assert spread(scores(x), MEAN)[2] == pytest.approx(
        stats.ttest_1samp(x[0], 0).confidence_interval(0.95)
    )


def test_of_one_example_the_interval_is_that_of_students_t_over_seeds():
    x = normal(7, 1)
    assert spread(scores(x), MEAN)[2] == pytest.approx(
        stats.ttest_1samp(x[:, 0], 0).confidence_interval(0.95)
    )


def test_of_seeds_without_an_example_effect_it_is_that_of_students_t_over_seeds():
    """All examples of a seed are alike, so that more of them say nothing."""
    x = np.repeat(normal(5, 1), 40, axis=1)
    assert spread(scores(x), MEAN)[2] == pytest.approx(
        stats.ttest_1samp(x[:, 0], 0).confidence_interval(0.95)
    )


def test_a_table_by_hand_has_the_variance_and_the_degrees_of_freedom_of_the_formulas():
    """Two seeds, three examples: mean squares of rows 6, of columns 4.5, of the rest 0.5; 10 / 6, with 100 / 46.25."""
    x = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]])
    rows, columns, rest = 3 * 2.0, 2 * 2.25, 0.5
    variance = (rows + columns - rest) / 6
    df = (rows + columns - rest) ** 2 / (rows**2 / 1 + columns**2 / 2 + rest**2 / 2)
    assert half(spread(scores(x), MEAN)[2]) == pytest.approx(stats.t.ppf(0.975, df) * variance**0.5)


def test_a_candidate_and_itself_do_not_differ():
    own = scores(normal(3, 50))
    found = difference(own, own, MEAN)
    assert found.difference == 0
    assert found.interval[0] == -found.interval[1] < 0
    assert found.p == 1.0


def test_a_constant_shift_is_found_exactly_because_it_is_paired():
    common = np.repeat(normal(1, 97), 3, axis=0)
    found = difference(scores(common + 0.25), scores(common), MEAN)
    assert found.interval == pytest.approx((0.25, 0.25))
    assert found.p == 0.0
    unpaired = difference(scores(common + 0.25), scores(normal(3, 31, seed=1)), MEAN)
    assert half(unpaired.interval) > 0.1
    assert unpaired.pairs == "not at all: other test examples"


def test_examples_are_paired_and_seeds_are_not():
    """Of seeds that are numbered alike nothing is common: which number a run has makes no difference."""
    common = 10 * normal(1, 61)
    a, b = common + 0.25 + 0.1 * normal(3, 61, seed=1), common + 0.1 * normal(3, 61, seed=2)
    found = difference(scores(a), scores(b), MEAN)
    assert half(found.interval) < 0.1
    assert found.pairs == "61 examples"
    assert difference(scores(a), scores(b[::-1]), MEAN).interval == pytest.approx(found.interval)
    assert difference(scores(a), scores(b[:2]), MEAN).difference == pytest.approx(
        a.mean() - b[:2].mean()
    )


def test_the_variance_of_a_difference_is_that_of_the_formula():
    """Two seeds of three common examples each: of units, once; of seeds less the rest, of each candidate."""
    a, b = (
        np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 7.0]]),
        np.array([[0.0, 5.0, 1.0], [4.0, 1.0, 3.0]]),
    )
    variance, squares = (a.mean(0) - b.mean(0)).var(ddof=1) / 3, 0.0
    squares += variance**2 / 2
    for x in (a, b):
        rows = 3 * x.mean(1).var(ddof=1) / 6
        rest = ((x - x.mean(1, keepdims=True) - x.mean(0) + x.mean()) ** 2).sum() / 2 / 6
        variance, squares = variance + rows - rest, squares + rows**2 / 1 + rest**2 / 2
    assert half(difference(scores(a), scores(b), MEAN).interval) == pytest.approx(
        stats.t.ppf(0.975, max(variance**2 / squares, 1)) * variance**0.5
    )


def test_an_unstable_candidate_does_not_silence_the_others():
    """A and B are told apart alone; beside C, whose seeds spread a hundred times as far, they still are."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(1, 400))

    def candidate(shift, sd):
        return scores(
            common + shift + sd * rng.normal(size=(5, 1)) + 0.3 * rng.normal(size=(5, 400))
        )

    two = {"A": candidate(0.0, 0.05), "B": candidate(0.4, 0.05)}
    assert differences(two, MEAN)[0].p_holm < 0.01
    assert differences(two | {"C": candidate(0.0, 5.0)}, MEAN)[0].p_holm < 0.01


def test_an_interval_has_the_correction_of_its_p_value():
    rng = np.random.default_rng(1)
    common = rng.normal(size=(1, 80))
    for shifts in (
        [0.0, 0.1, 0.2, 0.3],
        [0.0, 0.0, 0.0, 2.0],
        [0.0, 1.0, 2.0, 3.0],
        [0.0, 0.0, 0.0, 0.0],
    ):
        page = {
            f"{i}": scores(common + shift + 0.3 * rng.normal(size=(3, 80)))
            for i, shift in enumerate(shifts)
        }
        for one in differences(page, MEAN):
            assert (one.p_holm < 0.05) == (one.interval[0] > 0 or one.interval[1] < 0)


def test_one_seed_of_one_example_has_no_interval():
    one, other = scores([[0.5]]), scores([[0.9]])
    assert spread(one, MEAN)[2] is None
    found = difference(one, other, MEAN)
    assert (found.interval, found.p) == (None, None)
    assert found.difference == pytest.approx(-0.4)
    assert difference(scores([[0.5], [0.6]]), scores([[0.9], [0.7]]), MEAN).interval is not None


# ── groups of examples ───────────────────────────────────────────────────────────────────────────────────────────────


def test_examples_of_a_group_count_once():
    """Six speakers of 200 equal takes each are six examples."""
    six = 3 * normal(1, 6) + 0.1 * normal(4, 6, seed=1)
    many = np.repeat(six, 200, axis=1)
    groups = np.repeat(np.arange(6), 200).tolist()
    assert spread(scores(many, groups=groups), MEAN)[2] == pytest.approx(
        spread(scores(six), MEAN)[2]
    )
    assert half(spread(scores(many), MEAN)[2]) < half(spread(scores(six), MEAN)[2])
    found = difference(scores(many, groups=groups), scores(many + 1, groups=groups), MEAN)
    assert found.pairs == "6 groups of 1,200 examples"


def test_the_order_of_examples_and_the_numbers_of_groups_do_not_matter():
    x, groups = normal(3, 40), np.random.default_rng(0).integers(0, 7, 40)
    order = np.random.default_rng(1).permutation(40)
    moved = spread(scores(x[:, order], groups=(100 - groups)[order].tolist()), MEAN)
    assert moved[2] == pytest.approx(spread(scores(x, groups=groups.tolist()), MEAN)[2])


# ── ratios, roots, proportions ───────────────────────────────────────────────────────────────────────────────────────


def test_examples_of_very_different_size_with_one_ratio_have_no_spread():
    sizes = np.random.default_rng(0).integers(1, 90, size=61).astype(float)
    own = Scores.of([(seed, 3.0 * sizes, sizes) for seed in (1, 2)])
    assert spread(own, MEAN)[2] == pytest.approx((3.0, 3.0))


@pytest.mark.parametrize("name", ["loss", "rmse"])
def test_the_interval_of_a_ratio_and_of_its_root_agrees_with_the_bootstrap(name):
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9, size=800).astype(float)
    own = Scores.of([(1, sizes * rng.gamma(2, size=800), sizes)])
    top, bottom = own.numerator[0], own.denominator[0]
    drawn = rng.integers(0, 800, size=(2000, 800))
    values = [Scores.of([(1, top[i], bottom[i])]).values(METRICS[name])[0] for i in drawn]
    assert half(spread(own, METRICS[name])[2]) == pytest.approx(1.96 * np.std(values), rel=0.05)


def test_a_proportion_of_independent_examples_has_clopper_and_pearsons_interval():
    right = np.array([[1.0] * 31 + [0.0] * 9])
    exact = stats.binomtest(31, 40).proportion_ci(0.95)
    assert spread(scores(right), ACCURACY)[2] == pytest.approx((exact.low, exact.high), abs=0.005)


def test_a_proportion_at_its_bound_has_an_interval():
    exact = stats.binomtest(40, 40).proportion_ci(0.95)
    assert spread(scores(np.ones((3, 40))), ACCURACY)[2] == pytest.approx((exact.low, 1.0))
    assert spread(scores(np.zeros((3, 40))), ACCURACY)[2] == pytest.approx((0.0, 1 - exact.low))
    found = difference(scores(np.ones((3, 40))), scores(np.ones((3, 40))), ACCURACY)
    assert found.interval == pytest.approx((exact.low - 1, 1 - exact.low))
    assert found.p == 1.0
    few = difference(scores(np.ones((3, 2))), scores(np.zeros((3, 2))), ACCURACY)
    assert few.interval == pytest.approx((1 - 0.8419, 1), abs=1e-4)
    assert few.p == 0.5


def test_a_difference_of_proportions_stays_between_minus_1_and_1():
    found = difference(scores([[1, 1], [1, 0]]), scores([[0, 1], [1, 1]]), ACCURACY)
    assert found.interval == (-1, 1)


def test_the_interval_of_a_proportion_stays_between_0_and_1():
    right = np.ones((3, 40))
    right[0, :7] = 0
    low, high = spread(scores(right), ACCURACY)[2]
    assert 0 < low < right.mean() < high < 1


# ── several pairs ────────────────────────────────────────────────────────────────────────────────────────────────────


def adjusted(p, planned=()):
    return {pair: one.p for pair, one in corrected(p, planned).items()}


def test_without_planned_pairs_the_correction_is_holms():
    """Holm 1979: the smallest of four times 4, then times 3 and 2, and none falls below the one before."""
    p = {("a", "b"): 0.01, ("a", "c"): 0.04, ("b", "c"): 0.03, ("a", "d"): 0.005}
    expected = {("a", "d"): 0.02, ("a", "b"): 0.03, ("b", "c"): 0.06, ("a", "c"): 0.06}
    assert adjusted(p) == pytest.approx(expected)
    assert adjusted(p, list(p)) == pytest.approx(expected)
    assert adjusted({("a", "b"): 0.9, ("a", "c"): 0.8}) == {("a", "c"): 1.0, ("a", "b"): 1.0}


def closed(p, planned):
    """The closed test by its definition: of all sets of pairs with a pair, the largest weighted Bonferroni p-value."""
    found = dict.fromkeys(p, 0.0)
    for size in range(1, len(p) + 1):
        for left in combinations(p, size):
            mine = [pair for pair in left if pair in planned]
            rest = [pair for pair in left if pair not in planned]
            share = PLANNED / 2 + PLANNED / 2 * len(mine) / len(planned)
            if not (mine and rest):
                share = float(bool(mine))
            each = [p[pair] * len(mine) / share for pair in mine]
            each += [p[pair] * len(rest) / (1 - share) for pair in rest]
            for pair in left:
                found[pair] = max(found[pair], min(1.0, *each))
    return found


def test_pairs_with_equal_p_values_have_equal_weights_in_any_order():
    p = {"a": 0.001, "b": 0.001, "c": 0.2, "d": 0.001, "e": 0.001}
    found = [corrected({name: p[name] for name in names}, "ab") for names in ("abcde", "edcba")]
    for one in found:
        assert one["a"] == one["b"] == found[0]["a"]
        assert one["d"] == one["e"] == found[0]["d"]
        assert one["a"].weight > one["d"].weight


def test_planned_pairs_are_corrected_by_a_closed_test():
    """So the family-wise error is at most 5 % in proof (Marcus, Peritz and Gabriel 1976), whatever the p-values."""
    rng = np.random.default_rng(0)
    for sharpness in (1, 3, 6) * 4:
        p = {pair: rng.random() ** sharpness for pair in combinations("abcde", 2)}
        planned = [pair for pair in p if pair[0] == "a"]
        assert adjusted(p, planned) == pytest.approx(closed(p, planned))


def test_a_planned_pair_is_corrected_less_and_another_is_found_beside_one_that_is_not():
    p = {
        ("a", "b"): 0.012,
        ("a", "c"): 0.5,
        ("a", "d"): 0.6,
        ("b", "c"): 0.003,
        ("b", "d"): 0.9,
        ("c", "d"): 0.8,
    }
    planned = [pair for pair in p if pair[0] == "a"]
    assert adjusted(p)["a", "b"] == pytest.approx(0.06)
    assert adjusted(p, planned)["a", "b"] == pytest.approx(0.012 * 3 / PLANNED)
    assert adjusted(p, planned)["b", "c"] < 0.05
