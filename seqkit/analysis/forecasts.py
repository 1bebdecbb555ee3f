"""Simple forecasts of numbers after a series: a value that repeats, and ridge regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from einops import rearrange

PERIODS = (4, 7, 12, 24, 48, 52, 96, 168, 365)
"""Steps after which a series may repeat: quarters, days of a week, months, hours of a day, …, days of a year."""


def forecast(
    train: Sequence[Any], test: Sequence[Any], target: np.ndarray
) -> tuple[str, np.ndarray]:
    """Name and test predictions [m k] of the forecast with the least error on the last fifth of the training series.

    train, test: series [n] or [n f], of which the last steps count, as many as the shortest has. target: [m k] numbers,
    the next k steps of a column. The forecasts are the last value, the values one of `PERIODS` before, both of the
    column that is nearest to the target, and ridge regression on all values.
    """
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    arrays = [np.asarray(raw, dtype=float).reshape(len(raw), -1) for raw in (*train, *test)]
    n = min(map(len, arrays))
    windows = np.stack([values[len(values) - n :] for values in arrays])
    m = len(train)
    flat = rearrange(windows, "m n f -> m (n f)")
    steps = np.arange(target.shape[1])
    held_out = max(1, m // 5)
    places = {"the last value": np.full(len(steps), n - 1)}
    places |= {f"the value from {p} steps before": n - p + steps % p for p in PERIODS if p <= n}
    found: dict[str, np.ndarray] = {}
    for name, place in places.items():
        column = np.nanmean((windows[:m, place] - target[..., None]) ** 2, axis=(0, 1)).argmin()
        found[name] = windows[:, place, column]
    known = ~np.isnan(target).any(axis=1)
    name = "ridge regression on all values"
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 5, 8)))
    fitted = known & (np.arange(m) < m - held_out)
    if fitted.any():
        found[name] = (
            ridge.fit(flat[:m][fitted], target[fitted]).predict(flat).reshape(len(flat), -1)
        )
    errors = {
        name: np.nanmean((values[:m] - target)[-held_out:] ** 2) for name, values in found.items()
    }
    best = min(errors, key=errors.__getitem__)
    if best == name:  # once more, with the held-out series
        found[best] = ridge.fit(flat[:m][known], target[known]).predict(flat)
    return best, found[best][m:]
