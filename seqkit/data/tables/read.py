"""Rows of table files: of one, of several, of a folder of shards, or of a hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from seqkit.data.formats import TABLE
from seqkit.data.io import reading
from seqkit.data.notes import listed
from seqkit.data.tables.rows import Rows, format_suffix, joined
from seqkit.data.tables.text import TextReader
from seqkit.data.walk import matching, walk
from seqkit.errors import DataError
from seqkit.files import check_regular

OF_DATASETS = ("dataset_dict.json", "dataset_info.json", "state.json")
"""Files that `save_to_disk` of Hugging Face's `datasets` writes beside its Arrow files."""


class Tables:
    """Reads tables, each path once: it is handed from who guesses what a table holds to who learns from it."""

    def __init__(self) -> None:
        self._known: dict[str, Rows] = {}

    def read(
        self,
        path: str | Sequence[str],
        *,
        split: str = "train",
        header: Sequence[str] | None = None,
    ) -> Rows:
        """Rows of a path or several, as of `read_tables`."""
        key = f"{path} {split} {header and [*header]}"
        if key not in self._known:
            self._known[key] = read_tables(path, split=split, header=header)
        return self._known[key]


def read_tables(
    path: str | Sequence[str], *, split: str = "train", header: Sequence[str] | None = None
) -> Rows:
    """Rows of one path or several: files, folders of shards, patterns such as `data/*.csv`, `hf://owner/name`.

    split: split of a hub name. header: names of the columns, where delimited files have none.
    Raises DataError, naming file and line, where a file cannot be read or the columns of two differ.
    """
    if isinstance(path, str):
        path = [path]
    files = [(file, _keys(file, one)) for one in path for file in files_of(one)]
    if not files:
        raise DataError("path is an empty list; give at least one table")
    first, *others = [_with_keys(_read(file, split, header), keys) for file, keys in files]
    for other in others:
        if set(other.names) != set(first.names):
            ours = f"{first.name} has {listed(first.names, 12)}"
            theirs = f"{other.name} has the columns {listed(other.names, 12)}"
            raise DataError(f"{theirs}, and {ours}; give tables of the same columns")
    if others:
        return joined([first, *others])
    return first


def _keys(file: str, given: str) -> dict[str, str | None]:
    """The columns that folders below the given one stand for, as `kind=a/part-0.parquet` has `kind` (Hive)."""
    keys: dict[str, str | None] = {}
    known = Path(given).expanduser().parts
    for i, folder in enumerate(Path(file).parts[:-1]):
        name, mark, value = folder.partition("=")
        if name and mark and known[i : i + 1] != (folder,):
            keys[unquote(name)] = None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)
    return keys


def _with_keys(rows: Rows, keys: Mapping[str, str | None]) -> Rows:
    columns = {name: [value] * len(rows) for name, value in keys.items()}
    return replace(rows, columns={**columns, **rows.columns})


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
    if any(Path(file).suffix == ".arrow" for file in found):
        found = [file for file in found if Path(file).name not in OF_DATASETS]
    kinds = sorted({format_suffix(name) for name in found})
    if len(kinds) > 1:
        raise DataError(
            f"{path} holds tables of several formats ({', '.join(kinds)}); give one, as '{path}/**/*{kinds[0]}'"
        )
    return found


def _read(path: str, split: str, header: Sequence[str] | None) -> Rows:
    """Rows of a file, or of a split of a hub's data set. Raises DataError where it cannot be read."""
    if is_remote(path):
        from seqkit.data.tables.arrow import read_hub  # brings pyarrow

        return read_hub(path, split)
    file = Path(path)
    with reading(file):
        state = file.stat()
        check_regular(file, state.st_mode)
    if state.st_size == 0:
        raise DataError(f"{file} is empty (0 bytes); give a table with a header and rows")
    suffix = format_suffix(path)
    if suffix in (".parquet", ".arrow", ".feather"):
        from seqkit.data.tables.arrow import read_arrow

        return read_arrow(file)
    if suffix in (".csv", ".tsv"):
        return TextReader(file).delimited(header)
    if suffix in (".json", ".jsonl", ".ndjson"):
        return TextReader(file).objects()
    known = ", ".join(sorted({format_suffix(f"t{name}") for name in TABLE.suffixes}))
    raise DataError(f"{file} ends in {file.suffix.lower() or 'nothing'}; tables end in {known}")
