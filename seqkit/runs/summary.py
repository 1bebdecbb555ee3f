"""The `summary.json` of a run, checked when it is read: the folder may be anybody's. Imports no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ValidationError

from seqkit.errors import DataError, UsageError
from seqkit.files import read_mapping, write_json
from seqkit.registry.commands import command
from seqkit.runs.folder import CONFIG, STATE, SUMMARY, check_as_trained

FEW_STEPS = 50
FEW_EXAMPLES = 1_000
"""A run of fewer optimizer steps, or whose training split is cut to fewer examples, is a trial."""

TASKS = "tasks"
"""Folder of a mixture's run that holds the folders of its tasks."""

LARGE = {"checkpoints", "attention", "profile"}
"""Folders of a run that hold no other runs."""

R = TypeVar("R", bound="Record")


class Record(BaseModel, frozen=True, extra="allow"):
    """Values by name, some of them absent; to be read as a mapping, too, in which what is absent or null is no key."""

    @cached_property
    def written(self) -> dict[str, Any]:
        """The values that are there, as JSON has them."""
        return self.model_dump(exclude_unset=True, exclude_none=True)

    def __getitem__(self, key: str) -> Any:
        return self.written[key]

    def __contains__(self, key: str) -> bool:
        return key in self.written

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default where it is absent."""
        return self.written.get(key, default)

    def keys(self) -> Iterable[str]:
        """Names of what is there."""
        return self.written.keys()

    def changed(self, **values: Any) -> Self:
        """A record with other values; None: it stays as it is."""
        given = {key: value for key, value in values.items() if value is not None}
        return type(self)(**{**self.written, **given})


class StrongBaseline(Record, frozen=True):
    """A specialist's results on the test split, and the seconds that it took.

    difference: the run's main metric less the specialist's, and the ends of its 95 % interval.
    """

    name: str
    metrics: dict[str, float]
    num_train: int
    seconds: float
    difference: tuple[float, float, float] | None = None


class JoinedMethod(Record, frozen=True):
    """The classical method that joins a run's network (`seqkit.runs.joined`), and the weights of both.

    sha256: of its file. metrics: those of the network alone on the test split. difference: the run's main metric less
    the network's, and the ends of its 95 % interval.
    """

    name: str
    num_train: int
    seconds: float
    network_weight: float
    classical_weight: float
    sha256: str = ""
    metrics: dict[str, float] = {}
    difference: tuple[float, float, float] | None = None


class Interval(Record, frozen=True):
    """Predictions of a target are within ± `half_width` of it, by so many test examples; or, in an older run, by
    `num_valid` of validation."""

    half_width: float
    num_valid: int = 0
    num_test: int = 0
    target: str | None = None


class Initial(Record, frozen=True):
    """Where a run's first weights come from: a run or foreign model, the SHA-256 of its weights, and which were taken.

    new: what began anew. left_out: what of the model was of no use.
    """

    run: str
    sha256: str = ""
    taken: list[str] = []
    new: list[str] = []
    left_out: list[str] = []


class Summary(Record, frozen=True):
    """Content of `summary.json`. What has no default is in every summary; others may follow."""

    recipe: str
    backbone: str
    objective: str = ""
    main_metric: str | None = None
    main_metric_mode: Literal["max", "min"] | None = None
    metrics: dict[str, float]
    num_train: int | None = None
    train_tokens: int | None = None
    limit: int | None = None
    unknown: dict[str, list[int]] = {}
    data_notes: list[str] = []
    data_cautions: list[str] = []
    baseline: dict[str, float] = {}
    num_parameters: int
    trained_parameters: int | None = None
    extents: list[tuple[float, float]] = []
    state: Literal["trained", "finished"] = "finished"
    skipped_steps: int = 0
    broken_laws: list[str] = []
    weights: str = "last"
    steps: int
    joined: JoinedMethod | None = None
    temperature: float | None = None
    wall_seconds: float
    tokens_seen: int
    initial: Initial | None = None
    seed: int
    sha256: str
    config_sha256: str | None = None
    state_sha256: str | None = None
    data_sha256: dict[str, str] = {}
    versions: dict[str, str]
    machine: dict[str, Any] = {}
    num_valid: int | None = None
    num_test: int | None = None
    date: str = ""
    data: str = ""
    split_rule: str = ""
    strong_baseline: StrongBaseline | None = None
    intervals: list[Interval] = []
    main_interval: tuple[float, float] | None = None
    positive: str | None = None

    def write(self, folder: Path) -> None:
        """Write it into a run folder, whole or not at all."""
        write_json(folder / SUMMARY, self.written)

    @property
    def digests(self) -> dict[str, str | None]:
        """SHA-256 of the run's configuration and state, as of `folder.digests`; None: it is not known."""
        return {"config_sha256": self.config_sha256, "state_sha256": self.state_sha256}

    @property
    def of_network(self) -> Summary:
        """The summary of the network alone: itself, unless a classical method joins it."""
        if self.joined is None:
            return self
        own = {"joined", "intervals", "main_interval"}
        left = {key: value for key, value in self.written.items() if key not in own}
        if self.strong_baseline is not None:
            strong = self.strong_baseline.written
            left["strong_baseline"] = {key: strong[key] for key in strong if key != "difference"}
        return Summary(**{**left, "metrics": self.joined.metrics})

    @property
    def made_by(self) -> str:
        """seqkit, in the version that the run was made with."""
        return f"seqkit {self.versions.get('seqkit', '')}".strip()

    @property
    def trial(self) -> list[str]:
        """Why its figures say little of the model, in words; empty: it is no trial."""
        return reasons_of_trial(self.steps, self.limit, self.num_train)


def reasons_of_trial(steps: int | None, limit: int | None, num_train: int | None) -> list[str]:
    """Why figures of a run say little of its model: few steps, few examples; empty: it is no trial.

    limit: `data.limit`, which cuts nothing of a training split that has fewer examples.
    """
    found = []
    if steps is not None and steps < FEW_STEPS:
        found.append("1 step" if steps == 1 else f"{steps} steps")
    if limit is not None and limit < FEW_EXAMPLES and (num_train is None or num_train >= limit):
        found.append(f"at most {limit} examples a split (data.limit)")
    return found


def read_summary(folder: Path) -> Summary:
    """A run's `summary.json`. Raises DataError, which names the key, if it is damaged."""
    return checked(Summary, read_mapping(folder / SUMMARY), folder / SUMMARY)


def checked(kind: type[R], value: object, path: Path) -> R:
    """A record from the plain data of a file. Raises DataError, which names the key, if a value is of another type."""
    try:
        # as JSON a list may be a tuple
        return kind.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise DataError(
            f"{path} is damaged: {where}: {fault['msg']}; copy it again or train again"
        ) from None


def check_trained(folder: Path) -> None:
    """Raise UsageError if a folder holds no run, or one that has not trained to its end."""
    if not (folder / CONFIG).exists():
        raise UsageError(
            f"{folder} is no run: it has no {CONFIG}; give a folder such as runs/text/char-lm/2026-01-31-120000"
        )
    if not (folder / SUMMARY).exists():
        raise UsageError(
            f"{folder} did not train to its end: it has no {SUMMARY}; go on with: "
            + command("fit", "--resume", folder)
        )


def state(folder: Path) -> str:
    """State of a run: `unfinished`, `trained` (not tested yet) or `finished`."""
    if not (folder / SUMMARY).is_file():
        return "unfinished"
    return read_summary(folder).state


def task_folders(folder: Path) -> dict[str, Path]:
    """Folders of the tasks of a mixture's run, by name; empty for any other run."""
    if not (folder / CONFIG).is_file():
        return {}
    tasks = read_mapping(folder / CONFIG).get(TASKS)
    if isinstance(tasks, Mapping):
        return {name: folder / TASKS / name for name in tasks}
    return {}


def tasks_of(folder: Path) -> list[Summary]:
    """Summaries of a run's tasks, or of the run itself where it is no mixture."""
    places: Mapping[str, Path] = task_folders(folder) or {"": folder}
    return [read_summary(place) for place in places.values()]


@dataclass(frozen=True, slots=True)
class RunRow:
    """Facts of one run. time: when its configuration was written. summary: None if it is not trained, or damaged.

    state: finished, trained (and not tested), unfinished, or damaged; reason: why it is damaged.
    """

    folder: Path
    recipe: str
    data: str
    time: datetime
    state: str
    summary: Summary | None = None
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
            return RunRow(folder, recipe, data, time, "unfinished")
        summary = read_summary(folder)
        check_as_trained(folder, summary.digests)
        return RunRow(folder, recipe, data, time, summary.state, summary)
    except (ValueError, OSError) as error:
        return RunRow(folder, recipe, data, time, "damaged", reason=str(error))


def data_name(config: Mapping[str, Any]) -> str:
    """Name of a run's data: the file or folder of the user's, else the data source; of a mixture, its tasks."""
    if isinstance(config.get(TASKS), Mapping):
        return ", ".join(config[TASKS])
    return _name_of(_source(config))


def _name_of(source: Any) -> str:
    """Name of a data source; of one that joins others, theirs."""
    if not isinstance(source, Mapping):
        return str(source or "")
    if isinstance(source.get("parts"), Mapping):
        return " and ".join(dict.fromkeys(map(_name_of, source["parts"].values())))
    paths = source.get("path")
    paths = paths if isinstance(paths, list) else [paths]
    if not (paths and isinstance(paths[0], str)):
        return str(source.get("type", ""))
    more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    return (Path(paths[0]).name or paths[0]) + more


def target_names(config: Mapping[str, Any]) -> list[str]:
    """Names of the columns of a table that a run predicts; empty: they are not known."""
    source = _source(config)
    names = source.get("target") if isinstance(source, Mapping) else None
    if isinstance(names, list):
        return [str(name) for name in names]
    return [] if names is None else [str(names)]


def _source(config: Mapping[str, Any]) -> Any:
    section = config.get("data")
    if isinstance(section, Mapping):
        return section.get("source")
    return None
