"""Seeds behind a mean: two groups of them, one that decides, and most of them ahead of all of a rival's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import comb
from statistics import median

import numpy as np

from seqkit.comparison.types import Metric, Results, Row

GAPS = {
    3: 0.997,
    4: 0.951,
    5: 0.874,
    6: 0.798,
    8: 0.683,
    10: 0.609,
    15: 0.509,
    20: 0.458,
    30: 0.398,
}
"""Number of seeds, and the share of their range that the largest gap takes in 1 of 200 normal samples (simulated)."""

CHANCE = 0.02
"""Seeds of a candidate ahead of all of a rival are told from this probability of as many of equal candidates."""

NOISE = 4
"""A gap between two shares counts from so many standard deviations of a share of the test examples."""


def groups(row: Row, results: Results) -> str:
    """A sentence if the seeds fall into two groups, or one lies far from all others; empty where nothing stands out.

    The largest gap between neighbours takes more of their range than in 99.5 % of normal samples (`GAPS`), and is more
    than test examples and rounding explain.
    """
    metric = results.metric
    values = _best_first(row, results)
    if len(values) < min(GAPS) or row.mean is None:
        return ""
    gaps = [abs(a - b) for a, b in pairwise(values)]
    number = gaps.index(max(gaps)) + 1
    least = results.least / metric.scale
    if metric.proportion:
        variance = max(row.mean * (1 - row.mean), 0.0) / max(results.num_test, 1)
        least = max(least, NOISE * variance**0.5)
    share = float(np.interp(len(values), list(GAPS), list(GAPS.values())))
    if max(gaps) <= max(least, share * sum(gaps)):
        return ""
    ahead = values[:number]
    behind = values[number:]
    if min(len(ahead), len(behind)) == 1:
        alone, others = sorted((ahead, behind), key=len)
        bounds = f"between {metric.number(others[-1])} and {metric.value(others[0])}"
        if len(set(others)) == 1:
            bounds = f"at {metric.value(others[0])}"
        return f"All seeds of {row.name} but one lie {bounds}, and that one has {metric.value(alone[0])}."
    reached = f"reach {metric.value(ahead[-1])} or better"
    if ahead[-1] == metric.perfect:
        reached = f"have {metric.value(ahead[-1])}"
    text = f"{len(ahead)} of {len(values)} seeds of {row.name} {reached}"
    return f"{text}, the others {metric.value(behind[0])} or worse ({_span(row, values, metric)})."


def ahead_of_all(one: Row, other: Row, results: Results) -> str:
    """A sentence if more seeds of one are better than every seed of the other than equal candidates show; else empty.

    Of s and t seeds of equal candidates, the best n are all of one with the probability C(s + t - n, t) / C(s + t, t)
    on either side, whatever their distribution (Rosenbaum 1954). It is said below `CHANCE`.
    """
    metric = results.metric
    for mine, theirs in ((one, other), (other, one)):
        values = _best_first(mine, results)
        rivals = _best_first(theirs, results)
        if not (values and rivals):
            continue
        number = sum(metric.is_better(value, rivals[0]) for value in values)
        total = len(values) + len(rivals)
        chance = 2 * comb(total - number, len(rivals)) / comb(total, len(rivals))
        if chance < CHANCE:
            spans = f"{_span(mine, values, metric)}; {_span(theirs, rivals, metric)}"
            who = f"{number} of {len(values)} seeds of {mine.name} are better than every seed of {theirs.name}"
            often = f"in {100 * chance:.2g} % of comparisons"
            return f"{who} ({spans}). On these test examples, equal candidates show that {often}."
    return ""


def _span(row: Row, values: Sequence[float], metric: Metric) -> str:
    """Median, worst and best of a candidate's values, which have the best first."""
    bounds = f"from {metric.number(values[-1])} to {metric.value(values[0])}"
    return f"{row.name}: median {metric.number(median(values))}, {bounds}"


def _best_first(row: Row, results: Results) -> list[float]:
    values = [run.value for run in row.sound if run.value is not None]
    return sorted(values, reverse=results.metric.higher_is_better)
