"""Runs in a folder, each with a few facts from its files; a damaged run has a reason. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from seqkit.errors import UsageError
from seqkit.files import read_mapping
from seqkit.runs.folder import CONFIG, STATE, SUMMARY, check_as_trained, is_held
from seqkit.runs.summary import read_summary

LARGE = {"checkpoints", "attention", "profile"}
"""Folders of a run that hold no other runs."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """Facts of one run. time: when its configuration was written. summary: empty if it is not trained.

    state: finished, trained (and not tested), diverged, running, unfinished, or damaged; reason: why it is damaged.
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
        recipe, data = str(config.get("recipe", "")), data_name(config)
        if not (folder / SUMMARY).is_file():
            state = "running" if is_held(folder / ".lock") else "unfinished"
            return RunRow(folder, recipe, data, time, state, {})
        summary = read_summary(folder)
        check_as_trained(folder, summary)
        return RunRow(folder, recipe, data, time, str(summary.get("state", "finished")), summary)
    except (ValueError, OSError) as error:
        return RunRow(folder, recipe, data, time, "damaged", {}, str(error))


def data_name(config: Mapping[str, Any]) -> str:
    """Name of a run's data: the file or folder of the user's, else the data source; of a mixture, its tasks."""
    if isinstance(config.get("tasks"), Mapping):
        return ", ".join(config["tasks"])
    section = config.get("data")
    source = section.get("source") if isinstance(section, Mapping) else None
    if not isinstance(source, Mapping):
        return str(source or "")
    path = source.get("path")
    first = path[0] if isinstance(path, list) and path else path
    if not isinstance(first, str):
        return str(source.get("type", ""))
    more = f" and {len(path) - 1:,} more" if isinstance(path, list) and len(path) > 1 else ""
    return (Path(first).name or first) + more


def target_names(config: Mapping[str, Any]) -> list[str]:
    """Names of the columns that a run predicts, if it predicts several numbers; empty: one, or they have no names."""
    section = config.get("data")
    source = section.get("source") if isinstance(section, Mapping) else None
    names = source.get("target") if isinstance(source, Mapping) else None
    return [str(name) for name in names] if isinstance(names, list) else []
