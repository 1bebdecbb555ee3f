"""The drawn series and forecasts."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from tests.benchmarks.defaults_data import draw
from tests.benchmarks.defaults_data.case import Case, row_key
from tests.benchmarks.defaults_data.packages import debian, r_table, text_of
from tests.benchmarks.defaults_data.series import of_series

SETS = {
    "series/covid-deaths": lambda: _of_archive("covid-deaths", "Covid3Month"),
    "series/yeast": lambda: _yeast(),
    "series/cardano": lambda: _of_archive("cardano", "CardanoSentiment"),
    "series/gasoline": lambda: _gasoline(),
    "forecast/uknondurables": lambda: _forecast("AER/UKNonDurables", "quarter"),
    "forecast/dutchsales": lambda: _forecast("AER/DutchSales", "month"),
    "forecast/gasoline": lambda: _forecast("fpp2/gasoline", "week"),
}
SEASONS = {"forecast/uknondurables": 4, "forecast/dutchsales": 12, "forecast/gasoline": 52}
"""Steps of a year."""


def _series(name: str, rows: list[np.ndarray], targets: list[Any]) -> Case:
    """rows: [steps columns]."""
    own = draw.kept(name, [row_key(row) for row in rows], targets)
    test = draw.is_test(name, own)
    return of_series([rows[i] for i in own], [targets[i] for i in own], test, "series")


def _of_archive(name: str, folder: str) -> Case:
    """Numbers of series in aeon's archive; the split that they were published with is not used."""
    rows = []
    targets = []
    for part in ("TRAIN", "TEST"):
        content = text_of("aeon", f"aeon/datasets/data/{folder}/{folder}_{part}.ts")
        for line in content.splitlines():
            if line and line[0] not in "@#":
                *columns, target = line.split(":")
                rows.append(np.array([np.fromstring(column, sep=",") for column in columns]).T)
                targets.append(float(target))
    return _series(name, rows, targets)


def _yeast() -> Case:
    """Function of a gene, from its expression in 79 steps; a gap has the value before it, at the start 0."""
    _, _, _, *lines = text_of("orange3", "Orange/datasets/brown-selected.tab").splitlines()
    rows = []
    targets = []
    for line in lines:
        *values, target, _ = line.split("\t")
        row = [0.0]
        for value in values:
            row.append(row[-1] if value in ("", "?") else float(value))
        rows.append(np.array(row[1:])[:, None])
        targets.append(target)
    return _series("yeast", rows, targets)


def _gasoline() -> Case:
    """Octane number of gasoline, from its near-infrared spectrum of 401 wavelengths.

    The first part of R's file: its length in four bytes, then the table, compressed, in R's format XDR. There vectors
    of decimals have a word whose last byte is 14, their length, and their values in eight bytes each.
    """
    content = (debian("r-cran-pls") / "usr/lib/R/site-library/pls/data/Rdata.rdb").read_bytes()
    (length,) = struct.unpack(">I", content[:4])
    table = zlib.decompress(content[4 : 4 + length])
    octane = _decimals(table, 60)
    spectra = _decimals(table, 60 * 401).reshape(401, 60).T  # R's columns come one after another
    return _series("gasoline", list(spectra[:, :, None]), octane.tolist())


def _decimals(table: bytes, count: int) -> np.ndarray:
    """The first vector of so many decimals in R's format."""
    place = table.index(struct.pack(">BI", 14, count)) + 5
    return np.frombuffer(table, ">f8", count, place).astype(float)


def _forecast(table: str, period: str) -> Case:
    """Windows of a series of R's packages, in the series' own unit."""
    past, ahead = draw.PERIODS[period]
    values = r_table(table)["value"].to_numpy(float)
    num_windows = len(values) - past - ahead + 1
    starts = range(0, num_windows, -(-num_windows // draw.MAX_ROWS))
    first = starts[-draw.num_test(len(starts))]
    starts = [s for s in starts if s >= first or s + ahead <= first]
    rows = [values[s : s + past, None] for s in starts]
    targets = [values[s + past : s + past + ahead].tolist() for s in starts]
    case = of_series(rows, targets, np.array([s >= first for s in starts]), "forecast")
    # windows that predict a step in common
    return replace(case, groups=[s // ahead for s in starts])
