"""Checkpoint files of a run: their names, their manifests, and which of them are good. Imports no torch.

A checkpoint is `NAME-step=N.ckpt` with a manifest, `NAME-step=N.ckpt.json`, which is written last. A checkpoint without
a manifest, or with another SHA-256 than the manifest says, is not good and is never loaded.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from pathlib import Path
from typing import Any, NamedTuple

from seqkit.errors import DataError
from seqkit.files import read_small

log = logging.getLogger("seqkit")

RESUME = "resume"
BEST = "best"
"""Families of checkpoints: complete states to resume from, and weights with the best validation metric."""

Content = dict[str, Any]
"""Content of a checkpoint, by Lightning's keys and ours."""

FOLDER = "checkpoints"
MAX_MANIFEST_BYTES = 4096
NAME = re.compile(r"(?P<family>[a-z]+)-step=(?P<step>\d+)\.ckpt")


class Checkpoint(NamedTuple):
    """Checkpoint file, and the number of optimizer steps before it."""

    path: Path
    step: int


def check_checkpoint(path: Path) -> None:
    """Raise DataError if the file or its manifest is missing, cut or changed."""
    manifest = manifest_of(path)
    try:
        expected = json.loads(read_small(manifest, MAX_MANIFEST_BYTES))
        digest = expected["sha256"]
        size = expected["bytes"]
        found = path.stat().st_size
    except FileNotFoundError:
        if not manifest.exists():
            raise DataError(f"{path} has no manifest: it was not written to its end") from None
        raise DataError(f"{path} is missing") from None
    except (ValueError, TypeError, KeyError, DataError):
        raise DataError(f"{manifest} is damaged") from None
    if found != size:
        raise DataError(f"{path} has {found:,} bytes, but was written with {size:,}")
    if not path.is_file() or sha256_of(path) != digest:
        raise DataError(f"{path} is damaged: its SHA-256 is not the manifest's")


def checkpoints(folder: Path, family: str = RESUME) -> list[Checkpoint]:
    """Checkpoints of a family in a folder, the newest first, good or not."""
    if not folder.is_dir():
        return []
    names = ((path, NAME.fullmatch(path.name)) for path in folder.iterdir())
    found = [
        Checkpoint(path, int(match["step"]))
        for path, match in names
        if match and match["family"] == family
    ]
    return sorted(found, key=lambda one: one.step, reverse=True)


def newest_good(folder: Path, family: str = RESUME, until: str = "") -> Checkpoint | None:
    """Newest checkpoint that is as it was written; the log names those that were passed over.

    until: name of the last that counts: what is newer is of an attempt that ended before the point to resume from.
    """
    last = NAME.fullmatch(until)
    for one in checkpoints(folder, family):
        if last and one.step > int(last["step"]):
            continue
        try:
            check_checkpoint(one.path)
        except DataError as error:
            log.warning("passed over a checkpoint: %s", error)
        else:
            return one
    return None


def has_written(folder: Path) -> bool:
    """Whether a checkpoint to resume from was ever written to its end there, be it damaged now."""
    return any(manifest_of(one.path).exists() for one in checkpoints(folder))


def remove_all(folder: Path) -> None:
    """Remove the checkpoints of a run that begins anew."""
    for family in (RESUME, BEST):
        for one in checkpoints(folder, family):
            remove_checkpoint(one.path)


def remove_checkpoint(path: Path) -> None:
    """Remove the manifest, then the file: after a crash in between, the file is not good and not taken."""
    manifest_of(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove temporary files that killed processes left in a folder and below it."""
    for path in folder.rglob(".*.part"):
        path.unlink(missing_ok=True)


def manifest_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def sha256_of(path: Path) -> str:
    """SHA-256 of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
