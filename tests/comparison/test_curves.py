"""Curves over the length of training: exchange rates and crossovers that are known, and how often intervals hold."""

import numpy as np
import pytest

from seqkit.comparison.curves import Curve, crossovers, exchange_rate
from seqkit.comparison.scores import METRICS
from seqkit.comparison.statistics import Scores
from seqkit.comparison.types import Results
from seqkit.report.numbers import times
from seqkit.report.sentences import exchange_sentence

STEPS = (100, 200, 400)
LOSS, ACCURACY = METRICS["loss"], METRICS["accuracy"]
RESULTS = Results(title="", recipe="", metric=LOSS, candidates=[])


def curve(name, value, *, noise=0.0, rng=None, seeds=(1, 2, 3, 4, 5), examples=60, metric=LOSS, costs=(), steps=STEPS):
    """A candidate whose mean score after n steps is value(n), with an effect of each seed and example."""
    rng = rng or np.random.default_rng(0)
    points = {}
    for n in steps:
        table = value(n) + noise * (rng.normal(size=(len(seeds), 1)) + rng.normal(size=(len(seeds), examples)))
        points[n] = Scores.of([(s, row, np.ones(examples)) for s, row in zip(seeds, table)])
    return Curve(name, points, metric, dict(costs))


def falling(height, speed=1.0):
    """A loss that falls by the logarithm of the steps."""
    return lambda n: height - speed * np.log2(n / 100)


@pytest.mark.parametrize("swapped", [False, True])
def test_one_that_is_ahead_by_a_doubling_needs_half_of_the_steps(swapped):
    pair = [curve("A", falling(5.0)), curve("B", falling(4.0))]  # B after 200 steps is where A is after 400
    found = exchange_rate(*(pair[::-1] if swapped else pair), LOSS)
    assert (found.worse, found.better) == ("A", "B")
    assert found.steps == pytest.approx(2.0, rel=0.01)
    assert not found.is_more
    told = exchange_sentence(found, RESULTS)
    assert told.startswith("A needs 2.00 × the steps of B to reach 3.0000 nats, the mean of A after 400 steps (95 %")


def test_of_an_accuracy_the_higher_one_is_better():
    rising = {"A": lambda n: 0.5 + 0.1 * np.log2(n / 100), "B": lambda n: 0.6 + 0.1 * np.log2(n / 100)}
    found = exchange_rate(*(curve(name, value, metric=ACCURACY) for name, value in rising.items()), ACCURACY)
    assert (found.worse, found.steps) == ("A", pytest.approx(2.0, rel=0.01))


def test_costs_of_a_step_turn_steps_into_flops_and_seconds():
    slow, fast = {"FLOPs": 6.0, "time": 0.4}, {"FLOPs": 3.0, "time": 0.1}
    found = exchange_rate(curve("A", falling(5.0), costs=slow), curve("B", falling(4.0), costs=fast), LOSS)
    assert found.by_unit == {"FLOPs": 2.0, "time": pytest.approx(4.0)}
    assert f"This is {times(2 * found.steps)} the FLOPs and {times(4 * found.steps)} the time." in exchange_sentence(
        found, RESULTS
    )


def test_one_that_is_better_at_its_shortest_needs_less_than_any_ratio_that_was_measured():
    found = exchange_rate(curve("A", falling(9.0)), curve("B", falling(4.0)), LOSS)
    assert found.is_more
    assert found.steps == pytest.approx(4.0)
    assert "more than 4.00 ×" in exchange_sentence(found, RESULTS)


def test_bounds_that_lie_beyond_the_lengths_are_not_made_up():
    rng = np.random.default_rng(1)
    found = exchange_rate(
        curve("A", falling(4.01), noise=0.5, rng=rng), curve("B", falling(4.0), noise=0.5, rng=rng), LOSS
    )
    assert found.low is None  # they are not told apart at their end, so either may be ahead
    assert "A is not shown to need more training than" in exchange_sentence(found, RESULTS)


def test_curves_without_a_common_seed_have_no_ratio():
    assert exchange_rate(curve("A", falling(5.0), seeds=(1, 2)), curve("B", falling(4.0), seeds=(3, 4)), LOSS) is None
    assert crossovers([curve("A", falling(5.0), seeds=(1, 2)), curve("B", falling(4.0), seeds=(3, 4))], LOSS) == []


@pytest.mark.slow
def test_the_interval_of_an_exchange_rate_holds_the_truth():
    rng, held, rounds = np.random.default_rng(0), 0, 60
    for _ in range(rounds):
        pair = [curve("A", falling(5.0), noise=0.3, rng=rng), curve("B", falling(4.0), noise=0.3, rng=rng)]
        found = exchange_rate(*pair, LOSS)
        held += (found.low or 0.0) <= 2.0 <= (found.high or np.inf)
    assert held >= 0.86 * rounds  # 95 % less 3 standard errors


# ── crossovers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_that_change_places_cross_where_they_are_equal():
    rng = np.random.default_rng(0)
    slow, quick = falling(4.5, speed=1.0), falling(4.0, speed=0.5)  # equal after one doubling
    pair = [curve("slow", slow, noise=0.05, rng=rng), curve("quick", quick, noise=0.05, rng=rng)]
    (found,) = crossovers(pair, LOSS)
    assert (found.first, found.then) == ("quick", "slow")
    assert found.steps == pytest.approx(200, rel=0.2)
    low, high = found.interval
    assert 100 < low < found.steps < high < 400
    (turned,) = crossovers(pair[::-1], LOSS)
    assert (turned.first, turned.then) == ("quick", "slow")


def test_a_change_of_places_that_noise_can_make_is_no_crossover():
    rng = np.random.default_rng(0)
    slow, quick = falling(4.05, speed=1.0), falling(4.0, speed=0.95)
    assert not crossovers([curve("A", slow, noise=0.5, rng=rng), curve("B", quick, noise=0.5, rng=rng)], LOSS)
    assert not crossovers([curve("A", falling(5.0)), curve("B", falling(4.0))], LOSS)


def test_between_two_points_every_example_is_interpolated_in_the_logarithm_of_the_steps():
    one = curve("A", falling(5.0), noise=0.3)
    seeds = [1, 2, 3, 4, 5]
    middle = one.at((100 * 200) ** 0.5, seeds)
    assert np.allclose(middle, (one.at(100, seeds) + one.at(200, seeds)) / 2)
    assert np.allclose(one.at(400, [2, 4])[1], one.at(400, seeds)[3])
