"""Cells of a comparison: the runs that it consists of, and what each leaves behind.

A cell is plain data and so is its result; a worker process needs nothing else.
"""

from __future__ import annotations

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

from seqkit.comparison.scores import METRICS, comparable_scores, metric_of
from seqkit.errors import DivergedError
from seqkit.training import metrics_csv

Kind = Literal["trial", "pretrain", "seed", "measure"]

LENGTHS = (16, 32, 64, 128, 256)
"""Tokens at which time, memory and latency are measured, as long as a model takes them."""


@dataclass(frozen=True)
class Cell:
    """One run. id: unique, and the path of its result. config: complete; for "measure": one for each candidate.

    candidate: name of the candidate; empty for "measure". initial: folder of the pretraining run whose weights it
    begins with, relative to the comparison's. folder: folder of its own run; None: it keeps none. metric: name of
    the metric by which it is scored. is_first: True: what is the same for all seeds is looked at, too.
    """

    id: str
    kind: Kind
    candidate: str
    config: dict[str, Any]
    initial: str | None = None
    folder: str | None = None
    metric: str | None = None
    is_first: bool = False


def run_cell(cell: Cell, root: Path) -> dict[str, Any]:
    """Run a cell of the comparison in `root` and return its result, as plain data. Raises what the run raises."""
    from seqkit.runs.run import trial

    started = time.perf_counter()
    initial = None if cell.initial is None else root / cell.initial
    if cell.kind == "trial":
        result = trial(cell.config, initial=initial)
    else:
        result = _measure(cell) if cell.kind == "measure" else _run(cell, root, initial)
    return {**result, "seconds": round(time.perf_counter() - started, 2), **_surroundings()}


def _run(cell: Cell, root: Path, initial: Path | None) -> dict[str, Any]:
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
        scores = comparable_scores(model, data, metric, cell.config["seed"])
        if not math.isfinite(sum(scores["numerator"])):
            raise DivergedError(
                f"the {metric.label} is not finite, though the training loss was; lower the learning rate"
            )
        if not cell.is_first:
            return {"scores": scores}
        flow, repeated = _gradient_flow(model, data), data.test_in_training()
        return {"scores": scores, "gradient_flow": flow, "test_in_training": repeated}

    try:
        summary = run(cell.config, unfinished, initial=initial, examine=examine)
        write_report(unfinished)
        curve = read_curve(unfinished, summary)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.replace(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    examined = {name: summary.pop(name, None) for name in ("scores", "gradient_flow", "test_in_training")}
    return {"summary": summary, "curve": curve, **examined}


def _gradient_flow(model: Any, data: Any) -> list[list[float]] | None:
    """On the first test batch; None where distance means nothing (graphs)."""
    import torch

    from seqkit.analysis.gradient_flow import gradient_flow

    batch, _ = data.objective.first_call(model, next(iter(data.test_dataloader())))
    try:
        with torch.enable_grad():
            flow = gradient_flow(model, batch)
    except ValueError:
        return None
    return [[float(distance), float(norm)] for distance, norm in flow]


def read_curve(run: Path, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Points of a run's metrics.csv: step, tokens, seconds, training and validation loss; at most 200 of them.

    Tokens and seconds of a step are its share of the whole run's.
    """
    points: dict[int, dict[str, Any]] = {}
    for row in metrics_csv.read(run / metrics_csv.NAME):
        for column, name in (("train/loss", "train_loss"), ("valid/loss", "valid_loss")):
            if column in row:
                points.setdefault(int(row["step"]) + 1, {"train_loss": None, "valid_loss": None})[name] = row[column]
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


def _measure(cell: Cell) -> dict[str, Any]:
    """Speed and memory of all candidates, measured side by side on the same batches, with untrained weights."""
    from seqkit.analysis.speed import measure
    from seqkit.runs.prepare import prepare

    costs = measure({name: prepare(config) for name, config in cell.config.items()}, lengths=LENGTHS)
    return {"costs": {name: asdict(cost) for name, cost in costs.items()}}


def _surroundings() -> dict[str, Any]:
    """Versions and machine of this process."""
    import torch

    from seqkit.runs.trained_files import versions

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
