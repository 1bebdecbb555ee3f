"""Rows of table files: of one, of several, of a folder of shards, or of a hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqkit.data.formats import TABLE
from seqkit.data.io import read_bytes
from seqkit.data.tables.rows import Rows, format_suffix, joined
from seqkit.data.tables.text import TextReader
from seqkit.data.walk import matching, walk
from seqkit.errors import DataError


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
        parts.append(_read(file, split, header, max_rows))
        if max_rows is not None and sum(map(len, parts)) >= max_rows:
            break
    first, *others = parts
    for other in others:
        if set(other.names) != set(first.names):
            both = f"{other.name} has the columns {_list(other.names)}, and {first.name} has {_list(first.names)}"
            raise DataError(f"{both}; give tables of the same columns")
    return joined(parts) if others else first


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
        raise DataError(
            f"{path} holds no table; give a folder of {', '.join(TABLE.suffixes)} files"
        )
    if len(kinds := sorted({format_suffix(name) for name in found})) > 1:
        raise DataError(
            f"{path} holds tables of several formats ({', '.join(kinds)}); give one, as {path}/*{kinds[0]}"
        )
    return found


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")


def _read(path: str, split: str, header: Sequence[str] | None, max_rows: int | None) -> Rows:
    """Rows of a file, or of a split of a hub's data set. Raises DataError where it cannot be read."""
    file = Path(path)
    suffix = format_suffix(path)
    if not is_remote(path):
        read_bytes(file, 4, if_empty="give a table with a header and rows")
    if is_remote(path) or suffix in (".parquet", ".arrow", ".feather"):
        from seqkit.data.tables.arrow import read_arrow, read_hub  # brings pyarrow

        if is_remote(path):
            return read_hub(path, split)
        return read_arrow(file, max_rows)
    reader = TextReader(file, max_rows)
    if suffix in (".csv", ".tsv"):
        return reader.delimited(header)
    if suffix in (".json", ".jsonl", ".ndjson"):
        return reader.objects()
    if suffix == ".txt":
        return reader.texts()
    known = ", ".join(sorted({format_suffix(f"t{name}") for name in (*TABLE.suffixes, ".txt")}))
    raise DataError(f"{file} ends in {file.suffix.lower() or 'nothing'}; tables end in {known}")
