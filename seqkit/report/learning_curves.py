"""Learning curves of a run, from its metrics.csv."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from seqkit.objectives.metric import Metric, find_metric
from seqkit.report.figures import Series, curves, svg
from seqkit.report.headline import headline
from seqkit.runs.summary import Summary
from seqkit.training import metrics_csv

CONSTANT = "constant baseline (test)"
BESIDE = "classical method (test)"


def learning_curves(folder: Path, summary: Summary) -> list[str]:
    """The losses, and the headline metric on validation data, as SVG elements; only those that were logged."""
    rows = metrics_csv.read(folder / metrics_csv.NAME)
    losses = {"train/loss": "training", "valid/loss": "validation"}
    found = [_curve(rows, losses, summary, find_metric("loss"), "loss")]
    main = headline(summary)
    if main.name != "loss":
        unit = f"{main.label}, %" if main.metric.proportion else main.label
        found.append(_curve(rows, {f"valid/{main.name}": "validation"}, summary, main.metric, unit))
    return [curve for curve in found if curve]


def _curve(
    rows: Sequence[Mapping[str, float]],
    columns: Mapping[str, str],
    summary: Summary,
    metric: Metric,
    unit: str,
) -> str:
    """A figure of columns of `metrics.csv`, by their names; empty where none has values. unit: of the shown values."""
    series = []
    for column, label in columns.items():
        known = [row for row in rows if column in row]
        if known:
            values = [metric.shown(row[column]) for row in known]
            # the log counts from 0, and sentences from 1
            series.append(Series([row["step"] + 1 for row in known], values, label))
    if not series:
        return ""
    strong = summary.get("strong_baseline") or {"metrics": {}}
    levels = dict.fromkeys((CONSTANT, BESIDE))
    for label, known in ((CONSTANT, summary.get("baseline", {})), (BESIDE, strong["metrics"])):
        if metric.name in known:
            levels[label] = metric.shown(known[metric.name])
    best = re.fullmatch(r"best, of step (\d+)", summary.get("weights", ""))
    is_validated = series[-1].label == "validation"
    kept = int(best[1]) if best and is_validated else None
    log = False if metric.proportion else None  # 90 and 99 % are far apart
    return svg(curves(series, unit=unit, levels=levels, kept=kept, log=log))
