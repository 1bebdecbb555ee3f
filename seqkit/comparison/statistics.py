"""Means, standard deviations, and paired bootstrap intervals over seeds and test examples.

s seeds · e test examples · r resamples
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seqkit.report.numbers import Metric

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Scores:
    """Scores of a candidate's test examples: numerators and denominators [s e] of the seeds that finished."""

    seeds: tuple[int, ...]
    numerator: np.ndarray
    denominator: np.ndarray

    @classmethod
    def of(cls, runs: Sequence[tuple[int, Sequence[float], Sequence[float]]]) -> Scores:
        """Scores from (seed, numerators, denominators) of each run."""
        seeds, numerators, denominators = zip(*sorted(runs))
        return cls(seeds, np.array(numerators, dtype=float), np.array(denominators, dtype=float))

    def only(self, seeds: Sequence[int]) -> Scores:
        """Keeps the scores of the given seeds."""
        rows = [self.seeds.index(seed) for seed in seeds]
        return Scores(tuple(seeds), self.numerator[rows], self.denominator[rows])

    def examples(self, chosen: np.ndarray) -> Scores:
        """Keeps the scores of the given test examples."""
        return Scores(self.seeds, self.numerator[:, chosen], self.denominator[:, chosen])

    def values(self, metric: Metric) -> np.ndarray:
        """The metric of each seed, [s]."""
        return _value(self.numerator.sum(axis=1), self.denominator.sum(axis=1), metric)


class Difference(NamedTuple):
    """a - b: the mean over seeds, its interval (None: there is nothing to resample), and what was paired."""

    difference: float
    interval: tuple[float, float] | None
    pairs: str


def spread(scores: Scores, metric: Metric) -> tuple[float, float | None, tuple[float, float] | None]:
    """Mean over seeds, standard deviation over seeds (None: one seed), bootstrap interval of the mean.

    The interval is None where there is one seed and one example, such as one graph: nothing can be resampled.
    """
    values = scores.values(metric)
    resampled = _resampled(scores, metric, _weights(scores, np.random.default_rng(0)))
    return (
        float(values.mean()),
        float(values.std(ddof=1)) if len(values) > 1 else None,
        _interval(resampled) if scores.numerator.size > 1 else None,
    )


def difference(a: Scores, b: Scores, metric: Metric) -> Difference:
    """Bootstrap of mean(a) - mean(b), paired where it can be (Efron and Tibshirani 1993, chapter 8).

    Seeds are drawn with replacement, and test examples with replacement; where both have the same ones, both get the
    same draw, so that what is common to both cancels. With few seeds the interval is too narrow rather than too wide.
    """
    common = [seed for seed in a.seeds if seed in b.seeds]
    one, other = (a.only(common), b.only(common)) if common else (a, b)
    same_examples = one.numerator.shape[1] == other.numerator.shape[1]
    rng = np.random.default_rng(0)
    weights = _weights(one, rng)
    mine = _resampled(one, metric, weights)
    if common and same_examples:
        theirs, pairs = _resampled(other, metric, weights), f"{len(common)} seeds x {one.numerator.shape[1]} examples"
    elif common:
        theirs = _resampled(other, metric, (weights[0], _weights(other, rng)[1]))
        pairs = f"{len(common)} seeds; their test examples differ"
    else:
        theirs, pairs = (
            _resampled(other, metric, _weights(other, rng)),
            "nothing is paired: they have no seed in common",
        )
    observed = float(one.values(metric).mean() - other.values(metric).mean())
    resampled = one.numerator.size > 1 or other.numerator.size > 1
    return Difference(observed, _interval(mine - theirs) if resampled else None, pairs)


def _weights(scores: Scores, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Number of times that each seed [r s] and each example [r e] is drawn; of seeds, the share."""
    num_seeds, num_examples = scores.numerator.shape
    seeds = rng.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=RESAMPLES)
    examples = rng.multinomial(num_examples, np.full(num_examples, 1 / num_examples), size=RESAMPLES)
    return seeds / num_seeds, examples.astype(np.float32)


def _resampled(scores: Scores, metric: Metric, weights: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The mean over seeds of the metric for every resample, [r]."""
    seeds, examples = weights
    numerator, denominator = (x.astype(np.float32) @ examples.T for x in (scores.numerator, scores.denominator))
    return (seeds * _value(numerator, denominator, metric).T).sum(axis=1)


def _value(numerator: np.ndarray, denominator: np.ndarray, metric: Metric) -> np.ndarray:
    mean = numerator / np.maximum(denominator, 1e-12)
    return np.sqrt(mean) if metric.root else mean


def _interval(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
