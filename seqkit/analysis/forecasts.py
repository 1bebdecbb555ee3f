"""Simple forecasts of numbers after a series: a value that repeats, and ridge regression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from einops import rearrange
from torch import Tensor

from seqkit.interfaces import Tokenizer

PERIODS = (4, 7, 12, 24, 48, 52, 96, 168, 365)
"""Steps after which a series may repeat: quarters, days of a week, months, hours of a day, …, days of a year."""


def windows_of(tokenizer: Tokenizer, raws: Sequence[Any]) -> np.ndarray | None:
    """The last steps of each series [m n f], as many as the shortest has; None: the examples are no series."""
    found: list[np.ndarray] = []
    for raw in raws:
        if tokenizer.spec.id_sizes or not (type(raw) is tuple or isinstance(raw, list | np.ndarray | Tensor)):
            return None
        try:
            values = np.asarray(raw, dtype=float)
        except (TypeError, ValueError):
            return None
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or not np.isfinite(values).all() or values.shape[1] != (found or [values])[0].shape[1]:
            return None
        found.append(values)
    shortest = min(map(len, found))
    return np.stack([values[len(values) - shortest :] for values in found])


def forecasts(windows: np.ndarray, asked: np.ndarray, target: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Name and predictions [m k] of methods that take the targets [m k] for the next steps of a column of the series.

    windows, asked: of training and of the examples that are predicted, [m n f]. The column is that which is nearest to
    the target in training.
    """
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    n, f = windows.shape[1:]
    steps = np.arange(target.shape[1])

    def repeated(places: np.ndarray, name: str) -> tuple[str, np.ndarray]:
        """The values of these steps, one for each target."""
        errors = np.nanmean((windows[:, places] - target[..., None]) ** 2, axis=0)
        columns = errors.argmin(axis=1)
        of = "" if f == 1 else f" of column {columns[0] + 1}" if len(set(columns)) == 1 else " of a column each"
        return name.format(of=of), asked[:, places, columns]

    yield repeated(np.full(len(steps), n - 1), "the last value{of}")
    for period in PERIODS:
        if period <= n:
            yield repeated(n - period + steps % period, f"the value{{of}} from {period} steps before")
    known = ~np.isnan(target).any(axis=1)
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 5, 8)))
    flat = [rearrange(each, "m n f -> m (n f)") for each in (windows[known], asked)]
    found = ridge.fit(flat[0], target[known]).predict(flat[1])
    yield "ridge regression on all values", found
