"""Features of series: random convolution kernels, values on one length, statistics.

m series · n steps · c columns · o kernels · f features
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor

MAX_STEPS = 512
"""Steps to which longer series are averaged."""

NUM_FEATURES = 2_520
"""About as many features as the random kernels give, whatever the length of the series."""

SAMPLED_SERIES = 64
"""Training series whose outputs set the thresholds of the kernels."""


def arrays(rows: Sequence[Any]) -> list[Tensor]:
    """Series as [n c], without gaps, of at most MAX_STEPS steps."""
    found = [torch.as_tensor(raw).float().nan_to_num().reshape(len(raw), -1) for raw in rows]
    return [
        x if len(x) <= MAX_STEPS else F.adaptive_avg_pool1d(x.T[None], MAX_STEPS)[0].T
        for x in found
    ]


def statistics(x: Tensor) -> np.ndarray:
    """Statistics of each column of x [n f]: mean and standard deviation, those of its changes over a few rows, mean
    absolute change from row to row, least and greatest value."""
    step = min(4, len(x) - 1)
    change = x[step:] - x[: len(x) - step]  # over a few rows, so that noise is less than a slope
    found = []
    for values in (x, change):
        found += [values.mean(dim=0), values.std(dim=0, correction=0)]
    found += [x.diff(dim=0, prepend=x[:1]).abs().mean(0), x.amin(0), x.amax(0)]
    return torch.cat(found).float().numpy()


def statistics_of_series(raw: Any) -> np.ndarray:
    """Statistics of a series."""
    return statistics(arrays([raw])[0])


class Values(TransformerMixin, BaseEstimator):
    """All values of a series, which is stretched to the median length of the training series."""

    def fit(self, rows: Sequence[Any], target: Any = None) -> Values:
        """Takes the median length."""
        self.length_ = int(np.median([len(x) for x in arrays(rows)]))
        return self

    def transform(self, rows: Sequence[Any]) -> np.ndarray:
        """Values [m f]."""
        return np.stack(
            [
                F.interpolate(x.T[None], self.length_, mode="linear").flatten().numpy()
                for x in arrays(rows)
            ]
        )


class Kernels(TransformerMixin, BaseEstimator):
    """Shares of steps at which convolutions of a series, or of its differences, exceed thresholds; and statistics.

    As MiniRocket (Dempster et al. 2021): 84 kernels of nine steps, six weights of -1 and three of 2, at dilations that
    grow exponentially; thresholds are quantiles of outputs on training series. Of several columns, each kernel and
    dilation reads a random choice. Differences as in MultiRocket (Tan et al. 2022).
    """

    def fit(self, rows: Sequence[Any], target: Any = None) -> Kernels:
        """Takes the scale of each column, and the thresholds."""
        series = arrays(rows)
        values = torch.cat(series)
        self.mean_ = values.mean(dim=0).numpy()
        self.std_ = values.std(dim=0, correction=0).clamp(min=1e-8).numpy()
        draw = np.random.default_rng(0)
        longest = max(map(len, series))
        num_dilations = max(1, int(np.log2(max(longest - 1, 8) / 8)) + 1)
        self.dilations_ = [2**i for i in range(num_dilations)]
        c = values.shape[1]
        shape = (2 * num_dilations, 84, c)
        chosen = (draw.random(shape) < 1 / c) | (
            np.arange(c) == draw.integers(c, size=shape[:2])[..., None]
        )
        self.columns_ = chosen
        count = max(1, NUM_FEATURES // (84 * 2 * num_dilations))
        golden = (np.arange(1, 84 * count + 1) * (5**0.5 - 1) / 2) % 1
        levels = torch.from_numpy(rearrange(golden, "(o q) -> q o", q=count)).float()
        sampled = draw.permutation(len(series))[:SAMPLED_SERIES]
        self.thresholds_ = []
        for outputs, valid in self._outputs([series[i] for i in sampled]):
            known = rearrange(outputs, "m o n -> o (m n)")[:, valid.flatten()].sort(dim=1).values
            places = (levels * (known.shape[1] - 1)).round().long()
            self.thresholds_.append(known.gather(1, places.T).T.numpy())
        return self

    def transform(self, rows: Sequence[Any]) -> np.ndarray:
        """Features [m f]."""
        series = arrays(rows)
        found = []
        for start in range(0, len(series), SAMPLED_SERIES):
            some = series[start : start + SAMPLED_SERIES]
            shares = []
            for (outputs, valid), thresholds in zip(self._outputs(some), self.thresholds_):
                total = valid.sum(dim=1)[:, None]
                shares += [
                    ((outputs > level[:, None]) & valid[:, None]).sum(dim=2) / total
                    for level in torch.from_numpy(thresholds)
                ]
            found.append(torch.cat(shares, dim=1))
        plain = np.stack([statistics(x) for x in series])
        return np.hstack([torch.cat(found).numpy(), plain])

    def _outputs(self, series: list[Tensor]) -> Any:
        """Yields, for the values and then the differences, the outputs [m o n] and valid steps [m n] of a dilation."""
        weights = torch.full((84, 9), -1.0)
        for kernel, places in zip(weights, combinations(range(9), 3)):
            kernel[list(places)] = 2.0
        lengths = torch.tensor([len(x) for x in series])
        valid = torch.arange(int(lengths.max())) < lengths[:, None]
        mean = torch.from_numpy(self.mean_)
        std = torch.from_numpy(self.std_)
        scaled = [(x - mean) / std for x in series]
        steps = [x.diff(dim=0, prepend=x[:1]) for x in scaled]
        for i, values in enumerate((scaled, steps)):
            padded = rearrange(
                torch.nn.utils.rnn.pad_sequence(values, batch_first=True), "m n c -> m c n"
            )
            for j, dilation in enumerate(self.dilations_):
                columns = torch.from_numpy(self.columns_[i * len(self.dilations_) + j]).float()
                read = torch.einsum("oc, ok -> ock", columns, weights)
                yield F.conv1d(padded, read, padding=4 * dilation, dilation=dilation), valid
