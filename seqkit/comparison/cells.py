"""Cells, and the work of each: a trial, a run with scores of its test examples, or a measurement."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from seqkit.analysis.measured import Cost
from seqkit.comparison.scores import METRICS, ExampleScores, comparable_scores
from seqkit.comparison.types import CurvePoint, Json, Run
from seqkit.config import Config
from seqkit.errors import DivergedError
from seqkit.runs.summary import Summary
from seqkit.training import metrics_csv

LENGTHS = (16, 32, 64, 128, 256)
"""Tokens at which time, memory and latency are measured, as long as a model takes them."""

MAX_POINTS = 200
"""Points of a learning curve that are kept, beside those of validation."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training. id: unique, and the path of its result. config: complete; for "measure": one for each candidate.

    candidate: name of the candidate; empty for "measure". metric: name of the metric by which a run is scored.
    examines: whether what is the same for all seeds is looked at, too. has_baseline: whether a classical method is fit
    on its data. broken: sentences on the laws that the candidate breaks.
    """

    id: str
    kind: Literal["trial", "run", "measure"]
    candidate: str
    config: dict[str, Any]
    metric: str = "loss"
    examines: bool = False
    has_baseline: bool = False
    broken: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Ended(Json):
    """Result of a cell. metrics: of a trial, on validation data. scores: of test examples. error: why it failed.

    strong_baseline: name, metrics and num_train of a classical method. costs: by candidate, of the cell that measures.
    """

    error: str | None = None
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    run: Run | None = None
    scores: ExampleScores | None = None
    strong_baseline: dict[str, Any] | None = None
    costs: dict[str, Cost] | None = None


def run_cell(cell: Cell, folder: Path) -> Ended:
    """Run a cell. folder: of its run, if it makes one. Raises what the run raises."""
    if cell.kind == "run":
        return _run(cell, folder)
    if cell.kind == "trial":
        from seqkit.runs.run import trial

        return Ended(metrics=trial(Config(cell.config), cell.broken).metrics)
    from seqkit.analysis.speed import measure
    from seqkit.runs.prepare import prepare

    # side by side, on the same batches, with untrained weights
    prepared = {name: prepare(Config(config)) for name, config in cell.config.items()}
    return Ended(costs=measure(prepared, lengths=LENGTHS))


def _run(cell: Cell, folder: Path) -> Ended:
    """Train, test and score; what the first seed of a candidate shows for all is looked at, too."""
    from seqkit.runs.run import run

    seed = cell.config["seed"]
    found: dict[str, Any] = {}

    def examine(model: Any, data: Any) -> None:
        metric = METRICS[cell.metric]
        scores = comparable_scores(model, data, metric, seed)
        if not math.isfinite(sum(scores.numerator)):
            raise DivergedError(
                f"the {metric.label} is not finite, though the training loss was; lower the learning rate"
            )
        found["scores"] = scores
        if cell.examines:
            found["test_in_training"] = data.test_in_training()

    config = Config(cell.config).changed({"classical": "beside" if cell.has_baseline else "off"})
    summary = run(config, folder, examine=examine, broken=cell.broken)
    assert summary is not None  # a cell runs in one process
    own = replace(
        run_of(seed, f"runs/{cell.id}", summary, read_curve(folder, summary["steps"])),
        test_in_training=found.get("test_in_training"),
    )
    return Ended(run=own, scores=found["scores"], strong_baseline=summary.get("strong_baseline"))


def run_of(seed: int, folder: str, summary: Summary, curve: list[CurvePoint]) -> Run:
    """A reported run from its summary, without its value."""
    return Run(
        seed=seed,
        folder=folder,
        metrics=summary["metrics"],
        baseline=summary.get("baseline", {}),
        weights=summary.get("weights", "last").partition(",")[0],
        steps=summary["steps"],
        tokens=summary["tokens_seen"],
        train_tokens=summary.get("train_tokens"),
        seconds=summary["wall_seconds"],
        curve=curve,
        data_sha256=summary.get("data_sha256", {}),
        broken=summary.get("broken_laws", []),
        versions=summary.get("versions", {}),
        machine=summary.get("machine", {}),
    )


def read_curve(run: Path, steps: int) -> list[CurvePoint]:
    """Points of the metrics.csv of a run of so many steps, thinned out to about `MAX_POINTS`."""
    points: dict[int, dict[str, float]] = {}
    for row in metrics_csv.read(run / metrics_csv.NAME):
        for column, name in (("train/loss", "train_loss"), ("valid/loss", "valid_loss")):
            if column in row and (step := int(row["step"]) + 1) <= steps:
                points.setdefault(step, {})[name] = row[column]
    curve = [CurvePoint(step=step, **points[step]) for step in sorted(points)]
    keep = max(1, -(-len(curve) // MAX_POINTS))
    return [point for i, point in enumerate(curve) if i % keep == 0 or point.valid_loss is not None]
