"""How often 95 % intervals hold the truth, and how often equal candidates are told apart, by simulation.

As a script it prints the numbers of docs/compare.md: `python tests/comparison/test_coverage.py`.
"""

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from seqkit.comparison.scores import METRICS
from seqkit.comparison.statistics import LEVEL, Scores, corrected, differences, spread

MEAN, ACCURACY = METRICS["loss"], METRICS["accuracy"]


def scores(values, groups=None):
    return Scores.of([(seed, row, np.ones_like(row)) for seed, row in enumerate(values)], groups)


def table(rng, seeds, examples, share, rest):
    """Scores [s e] around 0. share: of the variance of the mean, what seeds carry; rest: of what is left, what neither
    seeds nor examples do."""
    a, b, c = (
        share * seeds,
        (1 - share) * (1 - rest) * examples,
        (1 - share) * rest * seeds * examples,
    )
    parts = (rng.normal(size=shape) for shape in ((seeds, 1), (1, examples), (seeds, examples)))
    return sum(scale**0.5 * part for scale, part in zip((a, b, c), parts))


def covered(rounds, seeds, examples, share, rest, per_group=1):
    """Share of the rounds in which the interval of a difference holds the true one, 0.5."""
    rng, hits = np.random.default_rng(0), 0
    groups = np.repeat(np.arange(examples), per_group).tolist()
    for _ in range(rounds):
        x = np.repeat(table(rng, seeds, examples, share, rest), per_group, axis=1)
        # of the examples themselves, which is common to both
        own = rng.normal(size=(1, len(groups)))
        low, high = differences(
            {"a": scores(own + x + 0.5, groups), "b": scores(own + 0 * x, groups)}, MEAN
        )[0].interval
        hits += low <= 0.5 <= high
    return hits / rounds


def covered_accuracy(rounds, seeds, examples, accuracy=0.9, seed_sd=0.2, example_sd=1.0):
    """The same of an accuracy: answers are right where seed + example + rest are above a threshold."""
    rng, hits, threshold = (
        np.random.default_rng(0),
        0,
        norm.ppf(accuracy) * (1 + seed_sd**2 + example_sd**2) ** 0.5,
    )
    for _ in range(rounds):
        shapes = ((seed_sd, (seeds, 1)), (example_sd, (1, examples)), (1.0, (seeds, examples)))
        right = sum(sd * rng.normal(size=shape) for sd, shape in shapes) + threshold > 0
        low, high = spread(scores(right.astype(float)), ACCURACY)[2]
        hits += low <= accuracy <= high
    return hits / rounds


def told_apart(rounds, seeds, examples, share, candidates=6):
    """Share of pages of equal candidates in which any is called better than any other."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(rounds):
        own = rng.normal(size=(1, examples)) * examples**0.5
        page = {
            str(i): scores(own + table(rng, seeds, examples, share, 0.5)) for i in range(candidates)
        }
        wrong += any(one.p_holm < 0.05 for one in differences(page, MEAN))
    return wrong / rounds


def found_better(rounds, seeds, examples, sd_of_others=(), reference="A"):
    """Share of pages in which B, better than A by 3 points up to 5 seeds and by 2 at 10, is told from it.

    And the share with Holm's correction, which knows no planned pairs. Both are right on 90 % of the examples and
    differ by 1 point between seeds. sd_of_others: spreads of the seeds of further candidates, which are right on 70 %.
    """
    rng = np.random.default_rng(0)
    found = np.zeros(2)
    for _ in range(rounds):
        own = rng.normal(size=(1, examples))

        def candidate(accuracy, sd, own=own):
            level = np.clip(accuracy + sd * rng.normal(size=(seeds, 1)), 0.02, 0.98)
            noise = rng.normal(size=(seeds, examples))
            return scores(((own + noise) / 2**0.5 < norm.ppf(level)).astype(float))

        page = {"A": candidate(0.9, 0.01), "B": candidate(0.93 if seeds <= 5 else 0.92, 0.01)}
        page |= {f"C{i}": candidate(0.7, sd) for i, sd in enumerate(sd_of_others)}
        entries = differences({reference: page[reference], **page}, ACCURACY)
        pair = next(i for i, one in enumerate(entries) if {one.a, one.b} == {"A", "B"})
        by_holm = corrected({i: one.p for i, one in enumerate(entries)})[pair].p
        found += [entries[pair].p_holm < 1 - LEVEL, by_holm < 1 - LEVEL]
    return found / rounds


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
@pytest.mark.parametrize(("seeds", "examples"), [(3, 100), (5, 10), (10, 100)])
def test_intervals_hold_the_truth_as_often_as_they_say(seeds, examples, share):
    """Of 400 rounds, 95 ± 3 % (2.8 standard errors) and what Satterthwaite's approximation is off by."""
    assert 0.91 <= covered(400, seeds, examples, share, 0.3) <= 0.985


def test_intervals_over_groups_hold_the_truth_too():
    """Six speakers with 50 equal takes each; the bootstrap over takes has 56 %."""
    assert 0.91 <= covered(400, 5, 6, 0.2, 0.3, per_group=50) <= 0.99


@pytest.mark.parametrize("examples", [40, 300])
def test_intervals_of_an_accuracy_hold_it(examples):
    assert 0.91 <= covered_accuracy(300, 5, examples) <= 0.99


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_of_six_equal_candidates_one_is_seldom_called_better(share):
    assert told_apart(150, 3, 50, share) <= 0.1  # 7 % and 1.5 standard errors


def test_an_unstable_third_candidate_costs_little_power():
    """Pooling the seeds' variance over all pairs found 0 % beside it."""
    assert found_better(60, 10, 1000, (0.2,))[0] >= 0.8


def test_beside_two_unstable_candidates_a_planned_pair_is_found_more_often():
    """As a page of 3,000 examples shows it; a pair without the reference keeps most of its chance."""
    planned, by_holm = found_better(60, 5, 300, (0.2, 0.2))
    assert planned >= by_holm + 0.05
    other, by_holm = found_better(60, 5, 300, (0.2, 0.2), "C0")
    assert by_holm > other >= by_holm / 2


def main():
    shares = (0, 0.1, 0.5, 0.9)
    heads = [f"difference, {100 * share:g} %" for share in shares]
    print(f"| seeds | test examples | {' | '.join(heads)} | an accuracy of 90 % |")
    print(f"|{' --- |' * (len(heads) + 3)}")
    for seeds, examples in product((3, 5, 10), (10, 100, 1000)):
        rounds = 3000 if examples < 1000 else 500
        found = [covered(rounds, seeds, examples, share, 0.3) for share in shares]
        cells = [f"{100 * one:.1f}" for one in (*found, covered_accuracy(rounds, seeds, examples))]
        print(f"| {seeds} | {examples:,} | {' | '.join(cells)} |")
    for seeds in (3, 5, 10):
        found = f"{100 * covered(4000, seeds, 6, 0.3, 0.3, per_group=50):.1f}"
        print(f"{seeds} seeds x 6 groups of 50: {found}")
        found = [f"{100 * told_apart(1000, seeds, 100, share):.1f}" for share in (0.1, 0.5, 0.9)]
        print(f"{seeds} seeds x 100 examples, six equal, any called better: {', '.join(found)} %")
    print(
        "| seeds | better by | alone | one unstable | two unstable | with Holm | unplanned | with Holm |"
    )
    for seeds in (3, 5, 10):
        others = [(), (0.2,), (0.2, 0.2)]
        found = [found_better(500, seeds, 1000, sds) for sds in others]
        cells = [*(one[0] for one in found), found[-1][1]]
        cells += [*found_better(500, seeds, 1000, others[-1], "C0")]
        shown = " | ".join(f"{100 * one:.0f}" for one in cells)
        print(f"| {seeds} | {3 if seeds <= 5 else 2} points | {shown} |")


if __name__ == "__main__":
    main()
