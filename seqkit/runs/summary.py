"""The `summary.json` of a run, checked when it is read: the folder may be anybody's. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from seqkit.errors import DataError, UsageError
from seqkit.files import read_mapping
from seqkit.runs.folder import CONFIG, STATE, SUMMARY, check_as_trained

FEW_STEPS = 50
"""A run of fewer optimizer steps is a trial."""

TASKS = "tasks"
"""Folder of a mixture's run that holds the folders of its tasks."""

LARGE = {"checkpoints", "attention", "profile"}
"""Folders of a run that hold no other runs."""


@dataclass
class StrongBaseline:
    """A specialist's results on the test split, and the seconds that it took.

    difference: the run's main metric less the specialist's, and the ends of its 95 % interval. setting: words that do
    better on such data.
    """

    name: str
    metrics: dict[str, float]
    num_train: int
    seconds: float
    difference: tuple[float, float, float] = (0.0, 0.0, 0.0)
    setting: str = ""


@dataclass
class Interval:
    """Predictions of a target are within ± `half_width` of it; test_coverage: the share of the test split that was."""

    half_width: float
    num_valid: int
    test_coverage: float | None = None
    num_test: int = 0
    target: str | None = None


@dataclass
class Schema:
    """Keys of `summary.json`, and what they hold. Those without a default are in every summary; others may follow."""

    sha256: str
    recipe: str
    backbone: str
    seed: int
    num_parameters: int
    tokens_seen: int
    steps: int
    wall_seconds: float
    metrics: dict[str, float]
    versions: dict[str, str]
    objective: str = ""
    state: Literal["trained", "finished"] = "finished"
    baseline: dict[str, float] = field(default_factory=dict)
    strong_baseline: StrongBaseline = None  # type: ignore[assignment]
    intervals: list[Interval] = field(default_factory=list)
    accuracy_interval: tuple[float, float] = (0.0, 1.0)
    extents: list[tuple[float, float]] = field(default_factory=list)
    num_train: int = 0
    train_tokens: int = 0
    num_valid: int = 0
    num_test: int = 0
    limit: int = 0
    unknown: dict[str, list[int]] = field(default_factory=dict)
    config_sha256: str = ""
    state_sha256: str = ""
    data_sha256: dict[str, str] = field(default_factory=dict)
    date: str = ""
    data: str = ""
    split_rule: str = ""
    main_metric: str = ""
    main_metric_mode: Literal["max", "min"] = "max"
    positive: str = ""
    data_notes: list[str] = field(default_factory=list)
    data_cautions: list[str] = field(default_factory=list)


def read_summary(folder: Path) -> dict[str, Any]:
    """Content of a run's `summary.json`. Raises DataError, which names the key, if it is damaged."""
    import json

    from pydantic import TypeAdapter, ValidationError

    path = folder / SUMMARY
    summary = read_mapping(path)
    try:
        # as JSON a list may be a tuple
        TypeAdapter(Schema).validate_json(json.dumps(summary), strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise DataError(
            f"{path} is damaged: {where}: {fault['msg']}; copy it again or train again"
        ) from None
    return summary


def check_trained(folder: Path) -> None:
    """Raise UsageError if a folder holds no run, or one that has not trained to its end."""
    if not (folder / CONFIG).exists():
        raise UsageError(
            f"{folder} is no run: it has no {CONFIG}; give a folder such as runs/text/char-lm/2026-01-31-120000"
        )
    if not (folder / SUMMARY).exists():
        raise UsageError(
            f"{folder} did not train to its end: it has no {SUMMARY}; go on with `seqkit fit --resume {folder}`"
        )


def state(folder: Path) -> str:
    """State of a run: `unfinished`, `trained` (not tested yet) or `finished`."""
    if not (folder / SUMMARY).is_file():
        return "unfinished"
    return str(read_mapping(folder / SUMMARY).get("state", "finished"))


def task_folders(folder: Path) -> dict[str, Path]:
    """Folders of the tasks of a mixture's run, by name; empty for any other run."""
    if not (folder / CONFIG).is_file():
        return {}
    tasks = read_mapping(folder / CONFIG).get(TASKS)
    if isinstance(tasks, Mapping):
        return {name: folder / TASKS / name for name in tasks}
    return {}


def tasks_of(folder: Path) -> list[dict[str, Any]]:
    """Summaries of a run's tasks, or of the run itself where it is no mixture."""
    places: Mapping[str, Path] = task_folders(folder) or {"": folder}
    return [read_mapping(place / SUMMARY) for place in places.values()]


@dataclass(frozen=True, slots=True)
class RunRow:
    """Facts of one run. time: when its configuration was written. summary: empty if it is not trained.

    state: finished, trained (and not tested), unfinished, or damaged; reason: why it is damaged.
    """

    folder: Path
    recipe: str
    data: str
    time: datetime
    state: str
    summary: dict[str, Any]
    reason: str = ""


def find_runs(folder: Path) -> Iterator[RunRow]:
    """Yield every run below a folder, ordered by name. Raises UsageError if there is no such folder."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; give one that holds runs, such as runs")
    for place, below, files in os.walk(folder):
        below[:] = sorted(name for name in below if name not in LARGE and not name.startswith("."))
        if CONFIG in files and (SUMMARY in files or STATE in files):
            yield describe(Path(place))


def describe(folder: Path) -> RunRow:
    """Facts of one run; whatever is wrong with its files is its reason."""
    time = datetime.fromtimestamp((folder / CONFIG).stat().st_mtime)
    recipe = data = ""
    try:
        config = read_mapping(folder / CONFIG)
        recipe = str(config.get("recipe", ""))
        data = data_name(config)
        if not (folder / SUMMARY).is_file():
            return RunRow(folder, recipe, data, time, "unfinished", {})
        summary = read_summary(folder)
        check_as_trained(folder, summary)
        return RunRow(folder, recipe, data, time, str(summary.get("state", "finished")), summary)
    except (ValueError, OSError) as error:
        return RunRow(folder, recipe, data, time, "damaged", {}, str(error))


def data_name(config: Mapping[str, Any]) -> str:
    """Name of a run's data: the file or folder of the user's, else the data source; of a mixture, its tasks."""
    if isinstance(config.get(TASKS), Mapping):
        return ", ".join(config[TASKS])
    source = _source(config)
    if not isinstance(source, Mapping):
        return str(source or "")
    paths = source.get("path")
    paths = paths if isinstance(paths, list) else [paths]
    if not (paths and isinstance(paths[0], str)):
        return str(source.get("type", ""))
    return (Path(paths[0]).name or paths[0]) + (
        f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    )


def target_names(config: Mapping[str, Any]) -> list[str]:
    """Names of the columns that a run predicts, if it predicts several numbers; empty: one, or they have no names."""
    source = _source(config)
    names = source.get("target") if isinstance(source, Mapping) else None
    if isinstance(names, list):
        return [str(name) for name in names]
    return []


def _source(config: Mapping[str, Any]) -> Any:
    section = config.get("data")
    if isinstance(section, Mapping):
        return section.get("source")
    return None
