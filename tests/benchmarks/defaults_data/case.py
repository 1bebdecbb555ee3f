"""A data set, its split into training and test rows, and how rows become files."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TEST_SHARE = 0.3
MAX_ROWS = 2_000


@dataclass(frozen=True)
class Case:
    """A data set. kind: names the rivals. rows: raw examples. targets: a class, a number or several numbers for each.

    is_test: of each row. write: writes files below a folder and gives the words of `seqkit fit`.
    groups: of each row; rows of one group are not independent, such as windows that overlap. None: all rows are.
    """

    kind: str
    rows: Any
    targets: list[Any]
    is_test: np.ndarray
    write: Callable[[Path], list[str]]
    groups: list[Any] | None = None

    @property
    def is_regression(self) -> bool:
        return not isinstance(self.targets[0], str)


def split(num_rows: int, name: str) -> np.ndarray:
    """Which rows are for the test: 30 %, drawn by a seed that the name gives."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    chosen = np.random.default_rng(seed).permutation(num_rows)[: round(TEST_SHARE * num_rows)]
    return np.isin(np.arange(num_rows), chosen)


def split_groups(groups: list[str], name: str) -> np.ndarray:
    """Which rows are for the test: whole groups (such as a font), drawn by the name, up to 30 % of the rows."""
    order = sorted(
        set(groups), key=lambda group: hashlib.sha256(f"{name} {group}".encode()).hexdigest()
    )
    chosen: set[str] = set()
    for group in order:
        if sum(one in chosen or one == group for one in groups) <= TEST_SHARE * len(groups):
            chosen.add(group)
    return np.array([group in chosen for group in groups])


def fewer(rows: list[Any], targets: list[Any], most: int = MAX_ROWS) -> tuple[list[Any], list[Any]]:
    """At most so many rows, drawn by seed 0."""
    if len(rows) <= most:
        return rows, targets
    kept = sorted(np.random.default_rng(0).permutation(len(rows))[:most])
    return [rows[i] for i in kept], [targets[i] for i in kept]


def distinct(rows: list[Any], targets: list[Any]) -> tuple[list[Any], list[Any]]:
    """The first of equal rows, so that no test row is among the training rows."""
    kept: dict[Any, int] = {}
    for i, row in enumerate(rows):
        kept.setdefault(row_key(row), i)
    return [rows[i] for i in kept.values()], [targets[i] for i in kept.values()]


def row_key(row: Any) -> Any:
    """What equal rows have in common."""
    if isinstance(row, np.ndarray):
        return row.shape, row.tobytes()
    return tuple(row.items()) if isinstance(row, dict) else row


def each_class(found: list[tuple[Any, str]], each: int) -> tuple[list[Any], list[Any]]:
    """At most `each` rows of every class, drawn by seed 0, equal rows once."""
    rows, targets = distinct([row for row, _ in found], [target for _, target in found])
    order = np.random.default_rng(0).permutation(len(rows))
    kept: list[int] = []
    for target in sorted(set(targets)):
        kept += [i for i in order if targets[i] == target][:each]
    return [rows[i] for i in sorted(kept)], [targets[i] for i in sorted(kept)]


def write_table(
    folder: Path, rows: list[dict[str, Any]], targets: list[Any], is_test: np.ndarray
) -> list[str]:
    """train.csv and test.csv, with a column `target`."""
    for part, kept in (("train", ~is_test), ("test", is_test)):
        with (folder / f"{part}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*rows[0], "target"])
            writer.writeheader()
            writer.writerows(
                {**row, "target": y}
                for row, y, keep in zip(rows, targets, kept, strict=True)
                if keep
            )
    return [str(folder), "--data.target", "target"]


def files_case(
    kind: str,
    rows: list[np.ndarray],
    targets: list[Any],
    is_test: np.ndarray,
    save: Callable[[Path, np.ndarray], None],
) -> Case:
    """A file for each row, in a folder of its class below train or test."""

    def write(folder: Path) -> list[str]:
        for i, (row, target) in enumerate(zip(rows, targets, strict=True)):
            place = folder / ("test" if is_test[i] else "train") / target
            place.mkdir(parents=True, exist_ok=True)
            save(place / f"{i:05}.{'png' if kind == 'image' else 'wav'}", row)
        return [str(folder)]

    return Case(kind, rows, targets, is_test, write)
