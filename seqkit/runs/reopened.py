"""Data of a run, opened again: every command opens it here, so that none forgets to ask whether it has changed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqkit.config import Config, complete
from seqkit.data.module import DataModule
from seqkit.errors import DataError, UsageError
from seqkit.registry.commands import command
from seqkit.runs.folder import CONFIG, PATHS
from seqkit.runs.prepare import data_module
from seqkit.runs.summary import task_folders
from seqkit.runs.trained_model import TrainedModel

ALL = ("training", "validation", "test")
"""Splits of a run's data, as its digests name them."""


def with_data(trained: TrainedModel, data: str | None) -> TrainedModel:
    """A trained model whose data is at another place than its run says. data: as of `moved`; None: it has not moved."""
    if data is None:
        return trained
    return replace(trained, config=moved(trained.config, trained.folder, data))


def moved(config: Config, folder: Path, data: str) -> Config:
    """A run's configuration in which its files are where they are now.

    data: file, folder or pattern in place of `data.source.path`; of several files, the folder that holds them all. What
    else the source names moves along if it is not where it was and lies beside. folder: of the run, for messages.
    Raises UsageError where the run has no file, or nothing is there.
    """
    source = config["data"]["source"]
    old = source.get("path")
    if old is None:
        raise UsageError(
            f"the data of {folder} is {source['type']}, no file of yours; leave out --data"
        )
    new = str(Path(data).expanduser())
    if not _is_there(new):
        raise UsageError(f"--data {data}: there is no such file or folder; check the path")
    root = os.path.commonpath(old) if isinstance(old, list) else old
    found: dict[str, Any] = {"path": new}
    if isinstance(old, list):
        found["path"] = [os.path.normpath(Path(new, os.path.relpath(one, root))) for one in old]
    for key, value in ((key, source.get(key)) for key in PATHS[1:]):
        if isinstance(value, str) and not _is_there(value):
            beside = Path(new).parent / os.path.relpath(value, Path(root).parent)
            found[key] = os.path.normpath(beside) if beside.exists() else value
    return config.changed({f"data.source.{key}": value for key, value in found.items()})


def check_one(folder: Path, data: str | None) -> None:
    """Raise UsageError for a mixture whose data is said to be elsewhere: each task has its own."""
    if data is not None and (places := task_folders(folder)):
        first = next(iter(places.values()))
        which = f"{folder} is a mixture, and each task has data of its own"
        raise UsageError(f"{which}; give --data for one task, such as {first}")


def _is_there(path: str) -> bool:
    """Whether there is such a file or folder; a pattern, and an address on the hub, are not looked up."""
    return re.search(r"[*?\[]|://", path) is not None or Path(path).exists()


def reopened(
    trained: TrainedModel, splits: Sequence[str] = ("test",), *, words: Sequence[str] = ()
) -> tuple[DataModule, str]:
    """The data of a run, and in words why some of these splits are not known to be the run's; empty: they are.

    words: command of `seqkit` and its options but for the run, for the advice where the data has moved; empty: one
    that takes no `--data`.
    Raises DataError where the data is gone.
    """
    config = complete(trained.config)
    source = config["data"]["source"]
    of_hub = "://" in str(source.get("path"))
    for key in PATHS[:1] if of_hub else PATHS:
        paths = source.get(key)
        for path in paths if isinstance(paths, list) else [paths]:
            if not isinstance(path, str) or _is_there(path):
                continue
            way = f"link to where it is now: ln -s NEW {shlex.quote(path)}"
            if words:
                verb, *options = words
                again = command(verb, trained.folder, *options, "--data", "NEW")
                way = f"say where it is now: {again}"
            what = f"{path} does not exist (data.source.{key} of {trained.folder / CONFIG})"
            raise DataError(f"{what}; bring it back, or {way}")
    data = data_module(config, trained.tokenizer, trained.objective)
    if "training" in splits:
        data.train_dataloader()
    if "validation" in splits:
        data.val_dataloader()
    if "test" in splits:
        data.test_dataloader()
    known = trained.summary.data_sha256
    of_run = f"data of {trained.folder}"
    if changed := data.changed_splits(known):
        return (
            data,
            f"the {' and '.join(changed)} {of_run} has changed since the run (its SHA-256 differs)",
        )
    if unknown := [name for name, digest in data.sha256().items() if known.get(name) != digest]:
        return data, f"nothing tells whether the {' and '.join(unknown)} {of_run} is still the same"
    return data, ""


def check_data(known: Mapping[str, str], data: DataModule, folder: Path) -> None:
    """Raise DataError if a split is not the one that the run was trained on. known: SHA-256 of each split."""
    data.train_dataloader(), data.val_dataloader()
    for split in data.changed_splits(known):
        raise DataError(
            f"the {split} data of {folder} has changed since the run began (its SHA-256 differs); "
            "bring the old data back, or train a new run"
        )
