"""Entries of the cache folder: one Arrow file for each fingerprint of what it was made from, shared by all runs.

An entry is a folder with `rows.arrow` and `complete.json`, which has the entry's key and the checksum of all. It is
made under another name and renamed when it is complete, so it is there whole or not at all. Rows are read
memory-mapped: size on disk is not size in memory.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from seqkit.data.download import user_folder
from seqkit.files import decoded, load_json, read_small

ROWS, COMPLETE = "rows.arrow", "complete.json"

KEY = "key"
"""Key of the JSON under which an entry's own fingerprint is: a folder that was renamed is no other entry."""

MAX_META_BYTES = 2**20

log = logging.getLogger("seqkit")


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


def cached(key: str) -> tuple[pa.Table, dict[str, Any]] | None:
    """Rows of the entry of that fingerprint, and the JSON beside them.

    None if there is none, if it was written before keys were in entries, or if it is damaged: it is deleted then, and
    damage is logged.
    """
    folder = cache_folder() / key
    if not folder.is_dir():
        return None
    try:
        meta = load_json(decoded(read_small(folder / COMPLETE, MAX_META_BYTES)))
        if not isinstance(meta, dict) or meta.pop("crc32", None) != _checksum(folder / ROWS, meta):
            raise ValueError("its checksum differs")
        if KEY not in meta:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        if (written := meta.pop(KEY)) != key:
            raise ValueError(f"it was written as {written}")
        with pa.memory_map(str(folder / ROWS)) as file:
            rows = pa.ipc.open_stream(file).read_all()
    except (OSError, ValueError, KeyError) as error:  # pyarrow's errors and DataError are ValueErrors
        log.warning("%s", f"the cached data in {folder} is damaged ({error}); it is deleted and made again")
        shutil.rmtree(folder, ignore_errors=True)
        return None
    with suppress(OSError):
        os.utime(folder)  # when it was last used, for those who clean up
    return rows, meta


def write(key: str, batches: Iterable[pa.RecordBatch], meta: Callable[[], dict[str, Any]]) -> None:
    """Write the entry of that fingerprint: afterwards it is there, or, after any error, not at all.

    batches: all but the last with equally many rows. meta: called after the last one; the JSON to keep beside them.
    If another process is faster, its entry stays and this one is dropped: both are equal.
    Raises OSError where the folder cannot be made or the disk is full.
    """
    parent = cache_folder()
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{key[:16]}-", dir=parent))
    try:
        with ExitStack() as stack:
            file: Any = None
            for rows in batches:
                file = file or stack.enter_context(pa.ipc.new_stream(str(folder / ROWS), rows.schema))
                file.write_batch(rows)
        kept = {**meta(), KEY: key}
        (folder / COMPLETE).write_text(json.dumps({**kept, "crc32": _checksum(folder / ROWS, kept)}))
        with suppress(OSError):
            folder.rename(parent / key)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _checksum(path: Path, meta: dict[str, Any]) -> int:
    """CRC-32 of the JSON and the rows: against accidents, at 1.9 GB/s where SHA-256 takes 0.25."""
    found = zlib.crc32(json.dumps(meta, sort_keys=True).encode())
    with path.open("rb") as file:
        while chunk := file.read(2**22):
            found = zlib.crc32(chunk, found)
    return found
