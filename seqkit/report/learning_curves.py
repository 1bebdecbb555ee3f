"""Learning curves of a run, from its metrics.csv."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqkit.report.figures import Series, curves, svg
from seqkit.report.headline import SHARES, headline
from seqkit.training import metrics_csv


def loss_curve(folder: Path, summary: dict[str, Any]) -> str | None:
    """Training and validation loss as an SVG element; None where none was logged."""
    rows = metrics_csv.read(folder / metrics_csv.NAME)
    losses = [_series(rows, name, label) for name, label in (("train/loss", "training"), ("valid/loss", "validation"))]
    losses = [series for series in losses if series.x]
    return svg(curves(losses, unit="loss", baseline=summary.get("baseline", {}).get("loss"))) if losses else None


def metric_curve(folder: Path, summary: dict[str, Any]) -> str | None:
    """The headline metric on validation data as an SVG element; None where none was logged, or it is the loss."""
    metric = headline(summary)
    valid = _series(metrics_csv.read(folder / metrics_csv.NAME), f"valid/{metric.name}", "validation")
    if not valid.x or metric.name == "loss":
        return None
    scale, unit = (100, f"{metric.label}, %") if metric.name in SHARES else (1, metric.label)
    baseline = None if metric.baseline is None else scale * metric.baseline
    scaled = Series(valid.x, [scale * value for value in valid.y], valid.label)
    return svg(curves([scaled], unit=unit, baseline=baseline))


def _series(rows: Sequence[dict[str, float]], column: str, label: str) -> Series:
    """A column of Lightning's `metrics.csv` over `step`, where it has values."""
    known = [(row["step"], row[column]) for row in rows if column in row]
    return Series([x for x, _ in known], [y for _, y in known], label)
