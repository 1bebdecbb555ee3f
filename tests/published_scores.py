"""What a reader computes from a published scores.npz, with NumPy and SciPy alone, as docs/compare.md says it."""

import numpy as np
from scipy.stats import beta
from scipy.stats import t as students_t


def units(scores, name, *, root=False):
    """Scores [seeds, units], whose mean is the metric: a ratio of sums (root: its root), taken as linear in the units.

    A unit is a test example, or a group of examples.
    """
    numerator, denominator = scores[f"{name}/numerator"], scores[f"{name}/denominator"]
    groups = scores.get(f"{name}/groups", np.arange(numerator.shape[1]))
    member = groups[:, None] == np.unique(groups)
    numerator, denominator = numerator @ member, denominator @ member
    ratio = numerator.sum(1, keepdims=True) / denominator.sum(1, keepdims=True)
    change = (numerator - ratio * denominator) / denominator.mean(1, keepdims=True)
    return ratio**0.5 + change / (2 * ratio**0.5) if root else ratio + change


def variance_of_mean(x):
    """Of a table [seeds, units], and its degrees of freedom."""
    s, u = x.shape
    rows, columns = x.mean(1, keepdims=True), x.mean(0)
    of_seeds, of_units = u * rows.var(ddof=1), s * columns.var(ddof=1)
    of_rest = ((x - rows - columns + x.mean()) ** 2).sum() / ((s - 1) * (u - 1))
    variance = max(of_seeds + of_units - of_rest, of_rest / 2)
    df = variance**2 / (of_seeds**2 / (s - 1) + of_units**2 / (u - 1) + of_rest**2 / ((s - 1) * (u - 1)))
    return variance / (s * u), max(df, min(s, u) - 1)


def interval(x):
    """Of the mean of a table [seeds, units]."""
    variance, df = variance_of_mean(x)
    half = students_t.ppf(0.975, df) * variance**0.5
    return x.mean() - half, x.mean() + half


def interval_of_difference(x):
    """Of a difference of two shares."""
    if (x == x[0, 0]).all():  # nothing varies: as far as the interval of a share of 0
        half = beta.ppf(0.975, 1, x.shape[1])
        return max(x[0, 0] - half, -1), min(x[0, 0] + half, 1)
    low, high = interval(x)
    return max(low, -1), min(high, 1)


def interval_of_share(x):
    """Of a mean from 0 to 1 (Clopper and Pearson 1934; Korn and Graubard 1998)."""
    mean, u = x.mean(), x.shape[1]
    if mean in (0, 1):  # nothing varies: as if each unit had been seen once
        return (beta.ppf(0.025, u, 1), 1.0) if mean else (0.0, beta.ppf(0.975, 1, u))
    variance, df = variance_of_mean(x)
    count = mean * (1 - mean) / variance * (students_t.ppf(0.975, u - 1) / students_t.ppf(0.975, df)) ** 2
    hits = mean * count
    return beta.ppf(0.025, hits, count - hits + 1), beta.ppf(0.975, hits + 1, count - hits)
