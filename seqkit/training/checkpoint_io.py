"""Checkpoints of a run on disk: written whole, verified, kept by number, and loaded as data alone.

Which files there are, and whether they are good, is in `checkpoint_files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric.plugins import CheckpointIO

from seqkit.errors import DataError, StorageError
from seqkit.files import sync_folder, write_json
from seqkit.training.checkpoint_files import (
    BEST,
    FOLDER,
    NAME,
    RESUME,
    Checkpoint,
    check_checkpoint,
    check_room,
    checkpoints,
    manifest_of,
    megabytes,
    newest_good,
    remove_checkpoint,
    sha256_of,
    sweep,
)

__all__ = [
    "BEST",
    "FOLDER",
    "RESUME",
    "Checkpoint",
    "VerifiedCheckpointIO",
    "check_checkpoint",
    "check_room",
    "checkpoints",
    "manifest_of",
    "newest_good",
    "read_checkpoint",
    "remove_checkpoint",
    "sweep",
    "write_checkpoint",
]

log = logging.getLogger("seqkit")


class VerifiedCheckpointIO(CheckpointIO):
    """Lightning's `CheckpointIO` for files that a crash or a full disk cannot spoil.

    Writing: temporary file in the same folder, fsync, read back and compared by SHA-256, rename, fsync of the folder,
    then the manifest in the same way. Loading: SHA-256 against the manifest, and `weights_only=True` always.
    keep: checkpoints of each family that stay; older ones are removed once a newer one is verified, and never before.
    A write that fails is logged and tried again at the next checkpoint; training goes on. `failure` holds it.
    """

    def __init__(self, keep: int = 1):
        if keep < 1:
            raise ValueError(f"keep is {keep}; give at least 1")
        self.keep = keep
        self.failure: StorageError | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write it. A StorageError is logged, kept in `failure` and not raised."""
        if storage_options is not None:
            raise TypeError("storage_options are of other CheckpointIOs; this one takes none")
        path = Path(path)
        try:
            self.failure = None
            write_checkpoint(checkpoint, path)
        except StorageError as error:
            self.failure = error
            log.error("no checkpoint after step %s: %s", checkpoint.get("global_step", "?"), error)
            return
        if match := NAME.fullmatch(path.name):
            for old in reversed(checkpoints(path.parent, match["family"])[self.keep :]):
                if old.path != path:
                    remove_checkpoint(old.path)

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The checkpoint's content, as data alone whatever `weights_only` says. Raises DataError for a damaged file."""
        return read_checkpoint(Path(path), map_location)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint that a callback of the user's made; ours go when a newer one is verified."""
        if not NAME.fullmatch(Path(path).name):
            remove_checkpoint(Path(path))


def write_checkpoint(content: dict[str, Any], path: Path) -> None:
    """Write a checkpoint and its manifest, each whole or not at all. Raises StorageError; what stood there stays."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            writer = _HashingWriter(file)
            try:
                torch.save(content, cast(Any, writer))
            except RuntimeError:
                if writer.error is None:
                    raise
            if writer.error is not None:
                raise writer.error
            file.flush()
            os.fsync(file.fileno())
        written = writer.digest.hexdigest()
        if sha256_of(temporary) != written:
            raise StorageError(f"{path} reads back otherwise than it was written; is the disk failing?")
        manifest_of(path).unlink(missing_ok=True)  # of an earlier file of this name
        temporary.replace(path)
        sync_folder(path.parent)
        write_json(manifest_of(path), {"sha256": written, "bytes": writer.size, "torch": torch.__version__})
    except OSError as error:
        raise StorageError(_told(error, path, _bytes_of(content))) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_checkpoint(path: Path, map_location: Any | None = None) -> dict[str, Any]:
    """A verified checkpoint, as data alone. Raises DataError where `check_checkpoint` does."""
    check_checkpoint(path)
    try:
        return torch.load(path, map_location=map_location or "cpu", weights_only=True)
    except Exception as error:  # a file of the right digest that holds what no checkpoint of ours holds
        raise DataError(f"{path} is no checkpoint of seqkit's ({type(error).__name__}); train again") from error


class _HashingWriter:
    """Counts and hashes what is written to a file.

    torch.save turns an exception of its file into one of its own, without the reason: `error` keeps it.
    """

    def __init__(self, file: Any):
        self.file, self.digest, self.size = file, hashlib.sha256(), 0
        self.error: OSError | None = None

    def write(self, content: Any) -> int:
        if self.error is None:
            try:
                self.file.write(content)
            except OSError as error:
                self.error = error
        size = memoryview(content).nbytes
        self.digest.update(content)
        self.size += size
        return size

    def flush(self) -> None:
        if self.error is None:
            try:
                self.file.flush()
            except OSError as error:
                self.error = error


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _bytes_of(content: dict[str, Any]) -> int:
    return sum(tensor.nbytes for tensor in _tensors(content))


def _told(error: OSError, path: Path, num_bytes: int) -> str:
    """The reason in one line: what, where, how much is needed, what to do."""
    try:
        free = f"{megabytes(shutil.disk_usage(path.parent).free)} free"
    except OSError:
        free = "free space unknown"
    return (
        f"{path} cannot be written ({error.strerror or error}): it needs about {megabytes(num_bytes)}, {free}; "
        "make room, and the next checkpoint will be written. The last good one is kept"
    )
