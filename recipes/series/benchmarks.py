"""Series that the field compares on, by its protocol: `etth1` and `mnist1d`.

w windows · n time steps · f columns · k steps ahead
"""

import csv
import random
from itertools import pairwise

import numpy as np
import torch
from einops import rearrange

from seqkit.data import DataSource, Sample, Splits, fetch
from seqkit.errors import DataError

MONTH = 30 * 24
"""Hours that the protocol counts for a month."""


class ETTh1(DataSource):
    """`etth1`: seven columns of a transformer station, hour by hour; each column's next values from its own past ones.

    12 months are for training, 4 for validation, 4 for the test (Zhou et al. 2021, "Informer"); numbers are
    standardised by the mean and deviation of training, and each window of each column is an example (Nie et al. 2023,
    "PatchTST"). So the squared RMSE of a run is the MSE of the published tables. past, ahead: hours read and predicted.
    Downloads 2.6 MB once. Raises ValueError for a window that is longer than the validation part.
    """

    def __init__(self, *, past: int = 336, ahead: int = 96):
        if min(past, ahead) < 1 or past + ahead > 4 * MONTH:
            raise ValueError(
                f"past={past}, ahead={ahead}: give at least 1 hour of each, and {4 * MONTH} in all at most"
            )
        self.past, self.ahead = past, ahead

    def splits(self) -> Splits:
        path = fetch(
            "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/ETTh1.csv",
            "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
            "ett/ETTh1.csv",
        )
        _, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
        numbers = np.array([row[1:] for row in rows], dtype=np.float64)
        train = numbers[: 12 * MONTH]
        numbers = (numbers - train.mean(axis=0)) / train.std(axis=0)
        borders = (self.past, 12 * MONTH, 16 * MONTH, 20 * MONTH)
        # the first hours read for a split may be those of the split before, as in the published tables
        train, valid, test = (
            self._windows(numbers[a - self.past : b]) for a, b in pairwise(borders)
        )
        return Splits(train, test, valid)

    def _windows(self, numbers: np.ndarray) -> list[Sample]:
        length = self.past + self.ahead
        windows = np.lib.stride_tricks.sliding_window_view(numbers, length, axis=0)
        windows = torch.tensor(rearrange(windows, "w f n -> w f n 1"), dtype=torch.float32)
        return [
            Sample(
                column[: self.past],
                column[self.past :, 0],
                f"hours from {start // length * length}",
            )
            for start, columns in enumerate(windows)
            for column in columns
        ]


class Mnist1D(DataSource):
    """`mnist1d`: 5,000 series of 40 steps, each a digit as a curve, moved, scaled and noisy (Greydanus 2020).

    The package's generator draws them, with its seed: 4,000 for training, 1,000 for the test. Raises DataError without
    the package.
    """

    def splits(self) -> Splits:
        try:
            from mnist1d.data import get_dataset_args, make_dataset
        except ImportError as error:
            raise DataError(
                "mnist1d is drawn by a package that is not here: pip install mnist1d"
            ) from error
        plain, ours = random.getstate(), np.random.get_state()  # noqa: NPY002, the package seeds both
        drawn = make_dataset(get_dataset_args())
        random.setstate(plain)
        np.random.set_state(ours)  # noqa: NPY002
        train, test = (
            [
                Sample(torch.tensor(x[:, None], dtype=torch.float32), int(y))
                for x, y in zip(drawn[name], drawn[label])
            ]
            for name, label in (("x", "y"), ("x_test", "y_test"))
        )
        return Splits(train, test, None, [str(digit) for digit in range(10)])
