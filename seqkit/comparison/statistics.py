"""Means and differences with confidence intervals, from crossed random effects of seeds and test examples.

A score of seed s on example e is mean + seed + example + rest; the last three are random (Baayen, Davidson and Bates
2008). The variance of the mean follows from the mean squares of a two-way table (Searle, Casella and McCulloch 1992,
section 4.7), its degrees of freedom from Satterthwaite (1946). `tests/comparison/test_coverage.py` simulates how often
these intervals contain the true value.

s seeds · e test examples · u units: the examples, or groups of them that are not independent
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from scipy import stats

from seqkit.comparison.types import Difference, Interval, Metric

if TYPE_CHECKING:
    from seqkit.comparison.scores import ExampleScores

K = TypeVar("K")

LEVEL = 0.95
"""Confidence level of every interval."""

REST = 0.5
"""Least variance of a mean, as a share of the variance that the mean square of the rest alone gives.

With 3 seeds and 10 examples that have no effects of their own, the estimate may be near zero; without this bound, 84 %
of the intervals contain the true value."""


PLANNED = 0.8
"""Share of the error rate that the pairs with the reference have before any pair is told apart."""


@dataclass(frozen=True)
class Scores:
    """Scores of a candidate's test examples: numerators and denominators [s e] of the seeds that finished.

    groups: [e] number of each example's group (speaker, document), if examples of a group are not independent; None:
    all examples are independent.
    """

    seeds: tuple[int, ...]
    numerator: np.ndarray
    denominator: np.ndarray
    groups: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        runs: Sequence[tuple[int, Sequence[float], Sequence[float]]],
        groups: Sequence[int] | None = None,
    ) -> Scores:
        """Scores from (seed, numerators, denominators) of each run."""
        seeds, numerators, denominators = zip(*sorted(runs))
        of_examples = None if groups is None else np.asarray(groups)
        return cls(
            seeds,
            np.array(numerators, dtype=float),
            np.array(denominators, dtype=float),
            of_examples,
        )

    @classmethod
    def by_seed(cls, scores: Mapping[int, ExampleScores]) -> Scores:
        """Scores of the seeds that finished."""
        first = next(iter(scores.values()))
        runs = [(seed, one.numerator, one.denominator) for seed, one in scores.items()]
        return cls.of(runs, first.groups)

    def arrays(self) -> dict[str, np.ndarray]:
        """All fields by name, as they are published."""
        found = {
            "seeds": np.array(self.seeds),
            "numerator": self.numerator,
            "denominator": self.denominator,
        }
        if self.groups is None:
            return found
        return {**found, "groups": self.groups}

    def values(self, metric: Metric) -> np.ndarray:
        """The metric of each seed, [s]."""
        mean = self.numerator.sum(axis=1) / np.maximum(self.denominator.sum(axis=1), 1e-12)
        return np.sqrt(mean) if metric.root else mean

    def linear(self, metric: Metric) -> np.ndarray:
        """Scores [s u] of the independent units, whose mean is the metric of each seed.

        A metric is a ratio of sums, or the root of one. The score of a unit is the metric plus u times its derivative
        by the unit's weight (linearisation; Särndal, Swensson and Wretman 1992, section 5.5).
        """
        numerator = self.numerator
        denominator = self.denominator
        if self.groups is not None:
            _, unit = np.unique(self.groups, return_inverse=True)
            numerator, denominator = (
                np.stack([np.bincount(unit, weights=row) for row in each])
                for each in (numerator, denominator)
            )
        value = self.values(metric)[:, None]
        ratio = value**2 if metric.root else value
        slope = 1 / np.maximum(denominator.mean(axis=1, keepdims=True), 1e-12)
        if metric.root:
            slope = slope / (2 * np.maximum(value, 1e-12))
        linear: np.ndarray = value + slope * (numerator - ratio * denominator)
        return linear


class Part(NamedTuple):
    """A term of the variance of a mean: a factor times a mean square, with its degrees of freedom."""

    factor: float
    mean_square: float
    df: float


def spread(scores: Scores, metric: Metric) -> tuple[float, float | None, Interval | None]:
    """Mean over seeds, standard deviation over seeds (None: one seed), and interval of the mean.

    With one seed, the interval covers only the choice of test examples; with one unit (a graph), only that of seeds;
    with one of each, it is None. For a proportion it is Korn and Graubard's (1998), which lies between 0 and 1 and has
    a width even at these bounds.
    """
    values = scores.values(metric)
    linear = scores.linear(metric)
    mean = float(values.mean())
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    if not (parts := _crossed(linear)):
        return mean, std, None
    variance, df = _variance(parts)
    if metric.proportion:
        most = float(scores.denominator.sum())
        return mean, std, _proportion(mean, (variance, df), linear.shape[1], most)
    half = float(stats.t.ppf((1 + LEVEL) / 2, df)) * variance**0.5
    return mean, std, (float(linear.mean()) - half, float(linear.mean()) + half)


def differences(scores: Mapping[str, Scores], metric: Metric) -> list[Difference]:
    """The difference of every pair of candidates, in the order of the mapping, corrected for all pairs (`corrected`).

    The pairs with the first candidate are the planned ones. Test examples are paired if both have equally many, so that
    common effects cancel. Seeds are not paired: two candidates draw different weights from the same seed. Each pair has
    its own variance: with a common one, a single unstable candidate would hide all differences. An interval is
    corrected as its p-value is, so it contains zero if the pair is not told apart. If a proportion differs equally on
    all units and seeds, the variance is zero. The interval then has the width that u units cannot exclude (Clopper and
    Pearson 1934, for 0 of u), and p is that of a sign test.
    """
    contrasts = {
        pair: _contrast(scores[pair[0]], scores[pair[1]], metric)
        for pair in combinations(scores, 2)
    }
    p = {pair: own for pair, one in contrasts.items() if (own := one.tested(LEVEL)[1]) is not None}
    steps = corrected(p, [pair for pair in p if pair[0] == next(iter(scores))])
    found = []
    for (a, b), one in contrasts.items():
        step = steps.get((a, b))
        interval = one.tested(1 - (1 - LEVEL) * step.weight)[0] if step else None
        found.append(
            Difference(
                a=a,
                b=b,
                difference=one.difference,
                interval=interval,
                p=p.get((a, b)),
                p_holm=step.p if step else None,
                pairs=one.pairs,
                identical=_identical(scores[a], scores[b]),
            )
        )
    return found


def _identical(a: Scores, b: Scores) -> bool:
    return a.seeds == b.seeds and all(
        np.array_equal(one, other)
        for one, other in ((a.numerator, b.numerator), (a.denominator, b.denominator))
    )


class _Contrast(NamedTuple):
    """A difference, the parts of its variance, the number of units of the first, and what was paired."""

    difference: float
    parts: list[Part]
    num_units: int
    pairs: str
    is_proportion: bool

    def tested(self, level: float) -> tuple[Interval | None, float | None]:
        """The interval of the difference at this level, and its p-value; None: one seed and one unit."""
        if not self.parts:
            return None, None
        variance, df = _variance(self.parts)
        if variance > 0:
            half = float(stats.t.ppf((1 + level) / 2, df)) * variance**0.5
            p = float(2 * stats.t.sf(abs(self.difference) / variance**0.5, df))
        elif self.is_proportion:
            half = float(stats.beta.ppf((1 + level) / 2, 1, self.num_units))
            p = 1.0 if self.difference == 0 else 0.5 ** (self.num_units - 1)
        else:
            half = 0.0
            p = float(self.difference == 0)
        limit = 1.0 if self.is_proportion else float("inf")
        return (max(self.difference - half, -limit), min(self.difference + half, limit)), p


def _contrast(a: Scores, b: Scores, metric: Metric) -> _Contrast:
    mine = a.linear(metric)
    theirs = b.linear(metric)
    if mine.shape[1] == theirs.shape[1]:
        parts = _examples_paired(mine, theirs)
        units = mine.shape[1]
        if a.groups is None:
            what, of = ("example", "")
        else:
            what, of = ("group", f" of {a.numerator.shape[1]:,} examples")
        pairs = f"{units:,} {what}{'s' * (units != 1)}{of}"
    else:
        parts = [*_crossed(mine), *_crossed(theirs)]
        pairs = "not at all: other test examples"
    observed = float(a.values(metric).mean() - b.values(metric).mean())
    return _Contrast(observed, parts, mine.shape[1], pairs, metric.proportion)


class Corrected(NamedTuple):
    """A p-value after correction, and the share of the error rate at which its pair was tested."""

    p: float
    weight: float


def corrected(p: Mapping[K, float], planned: Collection[K] = ()) -> dict[K, Corrected]:
    """p-values, corrected so that at most 5 % of pages call any pair different that is equal.

    The weighted procedure of Holm (1979), with weights that depend on the pairs that are left: the smallest p / weight
    of these is tested at 5 %, and if it is below, its pair leaves. Planned pairs share `PLANNED` of the error rate,
    and hand half of that over to the others, in equal parts, as they leave. When one of the two families is empty, the
    other has all. As no weight falls when a pair leaves, this is a closed test of weighted Bonferroni tests (Hommel,
    Bretz and Maurer 2007; as graphs, Bretz et al. 2009). Without planned pairs, it is Holm's unweighted procedure.
    """
    left = list(p)
    num_planned = sum(pair in planned for pair in p)
    largest = 0.0
    found: dict[K, Corrected] = {}
    kept: dict[K, float] = {}
    of_equals: dict[tuple[bool, str], float] = {}
    while left:
        own = [pair for pair in left if pair in planned]
        share = float(bool(own))
        if 0 < len(own) < len(left):
            share = PLANNED * (1 + len(own) / num_planned) / 2
        others = (1 - share) / max(len(left) - len(own), 1)
        weights = {pair: share / len(own) if pair in own else others for pair in left}
        pair = min(left, key=lambda one: p[one] / weights[one])
        largest = max(largest, min(1.0, p[pair] / weights[pair]))
        # pairs that are not told apart have the weights of the step at which the test ends
        if largest >= 1 - LEVEL and not kept:
            kept = weights
        # equal p-values have one weight, that of the first: which leaves first is the order of names
        key = (pair in planned, f"{p[pair]:.9g}")
        weight = of_equals.setdefault(key, kept.get(pair, weights[pair]))
        found[pair] = Corrected(largest, weight)
        left.remove(pair)
    return found


def _crossed(linear: np.ndarray) -> list[Part]:
    """Variance of the mean of scores [s u]: parts of seeds and units, minus the rest, which is in both."""
    num_seeds, num_units = linear.shape
    total = num_seeds * num_units
    seeds, units, rest = mean_squares(linear)
    if total == 1:
        return []
    if num_seeds == 1:
        return [Part(1 / total, units, num_units - 1)]
    if num_units == 1:
        return [Part(1 / total, seeds, num_seeds - 1)]
    return [
        Part(1 / total, seeds, num_seeds - 1),
        Part(1 / total, units, num_units - 1),
        Part(-1 / total, rest, (num_seeds - 1) * (num_units - 1)),
    ]


def _examples_paired(a: np.ndarray, b: np.ndarray) -> list[Part]:
    """Variance of a difference [s u] - [t u] with common units and separate seeds."""
    if a.shape[1] == 1:
        return [*_crossed(a), *_crossed(b)]
    units = (a.mean(axis=0) - b.mean(axis=0)).var(ddof=1)
    parts = [Part(1 / a.shape[1], float(units), a.shape[1] - 1)]
    for one in (a, b):
        found = _crossed(one)
        parts += [found[0], found[2]] if len(found) == 3 else []
    return parts


def mean_squares(x: np.ndarray) -> tuple[float, float, float]:
    """Mean squares of scores [s u]: of seeds, units and the rest; 0 where that has no degrees of freedom."""
    num_seeds, num_units = x.shape
    rows = x.mean(axis=1, keepdims=True)
    columns = x.mean(axis=0)
    seeds = num_units * float(rows.var(ddof=1)) if num_seeds > 1 else 0.0
    units = num_seeds * float(columns.var(ddof=1)) if num_units > 1 else 0.0
    df = (num_seeds - 1) * (num_units - 1)
    rest = float(((x - rows - columns + x.mean()) ** 2).sum()) / df if df else 0.0
    return seeds, units, rest


def _variance(parts: Sequence[Part]) -> tuple[float, float]:
    """Sum of the parts, at least `REST` times what is subtracted, and its degrees of freedom (Satterthwaite 1946)."""
    values = [part.factor * part.mean_square for part in parts]
    variance = max(sum(values), REST * -sum(value for value in values if value < 0), 0.0)
    squares = sum(value**2 / part.df for value, part in zip(values, parts))
    least = min(part.df for part in parts)
    # rounding errors of equal numbers have a variance, too
    if variance <= 1e-24 or squares == 0:
        return 0.0, least
    return variance, max(variance**2 / squares, least)


def _proportion(mean: float, own: tuple[float, float], num_units: int, most: float) -> Interval:
    """Clopper and Pearson's interval for as many independent answers as give this variance (Korn, Graubard).

    own: variance of the mean, and its degrees of freedom. most: answers that were given: no more count.
    """
    variance, df = own
    count = float(num_units)
    if variance > 0 and 0 < mean < 1:
        by_normal = stats.t.ppf((1 + LEVEL) / 2, max(num_units - 1, 1)) / stats.t.ppf(
            (1 + LEVEL) / 2, df
        )
        count = min(mean * (1 - mean) / variance * float(by_normal) ** 2, most)
    successes = mean * count
    tail = (1 - LEVEL) / 2
    if successes > 0:
        low = float(stats.beta.ppf(tail, successes, count - successes + 1))
    else:
        low = 0.0
    if successes < count:
        high = float(stats.beta.ppf(1 - tail, successes + 1, count - successes))
    else:
        high = 1.0
    return low, high
