"""How often a verdict is false that is asked for after every seed, and how many seeds it takes, by simulation.

As a script it prints the numbers of docs/compare.md: `python tests/comparison/test_sequential.py [ROUNDS]`.
"""

import math
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import integrate, stats

from seqkit.comparison.scores import METRICS
from seqkit.comparison.sequential import LOWERED, MIXTURE, UNDECIDED, Bounds, planned, threshold
from seqkit.comparison.settings import MIN_SEEDS, MOST_SEEDS
from seqkit.comparison.statistics import Scores, differences

LOSS, ACCURACY = METRICS["loss"], METRICS["accuracy"]
GAIN = replace(LOSS, higher_is_better=True)
"""A metric without bounds, of which more is better: a margin of 1 is 1."""


def scores(values, metric=GAIN):
    ones = np.ones(values.shape[1])
    return Scores.of([(seed, row, ones) for seed, row in enumerate(values, start=1)])


def judged(a, b, metric, delta=1.0):
    """The difference of two candidates."""
    (found,) = planned({"a": a, "b": b}, "b", metric, delta, 1)
    return found


def candidate(rng, mean, sd, own, *, share, rest=0.3, seeds=MOST_SEEDS, ratio=1.0):
    """Scores [s e] of a candidate. sd: of the difference of two such means over 5 seeds. own: effects of the examples.

    share: of that variance, what seeds carry. rest: of what is left, what neither seeds nor examples do. ratio: of the
    seeds' standard deviation.
    """
    examples = own.shape[1]
    variance = sd**2 / 2
    of_seeds = ratio * (5 * share * variance) ** 0.5
    of_examples = (examples * (1 - share) * (1 - rest) * variance) ** 0.5
    of_rest = (5 * examples * (1 - share) * rest * variance) ** 0.5
    return (
        mean
        + own
        + of_seeds * rng.normal(size=(seeds, 1))
        + of_examples * rng.normal(size=(1, examples))
        + of_rest * rng.normal(size=(seeds, examples))
    )


def verdicts(rounds, gains, sd, share, *, examples=100, ratio=1.0, seed=0):
    """By round, the verdict and the seeds of each candidate, which is better than the reference by that gain; δ is 1.

    ratio: of the standard deviation of a candidate's seeds to that of the reference's.
    """
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        own = rng.normal(size=(1, examples))
        page = {"reference": scores(candidate(rng, 0.0, sd, own, share=share))}
        for i, gain in enumerate(gains):
            page[str(i)] = scores(candidate(rng, gain, sd, own, share=share, ratio=ratio))
        found = planned(page, "reference", GAIN, 1.0, len(gains))
        yield [(one.verdict, one.seeds) for one in found]


def is_false(verdict, gain, delta=1.0):
    """Whether a verdict is not true of a gain."""
    return {
        "better": gain <= delta,
        "worse": gain >= -delta,
        "equal": abs(gain) > delta,
    }.get(verdict, False)


def false_rate(rounds, gain, sd, share, num_candidates=1, **more):
    """Share of the pages with a false verdict on any candidate, all of which have this gain.

    A gain that is the margin is one just within it, of which `equal` is true, or one just beyond, whichever is worse.
    """
    found = list(verdicts(rounds, [gain] * num_candidates, sd, share, **more))
    return max(
        np.mean([any(is_false(word, gain * near) for word, _ in page) for page in found])
        for near in (1 - 1e-9, 1 + 1e-9)
    )


def seeds_and_power(rounds, gain, sd, share, right="better", **more):
    """Mean number of seeds of a candidate, and how often the verdict is right."""
    found = [page[0] for page in verdicts(rounds, [gain], sd, share, **more)]
    return np.mean([number for _, number in found]), np.mean([word == right for word, _ in found])


def fixed_power(rounds, gain, sd, share, seeds, examples=100):
    """How often an interval of a number of seeds that is fixed beforehand lies above the margin of 1."""
    rng, found = np.random.default_rng(1), 0
    for _ in range(rounds):
        own = rng.normal(size=(1, examples))
        a, b = (
            scores(candidate(rng, mean, sd, own, share=share, seeds=seeds)) for mean in (gain, 0.0)
        )
        found += differences({"a": a, "b": b}, GAIN)[0].interval[0] > 1
    return found / rounds


def failing_pages(rounds, rates, *, learned=(0.95, 0.95), seeds=MOST_SEEDS, examples=1000):
    """Answers of candidate and reference, of whose runs these shares stay at chance (50 %), and the true difference.

    learned: accuracies of the other runs. Seeds differ by half a point.
    """
    rng = np.random.default_rng(0)
    true = [rate * 0.5 + (1 - rate) * level for rate, level in zip(rates, learned)]
    for _ in range(rounds):
        own = rng.random(size=(1, examples))
        found = []
        for rate, level in zip(rates, learned):
            accuracy = np.where(rng.random((seeds, 1)) < rate, 0.5, level)
            accuracy = accuracy + 0.005 * rng.normal(size=(seeds, 1))
            is_common = rng.random((seeds, examples)) < 0.5
            mixed = np.where(is_common, own, rng.random((1, examples)))
            found.append(scores((mixed < accuracy).astype(float)))
        yield *found, true[0] - true[1]


def failing(rounds, rates, **more):
    """Verdicts by a margin of one point, with the true difference in points, and the number of seeds."""
    for a, b, gain in failing_pages(rounds, rates, **more):
        one = judged(a, b, ACCURACY)
        yield one.verdict, round(100 * gain, 6), one.seeds


# ── in the fast tier ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [3, 20])
def test_the_threshold_is_where_the_likelihood_ratio_is_one_by_alpha(number):
    """By integration of the noncentral t over the mixture, without the formula for it."""
    df = number - 1
    reached = threshold(number, 0.05)

    def weighted(effect):
        density = stats.nct.pdf(reached, df, effect * number**0.5)
        return density * stats.norm.pdf(effect, scale=MIXTURE**0.5)

    mixed = integrate.quad(weighted, -40, 40, points=[0, reached / number**0.5], limit=400)[0]
    assert mixed / stats.t.pdf(reached, df) == pytest.approx(20, rel=2e-3)
    assert threshold(number, 0.01) > reached


def test_no_t_is_enough_where_the_ratio_is_bounded():
    assert threshold(2, 0.05) == math.inf
    assert threshold(3, 0.05) < 15


@pytest.mark.parametrize("ratio", [0.3, 0.7, 1.5])
def test_the_sum_of_squares_holds_the_truth_at_all_rounds_together(ratio):
    """Without `LOWERED`, up to 5.5 % miss it within 20 seeds, and 6.6 % within 100, where it leaves 5.1 %.

    ratio: of the error of the examples to that of a seed.
    """
    rng = np.random.default_rng(0)
    number = np.arange(MIN_SEEDS, 101)
    seeds = rng.normal(size=(20_000, 100))
    mean = seeds.cumsum(axis=1)[:, MIN_SEEDS - 1 :] / number
    squares = (seeds**2).cumsum(axis=1)[:, MIN_SEEDS - 1 :]
    std = ((squares - number * mean**2) / (number - 1)) ** 0.5
    level = LOWERED * 0.05
    reached = np.array([threshold(n, level) for n in number])
    half = np.hypot(reached * std / number**0.5, stats.norm.ppf(1 - level / 2) * ratio)
    missed = abs(mean + ratio * rng.normal(size=(20_000, 1))) > half
    assert missed[:, : MOST_SEEDS - MIN_SEEDS + 1].any(axis=1).mean() <= 0.045
    assert 0.04 <= missed.any(axis=1).mean() <= 0.054


@pytest.mark.parametrize(
    ("bounds", "word"),
    [
        ((3.1, 1.2, 1.6), "better"),
        ((-3.1, 1.2, 1.6), "worse"),
        ((2.9, 1.2, 1.6), "undecided"),
        ((0.0, 0.6, 0.7), "equal"),
        ((0.2, 0.6, 0.7), "undecided"),
        ((0.2, 0.6, 1.1), "too close for these test examples"),  # no difference is shown to be within 1
        ((1.0, 0.1, 0.4), "too close for these test examples"),
        ((1.0, 0.5, 0.4), "undecided"),  # the mean over all seeds may be 1.5, beyond 1 and its width
        ((0.0, 1.2, 0.9), "undecided"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sign", [1, -1])
def test_a_verdict_follows_from_bounds_and_margin(bounds, word, sign):
    difference, *widths = bounds
    assert Bounds(sign * difference, *widths).verdict(1.0, sign) == word


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("gain", [0.0, 1.0, -1.0])
def test_verdicts_are_seldom_false_though_they_are_asked_for_after_every_seed(gain, share):
    """With the t interval of a fixed number of seeds it is up to 17 %. Without a difference, the margin is small."""
    assert false_rate(120, gain, 20.0 if gain == 0 else 0.2, share) <= 0.05


def test_of_five_candidates_at_the_margin_a_verdict_is_seldom_false():
    """With the t interval of a fixed number of seeds it is 34 %."""
    assert false_rate(60, 1.0, 0.2, 0.9, num_candidates=5) <= 0.05


def test_candidates_with_other_spreads_of_their_seeds_are_judged_as_well():
    assert false_rate(150, 1.0, 0.2, 0.9, ratio=0.1) <= 0.05


def test_a_large_difference_takes_at_most_six_tenths_of_the_seeds_of_a_fixed_plan():
    """The plan of equal power for half of this difference has 9 seeds (see the table in docs/compare.md)."""
    seeds, power = seeds_and_power(60, 1 + 6 * 0.2, 0.2, 0.9)
    assert power == 1
    assert seeds <= 0.6 * 9
    assert fixed_power(150, 1 + 3 * 0.2, 0.2, 0.9, 8) < 0.95


def test_a_seed_that_failed_to_learn_keeps_a_candidate_undecided():
    known = [one for one in failing(40, (0.1, 0.1)) if one[2] == MOST_SEEDS]
    assert len(known) > 20
    assert not any(is_false(word, gain) for word, gain, _ in known)


def table_of(gains, seeds=10, examples=50):
    rng = np.random.default_rng(3)
    own = rng.normal(size=(1, examples))
    return {
        str(i): scores(candidate(rng, gain, 0.2, own, share=0.5, seeds=seeds))
        for i, gain in enumerate(gains)
    }


def test_later_seeds_and_their_order_change_no_verdict():
    page = table_of([0.0, 3.0, 0.1])
    found = list(planned(page, "0", GAIN, 1.0, 2))
    assert [one.verdict for one in found] == ["better", "equal"]
    used = max(one.seeds for one in found)
    assert MIN_SEEDS <= used < 10

    def first(one):
        runs = zip(one.seeds[:used], one.numerator, one.denominator)
        return Scores.of(list(runs)[::-1])

    cut = {name: first(one) for name, one in page.items()}
    assert list(planned(cut, "0", GAIN, 1.0, 2)) == found


def test_seeds_that_one_of_both_lacks_are_left_out():
    page = table_of([0.0, 3.0])
    lacking = [1, 2, 3, 5, 7, 8, 9]
    kept = page["1"].numerator[lacking], page["1"].denominator[lacking]
    own = Scores(tuple(seed + 1 for seed in lacking), *kept)
    (one,) = planned({"0": page["0"], "1": own}, "0", GAIN, 1.0, 1)
    both = Scores(own.seeds, page["0"].numerator[lacking], page["0"].denominator[lacking])
    assert list(planned({"0": both, "1": own}, "0", GAIN, 1.0, 1)) == [one]
    few = Scores(own.seeds[:2], kept[0][:2], kept[1][:2])
    assert not list(planned({"0": page["0"], "1": few}, "0", GAIN, 1.0, 1))
    assert not list(planned({"1": own}, "0", GAIN, 1.0, 1))


def test_three_seeds_are_too_few_for_many_pairs_even_if_they_are_equal():
    page = {str(i): scores(np.ones((3, 100))) for i in range(7)}
    for one in planned(page, "0", GAIN, 1.0, 6):
        assert (one.verdict, one.interval) == ("undecided", None)
    more = {str(i): scores(np.ones((5, 100))) for i in range(7)}
    assert [one.verdict for one in planned(more, "0", GAIN, 1.0, 6)] == ["equal"] * 6


def test_examples_without_effects_of_their_own_add_little_to_what_seeds_do():
    """The differences of 20 seeds by example are noise, which the seeds' half width has already."""
    rng = np.random.default_rng(0)
    page = [scores(rng.normal(size=(20, 400))) for _ in range(2)]
    one = judged(*page, GAIN, 0.001)
    noise = stats.norm.ppf(1 - LOWERED * 0.025) * (2 / 20 / 400) ** 0.5
    assert one.of_examples < 0.6 * noise


def test_seeds_with_equal_means_by_chance_are_not_taken_for_sure():
    rng = np.random.default_rng(0)
    right = np.array([rng.permutation([1.0] * 50 + [0.0] * 50) for _ in range(4)])
    one = judged(scores(right), scores(right[::-1]), ACCURACY, 20.0)
    assert one.difference == pytest.approx(0)
    assert (one.interval[1] - one.interval[0]) / 2 > 1.5 * one.of_examples


def test_equal_answers_to_few_examples_are_not_equal_within_any_margin():
    """Of 100 examples, 4 in 100 that differ are not excluded."""
    right = scores(np.ones((5, 100)))
    one = judged(right, right, ACCURACY)
    assert one.verdict == "too close for these test examples"
    assert 0.03 < one.of_examples < 0.05
    assert judged(right, right, ACCURACY, 5.0).verdict == "equal"


def test_examples_that_are_not_shared_have_a_width_of_their_own():
    page = table_of([0.0, 3.0])
    fewer = Scores(page["1"].seeds, page["1"].numerator[:, :40], page["1"].denominator[:, :40])
    apart = judged(fewer, page["0"], GAIN).of_examples
    assert apart > 2 * judged(page["1"], page["0"], GAIN).of_examples


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def print_false(rounds):
    """At −δ, the same noise is false as at δ, with the sides exchanged."""
    print("| candidates | seeds carry, of the variance | no difference | exactly δ or −δ |")
    print("| --- | --- | --- | --- |")
    for number, share in product((1, 5), (0.1, 0.5, 0.9)):
        found = [
            false_rate(rounds, gain, 0.2 if gain else 20.0, share, number) for gain in (0.0, 1.0)
        ]
        cells = [f"{100 * one:.1f}" for one in found]
        print(f"| {number + 1} | {100 * share:.0f} % | {' | '.join(cells)} |", flush=True)
    for share, examples, ratio in ((0.1, 10, 1), (0.5, 10, 1), (0.9, 10, 1), (0.9, 100, 0.1)):
        found = false_rate(rounds, 1.0, 0.2, share, examples=examples, ratio=ratio)
        what = f"{examples} examples, {100 * share:.0f} %, spreads of seeds 1 : {ratio}"
        print(f"{what}, exactly δ: {100 * found:.1f}", flush=True)


def print_seeds(rounds):
    sd, powers = 0.2, {}
    print("| difference beyond δ, in noise | share | seeds, verdict | fixed plan of equal power |")
    for share, size in product((0.1, 0.5, 0.9), (1, 2, 3, 4, 6, 10, 20)):
        seeds, power = seeds_and_power(rounds, 1 + size * sd, sd, share)
        plan = next(
            (n for n in range(2, 41) if fixed_power(rounds, 1 + size * sd, sd, share, n) >= power),
            None,
        )
        powers[share, size] = seeds, power, plan
        print(
            f"| {size} | {100 * share:.0f} % | {seeds:.1f}, {100 * power:.0f} % | {plan} |",
            flush=True,
        )


def fixed_failing(rounds, seeds, **more):
    """How often the interval of a number of seeds that is fixed beforehand decides falsely by a margin of one point."""
    found = 0
    for a, b, gain in failing_pages(rounds, seeds=seeds, **more):
        low, high = differences({"a": a, "b": b}, ACCURACY)[0].interval
        bounds = Bounds((low + high) / 2, (high - low) / 2, 0.0)
        found += is_false(bounds.verdict(0.01, 1), gain, 0.01)
    return found / rounds


def print_failing(rounds):
    print(
        "| runs at chance | others | test examples | true | false | undecided | 3 seeds | 5 | 10 |"
    )
    for rates, learned, examples in (
        ((0.1, 0.1), (0.95, 0.95), 1000),
        ((0.1, 0.1), (0.98, 0.95), 1000),
        ((0.1, 0.0), (0.95, 0.95), 1000),
        ((0.1, 0.0), (0.95, 0.95), 10_000),
        ((0.1, 0.0), (0.98, 0.95), 1000),
        ((0.1, 0.0), (0.998, 0.998), 1000),
    ):
        more = {"rates": rates, "learned": learned, "examples": examples}
        found = list(failing(rounds, **more))
        wrong = np.mean([is_false(word, gain) for word, gain, _ in found])
        undecided = np.mean([word in UNDECIDED for word, *_ in found])
        fixed = [f"{100 * fixed_failing(rounds, seeds, **more):.0f}" for seeds in (3, 5, 10)]
        cells = [f"{found[0][1]:.1f}", f"{100 * wrong:.0f}", f"{100 * undecided:.0f}", *fixed]
        print(f"| {rates} | {learned} | {examples} | {' | '.join(cells)} |", flush=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print_false(rounds)
    print_seeds(rounds // 5)
    print_failing(rounds // 5)


if __name__ == "__main__":
    main()
