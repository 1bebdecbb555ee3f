"""Rows of a table, as its files have them: cells by column, and the file and line of each row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from seqkit.data.io import COMPRESSED
from seqkit.data.notes import listed


@dataclass(frozen=True)
class Rows:
    """Rows of one file or several, one after the other.

    columns: cells by name of the column: texts, numbers, booleans, lists, bytes, or None. files: name of each file, and
    the number of rows up to its end. lines: line in which each row begins, from 1; None: files that have no lines.
    faults: an error for each row that could not be read. notes: what was found out about the files, a sentence each.
    categories: columns of which the file says that they are some.
    """

    columns: Mapping[str, Sequence[Any]]
    files: list[tuple[str, int]]
    lines: Sequence[int] | None = None
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    categories: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return self.files[-1][1]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.columns)

    @property
    def name(self) -> str:
        """The file, or the first of several."""
        return listed([name for name, _ in self.files], 1)

    def place(self, index: int) -> str:
        """File and line of a row, for messages; a file without lines has row numbers, from 1."""
        number = bisect_right(self.files, index, key=itemgetter(1))
        name, _ = self.files[number]
        if self.lines is not None:
            return f"{name}, line {self.lines[index]}"
        start = self.files[number - 1][1] if number else 0
        return f"{name}, row {index - start + 1}"


def format_suffix(file: str | Path) -> str:
    """The suffix that names the format, in lower case; that of a compression behind it counts as none."""
    path = Path(str(file).lower())
    if path.suffix in COMPRESSED:
        path = path.with_suffix("")
    return path.suffix


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows of several files, one after the other."""
    files = []
    end = 0
    for part in parts:
        end += len(part)
        files.append((part.name, end))
    columns = {name: _Joined([part.columns[name] for part in parts]) for name in parts[0].names}
    if parts[0].lines is None:
        lines = None
    else:
        lines = [line for part in parts for line in part.lines or ()]
    notes = list(dict.fromkeys(note for part in parts for note in part.notes))
    faults = [fault for part in parts for fault in part.faults]
    return Rows(columns, files, lines, faults, notes, parts[0].categories)


class _Joined(Sequence[Any]):
    """Cells of a column in several files. They stay where they are, as they may be whole files."""

    def __init__(self, parts: Sequence[Sequence[Any]]):
        self._parts = parts
        self._bounds = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self._bounds[-1]

    def __getitem__(self, index: Any) -> Any:
        part = bisect_right(self._bounds, index) - 1
        return self._parts[part][index - self._bounds[part]]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._parts)
