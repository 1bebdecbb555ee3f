"""The rows of a run's metrics.csv, and how much its validation loss fell at the end of training."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from seqkit.errors import DataError
from seqkit.files import decoded, read_regular


def metric_rows(folder: Path) -> list[dict[str, float]]:
    """Numbers of each row of a run's metrics.csv that has a step; none without the file.

    A last line that was cut short is left out. Raises DataError for any other damage.
    """
    path = folder / "metrics.csv"
    if not path.is_file():
        return []
    rows: list[dict[str, float]] = []
    try:
        lines = list(csv.DictReader(io.StringIO(decoded(read_regular(path)), newline="")))
        for number, line in enumerate(lines, start=1):
            try:
                rows.append({name: _number(value) for name, value in line.items() if isinstance(value, str) and value})
            except ValueError:
                if number < len(lines):
                    raise
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path} is damaged in line {len(rows) + 2} ({error}); copy it again or take it out") from error
    return [row for row in rows if "step" in row]


def _number(text: str) -> float:
    if len(text) > 64:
        raise csv.Error(f"a number of {len(text):,} characters")
    return float(text)


def late_fall(points: Sequence[tuple[float, float]]) -> float | None:
    """Share by which a loss fell in the last quarter of the steps, if its last value is the lowest.

    points: step and loss, in order. None where it did not fall, or where there are fewer than four points.
    """
    if len(points) < 4:
        return None
    last, losses = points[-1][0], [loss for _, loss in points]
    earlier = [loss for step, loss in points if step <= 0.75 * last]
    if not earlier or not 0 < losses[-1] == min(losses) < earlier[-1]:
        return None
    return 1 - losses[-1] / earlier[-1]
