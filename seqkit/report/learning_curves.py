"""Learning curves of a run, from its metrics.csv."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqkit.report.figures import Series, curves, svg
from seqkit.report.headline import headline
from seqkit.training import metrics_csv

CONSTANT = "constant baseline (test)"
BESIDE = "classical method (test)"


def loss_curve(folder: Path, summary: dict[str, Any]) -> str | None:
    """Training and validation loss as an SVG element; None where none was logged."""
    rows = metrics_csv.read(folder / metrics_csv.NAME)
    losses = [
        _series(rows, name, label)
        for name, label in (("train/loss", "training"), ("valid/loss", "validation"))
    ]
    losses = [series for series in losses if series.x]
    levels = {CONSTANT: summary.get("baseline", {}).get("loss"), BESIDE: _beside(summary, "loss")}
    kept = _kept(summary) if losses and losses[-1].label == "validation" else None
    if losses:
        return svg(curves(losses, unit="loss", levels=levels, kept=kept))
    return None


def metric_curve(folder: Path, summary: dict[str, Any]) -> str | None:
    """The headline metric on validation data as an SVG element; None where none was logged, or it is the loss."""
    metric = headline(summary)
    valid = _series(
        metrics_csv.read(folder / metrics_csv.NAME), f"valid/{metric.name}", "validation"
    )
    if not valid.x or metric.name == "loss":
        return None
    scale = 1
    unit = metric.label
    if metric.metric.proportion:
        scale = 100
        unit = f"{metric.label}, %"
    levels = {CONSTANT: metric.baseline, BESIDE: metric.strong}
    levels = {label: None if level is None else scale * level for label, level in levels.items()}
    scaled = Series(valid.x, [scale * value for value in valid.y], valid.label)
    return svg(curves([scaled], unit=unit, levels=levels, kept=_kept(summary)))


def _beside(summary: dict[str, Any], name: str) -> float | None:
    """The specialist's metric on the test split; None: there is none."""
    return (summary.get("strong_baseline") or {"metrics": {}})["metrics"].get(name)


def _kept(summary: dict[str, Any]) -> int | None:
    """The step of which the run has the weights; None: those of the last one."""
    found = re.fullmatch(r"best, of step (\d+)", summary.get("weights", ""))
    return int(found[1]) if found else None


def _series(rows: Sequence[dict[str, float]], column: str, label: str) -> Series:
    """A column of Lightning's `metrics.csv` over `step`, where it has values."""
    known = [(row["step"], row[column]) for row in rows if column in row]
    return Series([x for x, _ in known], [y for _, y in known], label)
