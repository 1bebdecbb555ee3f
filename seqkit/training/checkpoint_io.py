"""Checkpoints written whole, verified, kept by number, and loaded as data alone: Lightning's `CheckpointIO`.

Lightning's own survived 81 of 100 kills during a write on a second file system, and loads 8 of 23 damaged files
(docs/reliability.md). Which files there are, and which are good, is in `checkpoint_files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric.plugins import CheckpointIO

from seqkit.errors import DataError, StorageError
from seqkit.files import sync_folder, write_json
from seqkit.training.checkpoint_files import (
    NAME,
    Content,
    check_checkpoint,
    checkpoints,
    manifest_of,
    remove_checkpoint,
    sha256_of,
)

log = logging.getLogger("seqkit")


class VerifiedCheckpointIO(CheckpointIO):
    """CheckpointIO whose files a crash or a full disk cannot spoil.

    Writing: temporary file in the same folder, fsync, read back and compared by SHA-256, rename, fsync of the folder,
    then the manifest in the same way. Loading: SHA-256 against the manifest, and `weights_only=True` always.
    keep: number of checkpoints of each family that stay; older ones are removed after a newer one is verified.
    A write that fails is logged and tried again at the next checkpoint; training goes on. `failure` holds the error.
    """

    def __init__(self, keep: int = 1):
        if keep < 1:
            raise ValueError(f"keep is {keep}; give at least 1")
        self.keep = keep
        self.failure: StorageError | None = None

    def save_checkpoint(
        self, checkpoint: Content, path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a checkpoint. A StorageError is logged and kept in `failure`, not raised.

        A good checkpoint of the same step stays as it is: to write it again would leave none for a moment.
        """
        path = Path(path)
        self.failure = None
        match = NAME.fullmatch(path.name)
        with contextlib.suppress(DataError, OSError):
            if match:
                check_checkpoint(path)
                return
        try:
            write_checkpoint(checkpoint, path)
        except StorageError as error:
            self.failure = error
            log.error("no checkpoint after step %s: %s", checkpoint.get("global_step", "?"), error)
            return
        for old in checkpoints(path.parent, match["family"])[self.keep :] if match else ():
            if old.path != path:
                remove_checkpoint(old.path)

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> Content:
        """Content of a checkpoint, as data alone whatever `weights_only` says. Raises as `read_checkpoint`."""
        return read_checkpoint(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint that a callback of the user's made; ours go when a newer one is verified."""
        if not NAME.fullmatch(Path(path).name):
            remove_checkpoint(Path(path))


def write_checkpoint(content: Content, path: Path) -> None:
    """Write a checkpoint and its manifest, each whole or not at all. Raises StorageError; an earlier file stays."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:  # which follows no link
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
            raise StorageError(
                f"{path} reads back otherwise than it was written; is the disk failing?"
            )
        manifest_of(path).unlink(missing_ok=True)  # of an earlier file of this name
        temporary.replace(path)
        sync_folder(path.parent)
        write_json(
            manifest_of(path), {"sha256": written, "bytes": writer.size, "torch": torch.__version__}
        )
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror or error}); make room: the next checkpoint will be written. "
            "The last good one is kept"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_checkpoint(path: Path, *, mmap: bool = False) -> Content:
    """Content of a verified checkpoint, as data alone, on the CPU. Raises DataError as `check_checkpoint`.

    mmap: map the file into memory instead of reading all of it.
    """
    check_checkpoint(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
        if not isinstance(content, dict):
            raise TypeError("the content of a checkpoint is a dict")
    # a file of the right digest that holds what no checkpoint of ours holds
    except Exception as error:
        raise DataError(
            f"{path} is no checkpoint of seqkit's ({type(error).__name__}); train again"
        ) from error
    return content


class _HashingWriter:
    """File that counts and hashes what is written to it.

    torch.save turns an exception of its file into one of its own, without the reason: `error` keeps it.
    """

    def __init__(self, file: Any):
        self.file = file
        self.digest = hashlib.sha256()
        self.size = 0
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
        """Do nothing; the caller flushes and syncs."""
