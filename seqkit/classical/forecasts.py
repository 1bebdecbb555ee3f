"""Forecasts of the next values of a series: a value that repeats, and ridge regression on values or differences.

m windows · n steps · c columns · k targets: the next values of one column
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from einops import rearrange
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

PERIODS = (1, 4, 7, 12, 24, 48, 52, 96, 168, 365)
"""Steps after which a series may repeat: at once, quarters, days of a week, months, hours of a day, …, a year."""

PENALTIES = np.logspace(-2, 5, 8)
"""Penalties of ridge regression on standardised windows."""

MAX_VALUES = 1_000
"""Most values of a window of which ridge regression reads all columns; of a larger one it reads the target's."""


class Windows(TransformerMixin, BaseEstimator):
    """Series [n] or [n c] as windows [m n c]: their last steps, as many as the shortest of training has.

    A gap is 0. A series that is shorter begins with its first step again and again.
    """

    def fit(self, rows: Sequence[Any], target: Any = None) -> Windows:
        """Takes the length of the shortest."""
        self.length_ = min(map(len, rows))
        return self

    def transform(self, rows: Sequence[Any]) -> np.ndarray:
        """Windows [m n c]."""
        last = np.arange(-self.length_, 0)
        arrays = [np.nan_to_num(np.asarray(raw, dtype=float)).reshape(len(raw), -1) for raw in rows]
        return np.stack([values[np.maximum(last, -len(values))] for values in arrays])


def forecasts(windows: np.ndarray) -> Iterator[tuple[str, Any]]:
    """Yields the name and the estimator of each forecast that such windows allow."""
    _, n, c = windows.shape
    for period in PERIODS:
        if period <= n:
            name = "the last value"
            if period > 1:
                name = f"the value from {period} steps before"
            yield name, Repeated(period)
    columns = [False, True] if c > 1 and n * c <= MAX_VALUES else [False]
    for differences, all_columns in product([True, False], columns):
        what = "differences" if differences else "values"
        where = " of all columns" if all_columns else ""
        ridge = Ridge(differences=differences, all_columns=all_columns)
        yield f"ridge regression on {what}{where}", ridge


class Repeated(BaseEstimator):
    """The values of the last `period` steps, again and again, of the column that is nearest to the target."""

    def __init__(self, period: int) -> None:
        self.period = period

    def fit(self, windows: np.ndarray, target: np.ndarray) -> Repeated:
        """Finds the column, by targets [m k]."""
        self.places_ = windows.shape[1] - self.period + np.arange(target.shape[1]) % self.period
        self.column_ = _nearest_column(windows[:, self.places_], target)
        return self

    def predict(self, windows: np.ndarray) -> np.ndarray:
        """Forecasts [m k]."""
        return windows[:, self.places_, self.column_]


class Ridge(BaseEstimator):
    """Ridge regression of the next values on a window, or of their differences to its last step on those before."""

    def __init__(self, *, differences: bool, all_columns: bool) -> None:
        self.differences = differences
        self.all_columns = all_columns

    def fit(self, windows: np.ndarray, target: np.ndarray) -> Ridge:
        """Fits to targets [m k]."""
        self.column_ = _nearest_column(windows[:, -1:], target)
        values, last = self._read(windows)
        self.ridge_ = make_pipeline(StandardScaler(), RidgeCV(PENALTIES))
        self.ridge_.fit(values, target - last)
        return self

    def predict(self, windows: np.ndarray) -> np.ndarray:
        """Forecasts [m k]."""
        values, last = self._read(windows)
        return self.ridge_.predict(values).reshape(len(windows), -1) + last

    def _read(self, windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features of each window, [m f], and the values that forecasts are differences to, [m 1]."""
        values = windows if self.all_columns else windows[:, :, [self.column_]]
        last = windows[:, -1, [self.column_]]
        if self.differences:
            values = values[:, :-1] - values[:, -1:]
        return rearrange(values, "m n c -> m (n c)"), last * self.differences


def _nearest_column(values: np.ndarray, target: np.ndarray) -> int:
    """The column of values [m k c], or [m 1 c], with the least squared error for targets [m k]."""
    return int(np.square(values - target[:, :, None]).mean(axis=(0, 1)).argmin())
