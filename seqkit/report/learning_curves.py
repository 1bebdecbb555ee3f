"""Learning curves of a run, from its metrics.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqkit.errors import DataError
from seqkit.files import decoded, read_regular
from seqkit.report.figures import Series, curves, svg
from seqkit.report.headline import SHARES, headline


def loss_curve(folder: Path, summary: dict[str, Any]) -> str | None:
    """Training and validation loss as an SVG element; None where none was logged."""
    rows = metric_rows(folder)
    losses = [_series(rows, name, label) for name, label in (("train/loss", "training"), ("valid/loss", "validation"))]
    losses = [series for series in losses if series.x]
    return svg(curves(losses, unit="loss", baseline=summary.get("baseline", {}).get("loss"))) if losses else None


def metric_curve(folder: Path, summary: dict[str, Any]) -> str | None:
    """The headline metric on validation data as an SVG element; None where none was logged, or it is the loss."""
    metric = headline(summary)
    valid = _series(metric_rows(folder), f"valid/{metric.name}", "validation")
    if not valid.x or metric.name == "loss":
        return None
    scale, unit = (100, f"{metric.label}, %") if metric.name in SHARES else (1, metric.label)
    baseline = None if metric.baseline is None else scale * metric.baseline
    scaled = Series(valid.x, [scale * value for value in valid.y], valid.label)
    return svg(curves([scaled], unit=unit, baseline=baseline))


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


def _series(rows: Sequence[dict[str, float]], column: str, label: str) -> Series:
    """A column of Lightning's `metrics.csv` over `step`, where it has values."""
    known = [(row["step"], row[column]) for row in rows if column in row]
    return Series([x for x, _ in known], [y for _, y in known], label)
