"""Cells of a comparison: the runs that it consists of, and what each leaves behind.

A cell is plain data and so is its result; a worker process needs nothing else.
"""

from __future__ import annotations

import csv
import math
import os
import platform
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from seqkit.comparison.scores import METRICS, bytes_of_test_split, example_scores, metric_of, per_byte
from seqkit.errors import DataError, DivergedError

Kind = Literal["trial", "pretrain", "seed", "measure"]


@dataclass(frozen=True)
class Cell:
    """One run. id: unique, and the path of its result. config: complete; for "measure": one for each candidate.

    candidate: its name; for "measure" empty. initial: folder of the pretraining run whose weights it begins with,
    relative to the comparison's. folder: of its own run; None: it keeps none. metric: by which it is scored.
    """

    id: str
    kind: Kind
    candidate: str
    config: dict[str, Any]
    initial: str | None = None
    folder: str | None = None
    metric: str | None = None
    gradient_flow: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def run_cell(cell: Cell, root: Path) -> dict[str, Any]:
    """Run a cell of the comparison in `root` and return its result, as plain data. Raises what the run raises."""
    started = time.perf_counter()
    result = {"trial": _trial, "pretrain": _run, "seed": _run, "measure": _measure}[cell.kind](cell, root)
    return {**result, "seconds": round(time.perf_counter() - started, 2), **_surroundings()}


def _trial(cell: Cell, root: Path) -> dict[str, Any]:
    from seqkit.runs.run import trial

    return trial(cell.config, initial=_initial(cell, root))


def _initial(cell: Cell, root: Path) -> Path | None:
    return None if cell.initial is None else root / cell.initial


def _run(cell: Cell, root: Path) -> dict[str, Any]:
    """A run in a folder with another name, which gets its own when it is complete."""
    from seqkit.report.page import write_report
    from seqkit.runs.run import run

    assert cell.folder is not None
    folder = root / cell.folder
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)

    def examine(model: Any, data: Any) -> dict[str, Any]:
        if cell.kind == "pretrain":
            return {}
        metric = METRICS[cell.metric] if cell.metric else metric_of(data.objective)
        scores = example_scores(model, data, metric, cell.config["seed"])
        if not math.isfinite(sum(scores["numerator"])):
            raise DivergedError(
                f"the {metric.label} is not finite, though the training loss was; lower the learning rate"
            )
        num_bytes = bytes_of_test_split(data) if metric.name == "bits_per_byte" else None
        if metric.name == "bits_per_byte":
            if num_bytes is None:
                raise DataError("bits per byte need the whole text of the test split; leave data.limit out")
            scores = per_byte(scores, num_bytes)
        return {"scores": scores, "gradient_flow": _gradient_flow(model, data) if cell.gradient_flow else None}

    try:
        summary = run(cell.config, unfinished, initial=_initial(cell, root), examine=examine)
        write_report(unfinished)
        curve = read_curve(unfinished, summary)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.replace(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    examined = {name: summary.pop(name, None) for name in ("scores", "gradient_flow")}
    return {"summary": summary, "curve": curve, **examined}


def _gradient_flow(model: Any, data: Any) -> list[list[float]] | None:
    """On the first test batch; None where distance means nothing (graphs)."""
    import torch

    from seqkit.analysis.gradient_flow import gradient_flow

    batch, label = next(iter(data.test_dataloader()))
    try:
        with torch.enable_grad():
            flow = gradient_flow(model, data.objective.prepare(batch, label).batch)
    except ValueError:
        return None
    return [[float(distance), float(norm)] for distance, norm in flow]


def read_curve(run: Path, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Points of a run's metrics.csv: step, tokens, seconds, training and validation loss; at most 200 of them.

    Tokens and seconds of a step are shares of the whole run's.
    """
    points: dict[int, dict[str, Any]] = {}
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for column, name in (("train/loss", "train_loss"), ("valid/loss", "valid_loss")):
                if row.get(column):
                    step = int(row["step"]) + 1
                    points.setdefault(step, {"train_loss": None, "valid_loss": None})[name] = float(row[column])
    steps = max(summary["steps"], 1)
    curve = [
        {
            "step": step,
            "tokens": round(summary["tokens_seen"] * step / steps),
            "seconds": round(summary["wall_seconds"] * step / steps, 2),
            **points[step],
        }
        for step in sorted(points)
        if step <= steps
    ]
    keep = max(1, -(-len(curve) // 200))
    return [point for i, point in enumerate(curve) if i % keep == 0 or point["valid_loss"] is not None]


def _measure(cell: Cell, _: Path) -> dict[str, Any]:
    """Speed and memory of all candidates, side by side."""
    from seqkit.comparison.measure import measure_all

    return {"costs": measure_all(cell.config)}


def _surroundings() -> dict[str, Any]:
    """Versions and machine of this process."""
    import torch

    from seqkit.runs.run import versions

    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "versions": versions(),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "accelerator": accelerator,
            "system": f"{platform.system()}-{platform.machine()}",
        },
    }


@cache
def _cpu() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
