"""Rows of table files: of one, of several, of a folder of shards, or of a hub."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from seqkit.data.formats import TABLE
from seqkit.data.io import COMPRESSED, read_bytes
from seqkit.data.walk import matching, walk
from seqkit.errors import DataError


@dataclass(frozen=True)
class Rows:
    """Rows of one file or several, one after the other.

    columns: cells by name of the column: texts, numbers, booleans, lists, bytes, or None. files: name of each file, and
    the number of rows up to its end. lines: line in which each row begins, from 1; None: files that have no lines.
    faults: an error for each row that could not be read. notes: what was found out about the files, a sentence each.
    """

    columns: Mapping[str, Sequence[Any]]
    files: list[tuple[str, int]]
    lines: Sequence[int] | None = None
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return self.files[-1][1]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.columns)

    @property
    def name(self) -> str:
        """The file, or the first of several."""
        return self.files[0][0] + (", …" if len(self.files) > 1 else "")

    def place(self, index: int) -> str:
        """File and line of a row, for messages; a file without lines has row numbers, from 1."""
        number = bisect_right(self.files, index, key=itemgetter(1))
        name, start = self.files[number][0], self.files[number - 1][1] if number else 0
        return f"{name}, line {self.lines[index]}" if self.lines is not None else f"{name}, row {index - start + 1}"


def read_tables(
    path: str | Sequence[str],
    *,
    split: str = "train",
    header: Sequence[str] | None = None,
    max_rows: int | None = None,
) -> Rows:
    """Rows of one path or several: files, folders of shards, patterns such as `data/*.csv`, `hf://owner/name`.

    split: split of a hub name. header: names of the columns, where delimited files have none. max_rows: number of rows
    after which reading ends; None: all are read.
    Raises DataError, naming file and line, where a file cannot be read or the columns of two differ.
    """
    paths = [file for one in ([path] if isinstance(path, str) else path) for file in files_of(one)]
    if not paths:
        raise DataError("path is an empty list; give at least one table")
    parts: list[Rows] = []
    for file in paths:
        parts.append(_hub(file, split) if is_remote(file) else _read(Path(file), header, max_rows))
        if max_rows is not None and sum(map(len, parts)) >= max_rows:
            break
    first, *others = parts
    for other in others:
        if set(other.names) != set(first.names):
            both = f"{other.name} has the columns {_list(other.names)}, and {first.name} has {_list(first.names)}"
            raise DataError(f"{both}; give tables of the same columns")
    return _joined(parts) if others else first


def is_remote(path: str) -> bool:
    """Whether the path is of a hub, `hf://owner/name`, or of another place elsewhere."""
    return "://" in path


def files_of(path: str) -> list[str]:
    """The files of a path: itself, those that a pattern matches, or the tables in a folder (shards of one table).

    Raises DataError where there is none.
    """
    if is_remote(path):
        return [path]
    file = Path(path).expanduser()
    if not file.is_dir():
        return matching(str(file))
    found = [str(file / name) for name in walk(file).files if format_suffix(name) in TABLE.suffixes]
    if not found:
        raise DataError(f"{path} holds no table; give a folder of {', '.join(TABLE.suffixes)} files")
    if len(kinds := sorted({format_suffix(name) for name in found})) > 1:
        raise DataError(f"{path} holds tables of several formats ({', '.join(kinds)}); give one, as {path}/*{kinds[0]}")
    return found


def format_suffix(file: str | Path) -> str:
    """The suffix that names the format, in lower case; that of a compression behind it counts as none."""
    path = Path(str(file).lower())
    return (path.with_suffix("") if path.suffix in COMPRESSED else path).suffix


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")


def _joined(parts: Sequence[Rows]) -> Rows:
    """Rows of several files, one after the other."""
    files, end = [], 0
    for part in parts:
        end += len(part)
        files.append((part.name, end))
    columns = {name: _Joined([part.columns[name] for part in parts]) for name in parts[0].names}
    lines = None if parts[0].lines is None else [line for part in parts for line in part.lines or ()]
    notes = list(dict.fromkeys(note for part in parts for note in part.notes))
    return Rows(columns, files, lines, [fault for part in parts for fault in part.faults], notes)


class _Joined(Sequence[Any]):
    """Cells of a column in several files. They stay where they are, as they may be whole files."""

    def __init__(self, parts: Sequence[Sequence[Any]]):
        self._parts, self._ends = parts, list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: Any) -> Any:
        part = bisect_right(self._ends, index)
        return self._parts[part][index - (self._ends[part - 1] if part else 0)]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._parts)


def _read(file: Path, header: Sequence[str] | None, max_rows: int | None) -> Rows:
    """Rows of a file. Raises DataError where it cannot be read."""
    read_bytes(file, 4, if_empty="give a table with a header and rows")
    suffix = format_suffix(file)
    if suffix in (".parquet", ".arrow", ".feather"):
        from seqkit.data.tables.arrow import read_arrow  # brings pyarrow

        return read_arrow(file, max_rows)
    from seqkit.data.tables.text import TextReader

    reader = TextReader(file, max_rows)
    if suffix in (".csv", ".tsv"):
        return reader.delimited(header)
    if suffix in (".json", ".jsonl", ".ndjson"):
        return reader.objects()
    if suffix == ".txt":
        return reader.texts()
    known = ", ".join(sorted({format_suffix(f"t{name}") for name in (*TABLE.suffixes, ".txt")}))
    raise DataError(f"{file} ends in {file.suffix.lower() or 'nothing'}; tables end in {known}")


def _hub(path: str, split: str) -> Rows:
    from seqkit.data.tables.arrow import read_hub  # brings pyarrow

    return read_hub(path, split)
