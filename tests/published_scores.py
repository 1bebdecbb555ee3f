"""What a reader computes from a published scores.npz, with NumPy and SciPy alone, as docs/compare.md says it."""

from itertools import combinations

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
    df = variance**2 / (
        of_seeds**2 / (s - 1) + of_units**2 / (u - 1) + of_rest**2 / ((s - 1) * (u - 1))
    )
    return variance / (s * u), max(df, min(s, u) - 1)


def interval(x):
    """Of the mean of a table [seeds, units]."""
    variance, df = variance_of_mean(x)
    half = students_t.ppf(0.975, df) * variance**0.5
    return x.mean() - half, x.mean() + half


def variance_of_difference(a, b):
    """Of the mean of a - b, tables [seeds, units] of the same units, and its degrees of freedom.

    Units are paired. The seeds of a are other draws than those of b.
    """
    u = a.shape[1]
    values, dfs = [(a.mean(0) - b.mean(0)).var(ddof=1) / u], [u - 1]
    for x in (a, b):
        s = len(x)
        rows, columns = x.mean(1, keepdims=True), x.mean(0)
        values.append(rows.var(ddof=1) / s)
        values.append(-((x - rows - columns + x.mean()) ** 2).sum() / ((s - 1) * (u - 1)) / (s * u))
        dfs += [s - 1, (s - 1) * (u - 1)]
    variance = max(sum(values), -sum(v for v in values if v < 0) / 2)
    df = variance**2 / sum(v**2 / df for v, df in zip(values, dfs)) if variance else 1
    return variance, max(df, min(dfs))


def correction(p, reference):
    """By pair: the corrected p-value, and the part of the 5 % at which the pair is tested, as docs/compare.md says it.

    The pairs with the reference begin with four fifths of the 5 %, and hand over half of that in equal instalments, one
    for each that is told apart. The other pairs have the rest. Equal p-values of a kind have the part of the first.
    """
    found, largest, final, equal = {}, 0.0, None, {}
    mine = {pair: p[pair] for pair in p if reference in pair}
    rest = {pair: p[pair] for pair in p if reference not in pair}
    have, instalment = 0.8, 0.4 / max(len(mine), 1)
    while mine or rest:
        have = 0.0 if not mine else have if rest else 1.0
        parts = dict.fromkeys(mine, have / max(len(mine), 1))
        parts |= dict.fromkeys(rest, (1 - have) / max(len(rest), 1))
        ratio, pair = min((p[pair] / part, pair) for pair, part in parts.items())
        largest = max(largest, min(1, ratio))
        if largest >= 0.05:
            final = final or parts
        part = equal.setdefault((pair in mine, f"{p[pair]:.9g}"), (final or parts)[pair])
        found[pair] = largest, part
        have -= instalment if pair in mine else 0
        (mine if pair in mine else rest).pop(pair)
    return found


def differences(tables, *, proportion):
    """By pair of names: p, p after correction for all pairs, and the interval with the same correction."""
    found = {}
    for one, other in combinations(tables, 2):
        a, b = tables[one], tables[other]
        variance, df = variance_of_difference(a, b)
        found[one, other] = (a.mean() - b.mean(), variance, df, a.shape[1])
    p = {}
    for pair, (mean, variance, df, u) in found.items():
        if variance > 1e-24:
            p[pair] = 2 * students_t.sf(abs(mean) / variance**0.5, df)
        else:
            p[pair] = float(mean == 0) if not proportion or mean == 0 else 0.5 ** (u - 1)
    adjusted = {}
    for pair, (corrected, part) in correction(p, next(iter(tables))).items():
        mean, variance, df, u = found[pair]
        tail = 0.025 * part
        half = students_t.isf(tail, df) * variance**0.5 if variance > 1e-24 else 0.0
        # nothing varies: as far as the interval of a share of 0
        if proportion and variance <= 1e-24:
            half = beta.isf(tail, 1, u)
        bound = 1 if proportion else np.inf
        adjusted[pair] = (p[pair], corrected, (max(mean - half, -bound), min(mean + half, bound)))
    return adjusted


def interval_of_share(x, answers):
    """Of a mean from 0 to 1 (Clopper and Pearson 1934; Korn and Graubard 1998)."""
    mean, u = x.mean(), x.shape[1]
    if mean in (0, 1):  # nothing varies: as if each unit had been seen once
        return (beta.ppf(0.025, u, 1), 1.0) if mean else (0.0, beta.ppf(0.975, 1, u))
    variance, df = variance_of_mean(x)
    count = (
        mean
        * (1 - mean)
        / variance
        * (students_t.ppf(0.975, u - 1) / students_t.ppf(0.975, df)) ** 2
    )
    count = min(count, answers)
    hits = mean * count
    return beta.ppf(0.025, hits, count - hits + 1), beta.ppf(0.975, hits + 1, count - hits)
