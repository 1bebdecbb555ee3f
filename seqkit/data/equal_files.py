"""Keys of files by their content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from hashlib import file_digest
from pathlib import Path


def content_keys(paths: Sequence[Path]) -> list[Hashable]:
    """For each file a key that files of equal content share, and others do not; a file that cannot be read has its own.

    A file whose size no other has is not opened.
    """
    sizes = [_size(path) for path in paths]
    counts = Counter(sizes)
    return [size if counts[size] == 1 else (size, _digest(path)) for path, size in zip(paths, sizes)]


def _size(path: Path) -> Hashable:
    try:
        return path.stat().st_size
    except OSError:
        return str(path)


def _digest(path: Path) -> Hashable:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").digest()
    except OSError:
        return str(path)
