"""Encoded data on disk: a folder of arrays for each fingerprint of what they were made from, shared by all runs.

A folder is written whole or not at all: it is made under another name and renamed when it is complete. Arrays are read
memory-mapped, so that size on disk is not size in memory.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from seqkit.data.download import user_folder
from seqkit.errors import DataError
from seqkit.files import decoded, load_json, read_small

_COMPLETE = "complete.json"
"""The last file of an entry to be written. It holds what `finish` was given."""

MAX_META_BYTES = 2**20


def cache_folder() -> Path:
    """`$SEQKIT_CACHE`, or `encoded` in the user's cache folder. An entry may be deleted at any time."""
    given = os.environ.get("SEQKIT_CACHE")
    return Path(given).expanduser() if given else user_folder() / "encoded"


def fingerprint(*parts: str | bytes | int | Sequence[int] | np.ndarray) -> str:
    """64 hex digits that differ where a part does. A part's end counts: ("ab", "c") differs from ("a", "bc")."""
    digest = sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            head, data = f"{part.dtype.str}{part.shape}", np.ascontiguousarray(part).tobytes()
        elif isinstance(part, bytes):
            head, data = "bytes", part
        else:
            head, data = type(part).__name__, repr(part).encode(errors="surrogatepass")
        digest.update(f"{head} {len(data)} ".encode())
        digest.update(data)
    return digest.hexdigest()


class Entry:
    """A complete folder of the cache. meta: what was kept beside the arrays, as plain JSON."""

    def __init__(self, folder: Path, meta: dict[str, Any]):
        self.folder, self.meta = folder, meta

    def array(self, name: str) -> np.ndarray:
        """The array of that name, memory-mapped and read-only. Raises DataError where it cannot be read."""
        path = self.folder / f"{name}.npy"
        try:
            # an empty file cannot be mapped, and an array of objects would have to be unpickled
            return np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path} cannot be read ({error}); delete the folder {self.folder}") from error


def cached(key: str) -> Entry | None:
    """The entry of that fingerprint; None: there is none, or it cannot be read."""
    folder = cache_folder() / key
    try:
        meta = load_json(decoded(read_small(folder / _COMPLETE, MAX_META_BYTES)))
    except (OSError, ValueError):  # a DataError is a ValueError
        return None
    if not isinstance(meta, dict):
        return None
    with suppress(OSError):
        os.utime(folder)  # when it was last used, for those who clean up
    return Entry(folder, meta)


class Writer:
    """An entry while it is written: arrays by name, in files that grow."""

    def __init__(self, folder: Path):
        self.folder = folder

    def save(self, name: str, array: np.ndarray) -> None:
        """Keep an array that is in memory."""
        np.save(self.folder / f"{name}.npy", array, allow_pickle=False)

    @contextmanager
    def growing(self, name: str, dtype: Any) -> Iterator[GrowingArray]:
        """A one-dimensional array that is written piece by piece."""
        with GrowingArray(self.folder / f"{name}.npy", np.dtype(dtype)) as array:
            yield array

    def finish(self, meta: dict[str, Any]) -> None:
        """Say that it is complete, with what is kept beside the arrays; to be called last."""
        (self.folder / _COMPLETE).write_text(json.dumps(meta))


class GrowingArray:
    """A .npy file of one axis whose length is known at its end."""

    _HEADER_BYTES = 128

    def __init__(self, path: Path, dtype: np.dtype):
        self.dtype, self.length = dtype, 0
        self._file = path.open("wb")
        self._file.write(self._header())

    def append(self, values: np.ndarray | bytes) -> None:
        """More values behind the last. Raises OSError where the disk is full."""
        data = values if isinstance(values, bytes) else np.ascontiguousarray(values, self.dtype).tobytes()
        self.length += len(data) // self.dtype.itemsize
        self._file.write(data)

    def __enter__(self) -> GrowingArray:
        return self

    def __exit__(self, *_: Any) -> None:
        with self._file as file:
            file.seek(0)
            file.write(self._header())

    def _header(self) -> bytes:
        """The header of NumPy's format 1.0, of one size whatever the length is."""
        fields = f"{{'descr': '{self.dtype.str}', 'fortran_order': False, 'shape': ({self.length},), }}"
        text = fields.ljust(self._HEADER_BYTES - 11) + "\n"
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@contextmanager
def writing(key: str) -> Iterator[Writer]:
    """Write the entry of that fingerprint: it is there once the block ends after `finish`, and not at all otherwise.

    Where another process was faster, its entry stays and this one is dropped: both are equal.
    Raises OSError where the folder cannot be made or the disk is full.
    """
    parent = cache_folder()
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{key[:16]}-", dir=parent))
    try:
        yield Writer(folder)
        if (folder / _COMPLETE).exists():
            if cached(key) is None:
                shutil.rmtree(parent / key, ignore_errors=True)  # damaged, or nothing
            with suppress(OSError):
                folder.rename(parent / key)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
