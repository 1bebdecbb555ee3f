"""Learning curves of a run, from its metrics.csv."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqkit.report.figures import Series, curves, svg
from seqkit.report.table import headline


def loss_curve(folder: Path, summary: dict[str, Any]) -> str | None:
    """Training and validation loss as an SVG element; None where none was logged."""
    rows = _rows(folder)
    losses = [_series(rows, name, label) for name, label in (("train/loss", "training"), ("valid/loss", "validation"))]
    losses = [series for series in losses if series.x]
    return svg(curves(losses, unit="loss", baseline=summary.get("baseline", {}).get("loss"))) if losses else None


def metric_curve(folder: Path, summary: dict[str, Any]) -> str | None:
    """The headline metric on validation data as an SVG element; None where none was logged, or it is the loss."""
    metric = headline(summary)
    valid = _series(_rows(folder), f"valid/{metric.name}", "validation")
    if not valid.x or metric.name == "loss":
        return None
    return svg(curves([valid], unit=metric.label, baseline=metric.baseline))


def _rows(folder: Path) -> list[dict[str, str]]:
    path = folder / "metrics.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _series(rows: Sequence[dict[str, str]], column: str, label: str) -> Series:
    """A column of Lightning's `metrics.csv` over `step`, where it has values."""
    known = [(float(row["step"]), float(row[column])) for row in rows if row.get(column)]
    return Series([x for x, _ in known], [y for _, y in known], label)
