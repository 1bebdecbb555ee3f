"""Data of a run, opened again: every command opens it here, so that none forgets to ask whether it has changed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from seqkit.config import complete
from seqkit.data.module import DataModule
from seqkit.errors import DataError
from seqkit.runs.folder import CONFIG
from seqkit.runs.prepare import data_module
from seqkit.runs.trained_model import TrainedModel

ALL = ("training", "validation", "test")
"""Splits of a run's data, as its digests name them."""


def reopened(trained: TrainedModel, splits: Sequence[str] = ("test",)) -> tuple[DataModule, str]:
    """The data of a run, and in words why some of these splits are not known to be the run's; empty: they are.

    Raises DataError where the data is gone.
    """
    config = complete(trained.config)
    path = config["data"]["source"].get("path")
    # not a pattern, and not of the hub
    if isinstance(path, str) and not re.search(r"[*?\[]|://", path) and not Path(path).exists():
        raise DataError(
            f"{path} does not exist (data.source.path of {trained.folder / CONFIG}); bring it back, or link to where "
            f"it is now: ln -s NEW {shlex.quote(path)}"
        )
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
