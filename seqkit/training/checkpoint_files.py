"""Checkpoint files of a run: their names, their manifests, which are good. Imports neither torch nor Lightning.

A checkpoint is `NAME-step=N.ckpt` with `NAME-step=N.ckpt.json`, its manifest, which is written last. A checkpoint
without a manifest, or of another SHA-256 than the manifest says, is not good and is never loaded. Where weights are
sharded over processes it is a folder, and the manifest has the SHA-256 of each of its files.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seqkit.errors import DataError, StorageError

log = logging.getLogger("seqkit")

RESUME, BEST = "resume", "best"
"""Families of checkpoints: complete states that training goes on from, and weights with the best validation metric."""

FOLDER = "checkpoints"
STATE_FILE = "state.pt"
"""In a sharded checkpoint: all but the sharded tensors."""

NAME = re.compile(r"(?P<family>[a-z]+)-step=(?P<step>\d+)\.ckpt")
_READ = 1 << 20


class Checkpoint(NamedTuple):
    """A checkpoint file or folder of a family, after so many optimizer steps."""

    path: Path
    step: int


def in_folder(state: Mapping[str, Any], folder: str | Path | None) -> dict[str, Any]:
    """The state of a Lightning `ModelCheckpoint` as if its files had always been in `folder`.

    Of a run folder that was moved or renamed, Lightning forgets the best score, so that worse weights replace the best.
    """

    def here(path: str) -> str:
        return str(Path(folder or "") / Path(path).name) if path else path

    paths = ("best_model_path", "kth_best_model_path", "last_model_path")
    return {
        **state,
        "dirpath": None if folder is None else str(folder),
        **{name: here(state[name]) for name in paths if name in state},
        "best_k_models": {here(path): score for path, score in state.get("best_k_models", {}).items()},
    }


def check_checkpoint(path: Path) -> None:
    """Raise DataError where the file, or its manifest, is missing, cut or changed."""
    manifest = manifest_of(path)
    try:
        expected = json.loads(manifest.read_bytes())
        files = expected["files"] if path.is_dir() else {"": expected}
        known = {path / name if name else path: (file["sha256"], file["bytes"]) for name, file in files.items()}
        complete = path.is_file() or {file.name for file in path.iterdir()} == {file.name for file in known}
    except FileNotFoundError:
        if not manifest.exists():
            raise DataError(f"{path} has no manifest: it was not written to its end") from None
        raise DataError(f"{path} is missing") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise DataError(f"{manifest} is damaged") from None
    if not complete:
        raise DataError(f"{path} has other files than its manifest says")
    for file, (digest, size) in known.items():
        _check_file(file, digest, size)


def _check_file(path: Path, digest: str, size: int) -> None:
    """Raise DataError where a file is missing, cut or changed."""
    if not path.is_file():
        raise DataError(f"{path} is missing")
    if path.stat().st_size != size:
        raise DataError(f"{path} has {path.stat().st_size:,} bytes, but was written with {size:,}")
    if sha256_of(path) != digest:
        raise DataError(f"{path} is damaged: its SHA-256 is not the manifest's")


def checkpoints(folder: Path, family: str = RESUME) -> list[Checkpoint]:
    """Checkpoints of a family in a folder, the newest first, good or not."""
    if not folder.is_dir():
        return []
    names = ((path, NAME.fullmatch(path.name)) for path in folder.iterdir())
    found = [Checkpoint(path, int(match["step"])) for path, match in names if match and match["family"] == family]
    return sorted(found, key=lambda one: one.step, reverse=True)


def newest_good(folder: Path, family: str = RESUME) -> Checkpoint | None:
    """The newest checkpoint that is as it was written; the log says which were passed over, and why."""
    for one in checkpoints(folder, family):
        try:
            check_checkpoint(one.path)
        except DataError as error:
            log.warning("passed over a checkpoint: %s", error)
        else:
            return one
    return None


def remove_checkpoint(path: Path) -> None:
    """Remove the manifest, then the file or folder: what is left after a crash in between is not good and not
    taken."""
    manifest_of(path).unlink(missing_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove temporary files and folders that killed processes left in a folder."""
    if folder.is_dir():
        for path in folder.glob(".*.part"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def check_room(folder: Path, num_bytes: int) -> None:
    """Raise StorageError where the disk of `folder`, which exists, has less room than that."""
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise StorageError(
            f"{folder} is on a disk with {megabytes(free)} free, and the run will write about {megabytes(num_bytes)}; "
            "free some, or give another --out"
        )


def megabytes(num_bytes: float) -> str:
    """As a person would say it."""
    return f"{num_bytes / 2**20:,.1f} MB" if num_bytes < 2**30 else f"{num_bytes / 2**30:,.1f} GB"


def manifest_of(path: Path) -> Path:
    """The manifest's path."""
    return path.with_name(f"{path.name}.json")


def sha256_of(path: Path) -> str:
    """Of a large file, block by block."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ):
            digest.update(block)
    return digest.hexdigest()
