"""Samples that are read from their files on access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqkit.data.cache import fingerprint, state_of
from seqkit.data.sample import Samples
from seqkit.errors import DataError


@dataclass(frozen=True)
class _Files:
    """Files that are read on access. advice: what to do about a file that has a fault."""

    paths: Sequence[Path]
    read: Callable[[Path], Any]
    advice: str

    def raw(self, index: int) -> Any:
        try:
            return self.read(self.paths[index])
        except DataError as error:
            if self.advice:
                raise DataError(f"{error} ({self.advice})") from error
            raise

    def name(self, index: int) -> str:
        return str(self.paths[index])

    def key(self) -> str | None:
        """Fingerprint of paths, sizes, times of change, and the reader; None: what a reader does is not known."""
        reader = getattr(self.read, "func", self.read)
        if "<lambda>" in str(reader) or "<locals>" in str(reader):
            return None
        settings = sorted(getattr(self.read, "keywords", {}).items())
        return fingerprint(
            *map(state_of, self.paths), f"{getattr(reader, '__qualname__', reader)} {settings}"
        )


def of_files(
    paths: Sequence[Path],
    labels: Sequence[Any],
    read: Callable[[Path], Any],
    advice: str = "",
    groups: Sequence[str | None] | None = None,
) -> Samples:
    """Samples that are read from their files on access. advice: what to do about a file that has a fault."""
    files = _Files(paths, read, advice)
    return Samples(files.raw, labels, groups=groups or None, name=files.name, key=files.key)
