"""Checkpoints of a run on disk: written whole, verified, kept by number, and loaded as data alone.

Which files there are, and whether they are good, is in `checkpoint_files`. A checkpoint is a file, or where weights are
sharded over processes a folder: one safetensors file for each process, by `torch.distributed.checkpoint`, and
`state.pt` with the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric.plugins import CheckpointIO
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, empty

from seqkit.errors import DataError, StorageError
from seqkit.files import sync_folder, write_json
from seqkit.training.checkpoint_files import (
    BEST,
    FOLDER,
    NAME,
    RESUME,
    STATE_FILE,
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
    "read_sharded",
    "remove_checkpoint",
    "sweep",
    "write_checkpoint",
    "write_sharded",
]

log = logging.getLogger("seqkit")

SHARD = "seqkit.shard"
"""Key of what stands in `state.pt` for a sharded tensor."""


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
        """Write it. A StorageError is logged, kept in `failure` and not raised.

        A good checkpoint of the same step stays as it is: to write it again would leave none for a moment.
        """
        if storage_options is not None:
            raise TypeError("storage_options are of other CheckpointIOs; this one takes none")
        path = Path(path)
        if NAME.fullmatch(path.name) and _is_good(path):
            self.failure = None
            return
        if self._written(write_checkpoint, checkpoint, path):
            self._remove_older(path)

    def save_sharded(self, checkpoint: dict[str, Any], path: Path) -> None:
        """The same for a checkpoint whose tensors are sharded; all processes take part, and agree on a failure."""
        if self._written(write_sharded, checkpoint, path) and _rank() == 0:
            self._remove_older(path)

    def _written(self, write: Callable[[dict[str, Any], Path], None], checkpoint: dict[str, Any], path: Path) -> bool:
        try:
            self.failure = None
            write(checkpoint, path)
        except StorageError as error:
            self.failure = error
            log.error("no checkpoint after step %s: %s", checkpoint.get("global_step", "?"), error)
            return False
        return True

    def _remove_older(self, path: Path) -> None:
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


def _is_good(path: Path) -> bool:
    try:
        check_checkpoint(path)
    except (DataError, OSError):
        return False
    return True


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


def write_sharded(content: dict[str, Any], path: Path) -> None:
    """Write a checkpoint with sharded tensors as a folder, whole or not at all; every process writes its part.

    Temporary folder beside it, files synced, tensors read back and compared with those in memory, rename, then the
    manifest. The folder has to be on a file system that all processes see. Raises StorageError on all processes where
    one of them failed; what stood there stays.
    """
    temporary = path.with_name(f".{path.name}.part")
    shards: dict[str, DTensor] = {}
    rest = _without_shards(content, "", shards)
    files: dict[str, dict[str, Any]] = {}

    def make_folder() -> None:
        if _rank() == 0:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)

    def write() -> None:
        write_shards(shards, temporary)
        if _rank() == 0:
            torch.save(rest, temporary / STATE_FILE)

    def verify() -> None:
        read = {name: cast(DTensor, torch.empty_like(tensor)) for name, tensor in shards.items()}
        read_shards(read, temporary)
        # bytes, since a NaN is not equal to itself
        if not all(_same_bytes(read[name], tensor) for name, tensor in shards.items()):
            raise StorageError(f"{path} reads back otherwise than it was written; is the disk failing?")

    def digest() -> None:
        for file in sorted(temporary.iterdir())[_rank() :: _world_size()]:
            _sync(file)
            files[file.name] = {"sha256": sha256_of(file), "bytes": file.stat().st_size}

    def finish() -> None:
        if _rank() == 0:
            sync_folder(temporary)
            remove_checkpoint(path)  # an earlier one of this name
            temporary.replace(path)
            sync_folder(path.parent)
            manifest = {"files": dict(sorted(files.items())), "bytes": sum(file["bytes"] for file in files.values())}
            write_json(manifest_of(path), manifest | {"processes": _world_size(), "torch": torch.__version__})

    num_bytes = _bytes_of(content)
    try:
        for work in (make_folder, write, verify, digest):
            _together(work, path, num_bytes)
        for theirs in _gathered(files):
            files.update(theirs)
        _together(finish, path, num_bytes)
    finally:
        if _rank() == 0:
            shutil.rmtree(temporary, ignore_errors=True)


def write_shards(shards: dict[str, DTensor], folder: Path) -> None:
    """This process's parts of tensors, by name, as a safetensors file. Raises OSError."""
    writer = dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True)
    with _errors_of_disk():
        dcp.save(shards, storage_writer=writer)


def read_shards(shards: dict[str, DTensor], folder: Path) -> None:
    """Fill this process's parts of tensors; what is read is data alone, as safetensors are. Raises OSError."""
    with _errors_of_disk():
        dcp.load(cast(Any, shards), storage_reader=dcp.HuggingFaceStorageReader(str(folder)))


def read_sharded(path: Path, mesh: DeviceMesh) -> dict[str, Any]:
    """What `write_sharded` wrote, its tensors sharded over a mesh of as many processes as wrote them.

    The files are not verified: `newest_good` does it. Raises DataError where they hold something else.
    """
    shards: dict[str, DTensor] = {}
    try:
        content = _with_shards(torch.load(path / STATE_FILE, map_location="cpu", weights_only=True), mesh, shards)
        read_shards(shards, path)
    except Exception as error:
        raise DataError(f"{path} is no checkpoint of seqkit's ({type(error).__name__}); train again") from error
    return cast("dict[str, Any]", content)


def read_checkpoint(path: Path, map_location: Any | None = None) -> dict[str, Any]:
    """A verified checkpoint, as data alone; without its sharded tensors. Raises DataError where `check_checkpoint`
    does."""
    check_checkpoint(path)
    try:
        file = path / STATE_FILE if path.is_dir() else path
        return torch.load(file, map_location=map_location or "cpu", weights_only=True)
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


def _without_shards(value: Any, name: str, shards: dict[str, DTensor]) -> Any:
    """A nested value with a note in the place of each sharded tensor, which goes to `shards`."""
    if isinstance(value, DTensor):
        (placement,) = value.placements
        shards[name] = value
        dim = placement.dim if isinstance(placement, Shard) else None
        return {SHARD: name, "shape": list(value.shape), "dtype": value.dtype, "dim": dim}
    if isinstance(value, dict):
        return {key: _without_shards(item, f"{name}/{key}", shards) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without_shards(item, f"{name}/{i}", shards) for i, item in enumerate(value))
    return value


def _with_shards(value: Any, mesh: DeviceMesh, shards: dict[str, DTensor]) -> Any:
    """The reverse: an empty sharded tensor for each note, also in `shards` by name."""
    if isinstance(value, dict) and SHARD in value:
        placement = Replicate() if value["dim"] is None else Shard(value["dim"])
        tensor = empty(value["shape"], dtype=value["dtype"], device_mesh=mesh, placements=[placement])
        return shards.setdefault(value[SHARD], tensor)
    if isinstance(value, dict):
        return {key: _with_shards(item, mesh, shards) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_shards(item, mesh, shards) for item in value)
    return value


def _same_bytes(one: DTensor, other: DTensor) -> bool:
    ours, theirs = (tensor.to_local().detach().cpu().contiguous().view(torch.uint8) for tensor in (one, other))
    return torch.equal(ours, theirs)


@contextlib.contextmanager
def _errors_of_disk() -> Iterator[None]:
    """Raise, in the place of torch's CheckpointException, which is no Exception, the error of the first process that
    failed."""
    try:
        yield
    except CheckpointException as error:
        first, _ = next(iter(error.failures.values()))
        raise first from error


def _together(work: Callable[[], None], path: Path, num_bytes: int) -> None:
    """Do it on all processes. Raises StorageError on all where it failed on one."""
    told = None
    try:
        work()
    except OSError as error:
        told = _told(error, path, num_bytes)
    except StorageError as error:
        told = str(error)
    if failures := [one for one in _gathered(told) if one is not None]:
        raise StorageError(failures[0])


def _gathered(value: Any) -> list[Any]:
    """The value of every process."""
    values: list[Any] = [None] * _world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def _rank() -> int:
    return torch.distributed.get_rank()


def _world_size() -> int:
    return torch.distributed.get_world_size()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
