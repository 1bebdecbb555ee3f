"""Verdicts after every round of seeds: better or worse by more than δ, equal within δ; valid however often one looks.

Over seeds, the mean difference on these test examples lies in a confidence sequence at all rounds at once: the Gaussian
mixture of scale-invariant likelihood ratios of Wang and Ramdas (2024, "Anytime-valid t-tests and confidence sequences
for Gaussian means with unknown variance"). Seeds are paired, so that both candidates may have a variance of their own.
The test examples do not become more with seeds: the half width of a t interval for their choice stays. Both are added
as squares (Banerjee 1961, who proves it for one round). Bonferroni's correction is for the planned pairs: each
candidate with the reference. `tests/comparison/test_sequential.py` simulates how often a verdict is false.

s seeds · u units: the examples, or groups of them that are not independent
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from seqkit.comparison.settings import MIN_SEEDS
from seqkit.comparison.statistics import LEVEL, Scores, mean_squares
from seqkit.comparison.types import Difference, Interval, Metric, Verdict

MIXTURE = 30.0
"""Variance of the mixture over the difference in standard deviations of a seed's difference.

Less decides small differences with fewer seeds, more decides large ones: 3 of 20 seeds in place of 4."""


LOWERED = 0.75
"""Error of both parts, as a share of the error allowed.

At all rounds together, the sum of squares misses the truth 1.15 times as often as either part may within 20 seeds, and
1.35 times within 100."""


UNDECIDED = ("too close for these test examples", "undecided")
"""Verdicts that say nothing of the candidates."""


class Bounds(NamedTuple):
    """A difference a - b with the half width of its confidence sequence over seeds, and that of the test examples."""

    difference: float
    of_seeds: float
    of_examples: float

    @property
    def half(self) -> float:
        """Half width of the interval of the difference for other seeds and other test examples."""
        return math.hypot(self.of_seeds, self.of_examples)

    @property
    def interval(self) -> Interval | None:
        """The interval; None: it is unbounded, after too few seeds for so many pairs."""
        if math.isinf(self.half):
            return None
        return self.difference - self.half, self.difference + self.half

    def verdict(self, delta: float, sign: int) -> Verdict:
        """Verdict of these bounds on a. sign: 1 where more is better, else -1."""
        gain = sign * self.difference
        if gain - self.half > delta:
            return "better"
        if gain + self.half < -delta:
            return "worse"
        if abs(gain) + self.half <= delta:
            return "equal"
        # where the mean over all seeds may lie; the examples' width stays, whatever it is
        nearest = max(abs(gain) - self.of_seeds, 0.0)
        farthest = abs(gain) + self.of_seeds
        if nearest > delta - self.of_examples and farthest <= delta + self.of_examples:
            return "too close for these test examples"
        return "undecided"


def planned(
    scores: Mapping[str, Scores], reference: str, metric: Metric, delta: float, num_pairs: int
) -> Iterator[Difference]:
    """The difference of each candidate from the reference, at the round that decided it, else at the last.

    delta: as the page shows it. num_pairs: pairs of the comparison, also of those without scores. Seeds that failed in
    one of both are left out; fewer than `MIN_SEEDS` others give no difference. Later seeds change nothing, so a verdict
    is the same whenever it is made.
    """
    alpha = (1 - LEVEL) / num_pairs
    for name in scores if reference in scores else ():
        if name == reference:
            continue
        found = None
        for number, bounds, identical in _rounds(scores[name], scores[reference], metric, alpha):
            found = Difference(
                a=name,
                b=reference,
                difference=bounds.difference,
                interval=bounds.interval,
                p=None,
                p_holm=None,
                pairs=f"{number} seeds",
                verdict=bounds.verdict(delta / metric.scale, metric.sign),
                seeds=number,
                of_examples=bounds.of_examples,
                identical=identical,
            )
            if found.verdict != "undecided":
                break
        if found is not None:
            yield found


def too_fine(pairs: Sequence[Difference], metric: Metric, delta: float) -> str:
    """In words, that these test examples show no undecided candidate to be equal within delta; empty: they could."""
    widest = max((one.of_examples for one in pairs if one.verdict in UNDECIDED), default=0.0)
    if metric.shown(widest) < delta:
        return ""
    least = f"{metric.number(widest)} {metric.difference_unit}".rstrip()
    return (
        f"The test examples alone leave ± {least}, so no number of seeds shows a difference to be within {delta:g}; "
        f"that takes a margin above {least}, or more test examples"
    )


def _rounds(
    a: Scores, b: Scores, metric: Metric, alpha: float
) -> Iterator[tuple[int, Bounds, bool]]:
    """Bounds after each number of common seeds, and whether all scores are equal."""
    seeds = np.intersect1d(a.seeds, b.seeds)
    mine, theirs = (one.linear(metric)[np.isin(one.seeds, seeds)] for one in (a, b))
    for number in range(MIN_SEEDS, len(seeds) + 1):
        pair = mine[:number], theirs[:number]
        yield number, _bounds(*pair, alpha, metric), np.array_equal(*pair)


def _bounds(a: np.ndarray, b: np.ndarray, alpha: float, metric: Metric) -> Bounds:
    """Bounds of the mean difference of scores [s u] and [s v] of the same seeds; units are paired where u = v."""
    tables = [a - b] if a.shape[1] == b.shape[1] else [a, b]
    rows = a.mean(axis=1) - b.mean(axis=1)
    num_seeds = len(rows)
    least = 0.0  # of the variance over seeds: examples differ from seed to seed by themselves
    variance = 0.0
    for one in tables:
        _, units, rest = mean_squares(one)
        least += rest / one.shape[1]
        variance += max(units - rest, 0.0) / one.size
    num_units = min(one.shape[1] for one in tables)
    level = LOWERED * alpha
    std = max(float(rows.var(ddof=1)), least) ** 0.5
    of_examples = 0.0
    if num_units > 1:
        of_examples = float(stdtrit(num_units - 1, 1 - level / 2)) * variance**0.5
        if metric.proportion:
            # equal answers to all of u units do not exclude a difference (Clopper and Pearson 1934)
            of_examples = max(of_examples, 1 - (level / 2) ** (1 / num_units))
    reached = threshold(num_seeds, level)
    of_seeds = reached * std / num_seeds**0.5 if math.isfinite(reached) else reached
    return Bounds(float(rows.mean()), of_seeds, of_examples)


def threshold(num_seeds: int, alpha: float) -> float:
    """The t statistic that some round reaches with a probability of at most alpha; infinite where no t suffices.

    It is where the likelihood ratio √(1/k) [(1 + x) / (1 + x/k)]^(s/2) is 1/α, with x = t²/(s - 1) and
    k = 1 + s·MIXTURE.
    """
    k = 1 + num_seeds * MIXTURE
    ratio = (k / alpha**2) ** (1 / num_seeds)
    if ratio >= k:
        return float("inf")
    return float(((num_seeds - 1) * (ratio - 1) / (1 - ratio / k)) ** 0.5)
