"""Series with classes or a number to predict, and series to forecast."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.defaults_data.case import MAX_ROWS, TEST_SHARE, Case, distinct
from tests.benchmarks.defaults_data.packages import r_table, text_of

TUNE = {
    "series/italy-power": lambda: _series("ItalyPowerDemand"),
    "series/arrow-head": lambda: _series("ArrowHead"),
    "series/motions": lambda: _series("BasicMotions"),
    "series/gestures": lambda: _series("PickupGestureWiimoteZ"),
    "series/meat": lambda: _series("Tecator", package="sktime", classes=False, once=True),
    "series/cylinder-bell-funnel": lambda: _cylinder_bell_funnel(),
    "forecast/temperatures": lambda: _forecast(
        "vega_datasets/_data/seattle-temps.csv", "temp", 48, 12
    ),
    "forecast/co2": lambda: _co2(),
    "forecast/shares": lambda: _windows(
        r_table("datasets/EuStockMarkets")["DAX"].to_numpy(float), 30, 5, 1
    ),
    "forecast/unemployment": lambda: _forecast(
        "statsmodels/datasets/macrodata/macrodata.csv", "unemp", 12, 4
    ),
}
JUDGE = {
    "series/processes": lambda: _processes(),
    "series/faults": lambda: _faults(),
    "forecast/gas": lambda: _windows(r_table("forecast/gas")["value"].to_numpy(float), 24, 6, 1),
    "forecast/wine": lambda: _windows(
        r_table("forecast/wineind")["value"].to_numpy(float), 24, 3, 1
    ),
    "forecast/tree-rings": lambda: _windows(
        r_table("datasets/treering")["value"].to_numpy(float), 30, 5, 4
    ),
}


def _series(name: str, *, package: str = "aeon", classes: bool = True, once: bool = False) -> Case:
    """Classes or numbers of series, with the split that they were published with. once: no test row equals another."""
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    parts: list[bool] = []
    place = name if "/" in name else f"{name}/{name}"
    for part in ("TRAIN", "TEST"):
        lines = text_of(package, f"{package}/datasets/data/{place}_{part}.ts").splitlines()
        for line in lines:
            if not line or line[0] in "@#":
                continue
            *channels, target = line.split(":")
            rows.append(
                np.array([[float(x) for x in channel.split(",")] for channel in channels]).T
            )
            targets.append(f"class {target.strip()}" if classes else float(target))
            parts.append(part == "TEST")
    if once:
        rows, found = distinct(rows, list(zip(targets, parts, strict=True)))
        targets, parts = [target for target, _ in found], [part for _, part in found]
    return of_series(rows, targets, np.array(parts), "series")


def of_series(rows: list[np.ndarray], targets: list[Any], is_test: np.ndarray, kind: str) -> Case:
    def write(folder: Path) -> list[str]:
        several = isinstance(targets[0], list)
        names = [f"h{i:02}" for i in range(len(targets[0]))] if several else ["target"]
        for part, kept in (("train", ~is_test), ("test", is_test)):
            with (folder / f"{part}.jsonl").open("w", encoding="utf-8") as file:
                for row, target, keep in zip(rows, targets, kept, strict=True):
                    if keep:
                        values = row[:, 0].tolist() if row.shape[1] == 1 else row.tolist()
                        own = dict(zip(names, target if several else [target], strict=True))
                        file.write(json.dumps({"series": values, **own}) + "\n")
        return [str(folder), "--data.target", f"[{','.join(names)}]" if several else "target"]

    return Case(kind, rows, targets, is_test, write)


def _windows(values: np.ndarray, past: int, ahead: int, step: int) -> Case:
    """Windows of a series, the last 30 % of which are for the test, scaled by what lies before."""
    end = int((1 - TEST_SHARE) * len(values))
    scaled = np.round((values - values[:end].mean()) / values[:end].std(), 4)
    starts = [
        s
        for s in range(0, len(scaled) - past - ahead + 1, step)
        if s + past + ahead <= end or s + past >= end
    ]
    rows = [scaled[s : s + past, None] for s in starts]
    targets = [scaled[s + past : s + past + ahead].tolist() for s in starts]
    return of_series(rows, targets, np.array([s + past >= end for s in starts]), "forecast")


def _forecast(path: str, column: str, past: int, ahead: int) -> Case:
    rows = list(csv.DictReader(io.StringIO(text_of(path.split("/")[0], path))))
    values = np.array([float(row[column]) for row in rows])
    return _windows(values, past, ahead, max(1, len(values) // MAX_ROWS))


def _co2() -> Case:
    """Weekly CO2 at Mauna Loa; a missing week is as the last one before it, so that no value comes from later."""
    values: list[float] = []
    for row in csv.DictReader(
        io.StringIO(text_of("statsmodels", "statsmodels/datasets/co2/co2.csv"))
    ):
        values.append(float(row["co2"]) if row["co2"] else values[-1])
    return _windows(np.array(values), 52, 8, 1)


def _cylinder_bell_funnel() -> Case:
    """A plateau, a ramp up or a ramp down in noise (Saito 1994), 60 to learn from and 300 for the test; seed 8."""
    random, at = np.random.default_rng(8), np.arange(128)
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(360):
        name = ("cylinder", "bell", "funnel")[i % 3]
        start = random.integers(16, 33)
        end = start + random.integers(32, 97)
        form = {
            "cylinder": np.ones(128),
            "bell": (at - start) / (end - start),
            "funnel": (end - at) / (end - start),
        }[name]
        wave = (6 + random.normal()) * form * ((at >= start) & (at <= end)) + random.normal(
            size=128
        )
        rows.append(wave[:, None])
        targets.append(name)
    return of_series(rows, targets, np.arange(360) >= 60, "series")


def _processes() -> Case:
    """White noise, a random walk, or one of two autoregressions, of any length, level and scale; seed 15."""
    random = np.random.default_rng(15)
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    weights = {"noise": (0.0, 0.0), "walk": (1.0, 0.0), "slow": (0.8, 0.0), "waves": (1.2, -0.7)}
    for i in range(480):
        name = list(weights)[i % 4]
        (one, two), wave = weights[name], np.zeros(random.integers(60, 241) + 50)
        for t, shock in enumerate(random.normal(size=len(wave))):
            wave[t] = one * wave[t - 1] + two * wave[t - 2] + shock if t > 1 else shock
        rows.append((random.normal(0, 20) + 10 ** random.uniform(-1, 2) * wave[50:])[:, None])
        targets.append(name)
    return of_series(rows, targets, np.arange(480) >= 240, "series")


def _faults() -> Case:
    """Three sensors of a machine of any speed: sound, one stuck, one drifting, or two exchanged half-way; seed 16."""
    random, at = np.random.default_rng(16), np.arange(100)
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(360):
        name, phase = (
            ("sound", "stuck", "drifting", "exchanged")[i % 4],
            random.uniform(0.1, 0.4) * at,
        )
        wave = np.stack([np.sin(phase), np.cos(phase), np.sin(2 * phase)], 1) + random.normal(
            0, 0.1, (100, 3)
        )
        which, start = random.integers(3), random.integers(20, 60)
        if name == "stuck":
            wave[start:, which] = wave[start, which] + random.normal(0, 0.02, 100 - start)
        elif name == "drifting":
            wave[start:, which] += random.uniform(0.02, 0.05) * (at[start:] - start)
        elif name == "exchanged":
            wave[start:] = wave[start:, np.roll([0, 1, 2], 1)]
        rows.append(wave)
        targets.append(name)
    return of_series(rows, targets, np.arange(360) >= 180, "series")
