"""Rows of table files as Arrow: text tables, Parquet and Arrow files, names of a hub or an object store."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from seqkit.data.formats import TABLE, advice_on
from seqkit.data.io import read_bytes
from seqkit.data.source import import_optional
from seqkit.data.tables.text_formats import ENCODED, LINE, Row, format_suffix, text_table
from seqkit.data.walk import matching
from seqkit.errors import DataError, one_line, suggest
from seqkit.files import load_json

READABLE = (*TABLE.suffixes, ".txt")
"""Suffixes of files that can be read as a table; a .txt file is one where the data source is told so."""

REMOTE = {"hf", "s3", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss"}
"""Schemes of paths that are read elsewhere: Hugging Face's hub, and object stores."""

BUILDERS = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".arrow": "arrow"}

IN_MEMORY_BYTES = 2**26
"""A table up to this size is held in memory; a larger one is written, once, to an Arrow file of the cache folder."""

BATCH_ROWS, BATCH_CHARACTERS = 10_000, 2**26
"""Rows of an Arrow batch end at the one or the other."""

VERSION = 2
"""Version of the parsed tables in the cache folder; raise it when parsing changes."""


class Column(Sequence[Any]):
    """Values of a column, read on access: texts, numbers, booleans, lists, or None.

    name: name for messages. values: a pyarrow.ChunkedArray. classes: names of the classes that it holds as numbers.
    is_encoded: True: values other than texts are JSON behind `ENCODED`.
    """

    def __init__(self, name: str, values: Any, classes: Sequence[str] | None, *, is_encoded: bool):
        self.name, self._values, self._classes, self._is_encoded = name, values, classes, is_encoded

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        try:  # no context manager: this is called for each value
            return self._plain(self._values[int(index)].as_py())
        except IndexError:
            raise
        except Exception as error:
            raise _damaged(self.name, error) from error

    def __iter__(self) -> Iterator[Any]:
        for chunk in self._values.chunks:
            for start in range(0, len(chunk), BATCH_ROWS):
                with _reading(self.name):
                    values = [self._plain(value) for value in chunk.slice(start, BATCH_ROWS).to_pylist()]
                yield from values

    def _plain(self, value: Any) -> Any:
        if self._is_encoded and isinstance(value, str) and value.startswith(ENCODED):
            return json.loads(value[1:])
        if self._classes is not None and isinstance(value, int):
            return self._classes[value] if 0 <= value < len(self._classes) else None
        return value


class Steps(Sequence[list[Any]]):
    """Cells of several columns as one list for each row. A text that is a number is one; another cell is as it is."""

    def __init__(self, columns: Sequence[Column], decimal: str = "."):
        self._columns, self._decimal = list(columns), decimal

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, index: Any) -> Any:
        return [_as_number(column[index], self._decimal) for column in self._columns]

    def __iter__(self) -> Iterator[list[Any]]:
        return ([_as_number(cell, self._decimal) for cell in cells] for cells in zip(*self._columns))


def _as_number(cell: Any, decimal: str) -> Any:
    if isinstance(cell, str) and "_" not in cell and (text := with_point(cell, decimal)) is not None:
        for kind in (int, float):
            with suppress(ValueError):
                return kind(text)
    return cell


_WITH_COMMA = re.compile(r"[-+]?((\d+|[1-9]\d{0,2}(\.\d{3})+)(,\d*)?|,\d+)([eE][-+]?\d+)?")
"""A number with a decimal comma; points separate groups of three digits before it."""


def with_point(text: str, decimal: str) -> str | None:
    """A number as Python writes it. decimal: "." or ",", before its decimals; with ",", 1.234,5 and 1.234 have a
    thousand. None: with ",", the text has digits and is no such number, as 1.5."""
    text = text.strip()
    if decimal == ".":
        return text
    if _WITH_COMMA.fullmatch(text):
        return text.replace(".", "").replace(",", ".")
    return None if any(map(str.isdigit, text)) else text


@dataclass(frozen=True)
class Rows:
    """Rows of one file or several, one after the other.

    table: a pyarrow.Table. names: names of its columns. files: name of each file, and the number of rows up to its end.
    notes: what was guessed about the files, a sentence each. faults: an error for each row that could not be read.
    steps: for a column that stands for several, as `with_series` makes it, their names. decimal: "." or ",", before the
    decimals of numbers that are written as texts.
    """

    table: Any
    names: list[str]
    files: list[tuple[str, int]]
    notes: list[str]
    faults: list[str]
    steps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    decimal: str = "."

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def name(self) -> str:
        """The file, or the first of several."""
        return self.files[0][0] + (", …" if len(self.files) > 1 else "")

    def with_series(self, columns: Sequence[str]) -> tuple[Rows, str]:
        """The rows with one column of series in the place of several columns of numbers, and its name.

        Raises DataError where a column does not exist, or is named twice.
        """
        for column in columns:
            if column not in self.names:
                raise DataError(f"{self.name} has no column {column!r}; {suggest(column, self.names)} (--data.input)")
        if not columns or len(set(columns)) < len(columns):
            raise DataError(f"{self.name}: --data.input is {_list(list(columns))}; give each column of a series once")
        name = f"{columns[0]} … {columns[-1]}"
        names = [name, *(one for one in self.names if one not in set(columns))]
        return replace(self, names=names, steps={**self.steps, name: tuple(columns)}), name

    def column(self, name: str) -> Sequence[Any]:
        """Values of the column of that name."""
        if name in self.steps:
            return Steps([self._column(step) for step in self.steps[name]], self.decimal)
        return self._column(name)

    def _column(self, name: str) -> Column:
        classes = _class_names(self.table.schema.metadata, name)
        is_text = LINE in self.table.column_names
        return Column(f"{self.name}: column {name!r}", self.table.column(name), classes, is_encoded=is_text)

    def place(self, index: int) -> str:
        """File and line of a row, for messages; a file of another format than text has row numbers, from 1."""
        number = next(i for i, (_, end) in enumerate(self.files) if index < end)
        name, start = self.files[number][0], self.files[number - 1][1] if number else 0
        line = self.table.column(LINE)[index].as_py() if LINE in self.table.column_names else None
        return f"{name}, row {index - start + 1}" if line is None else f"{name}, line {line}"


def _class_names(metadata: dict[bytes, bytes] | None, column: str) -> list[str] | None:
    """Names of the classes of a column of numbers, as Hugging Face `datasets` keeps them in a file; None: none."""
    with suppress(ValueError, KeyError, TypeError):
        feature = load_json((metadata or {})[b"huggingface"].decode())["info"]["features"][column]
        if feature["_type"] == "ClassLabel" and all(isinstance(name, str) for name in feature["names"]):
            return list(feature["names"])
    return None


def is_remote(path: str) -> bool:
    """Whether the path is of a hub or an object store: `hf://owner/name`, `s3://bucket/file.parquet`."""
    return "://" in path


def files_of(path: str) -> list[str]:
    """The files of a path: itself, those that a pattern matches, or the tables in a folder (shards of one table).

    Raises DataError where there is none.
    """
    if is_remote(path):
        return [path]
    file = Path(path).expanduser()
    if file.is_dir():
        found = sorted(str(f) for f in file.rglob("*") if f.is_file() and str(f).lower().endswith(READABLE))
        if not found:
            raise DataError(f"{path} holds no table; give a folder of {', '.join(TABLE.suffixes)} files")
        if len(kinds := sorted({format_suffix(f) for f in found})) > 1:
            raise DataError(
                f"{path} holds tables of several formats ({', '.join(kinds)}); give one, as {path}/*{kinds[0]}"
            )
        return found
    return matching(str(file))


def read_tables(
    path: str | Sequence[str],
    *,
    split: str = "train",
    separator: str | None = None,
    decimal: str = ".",
    columns: Sequence[str] | None = None,
    skip_bad: int = 0,
    max_rows: int | None = None,
) -> Rows:
    """Rows of one path or several: files, folders of shards, patterns, names of a hub.

    split: split of a hub name. separator: separator of CSV files; None: found in the header. decimal:
    as of `Rows`. columns: names of the columns, where CSV files have no header. skip_bad: number of rows that may be
    left out because they cannot be read. max_rows: number of rows after which reading ends, at the next batch; None:
    all are read.
    Raises DataError, naming file and line, where a file cannot be read or the columns of two differ.
    """
    import pyarrow as pa

    paths = [file for one in ([path] if isinstance(path, str) else path) for file in files_of(one)]
    if not paths:
        raise DataError("path is an empty list; give at least one table")
    reader = _Reader(separator, columns, max_rows)
    parts: list[Any] = []
    for file in paths:
        parts.append(_remote(file, split) if is_remote(file) else reader.read(Path(file)))
        if max_rows is not None and sum(part.num_rows for part in parts) >= max_rows:
            break
    if len(reader.faults) > skip_bad:
        count = f" ({len(reader.faults):,} rows cannot be read)" if len(reader.faults) > 1 else ""
        raise DataError(reader.faults[0] + count)
    names = _names(parts[0])
    for file, part in zip(paths, parts):
        if set(_names(part)) != set(names):
            both = f"{file} has the columns {_list(_names(part))}, and {paths[0]} has {_list(names)}"
            raise DataError(f"{both}; give tables of the same columns")
    try:
        table = parts[0] if len(parts) == 1 else pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"the tables {paths[0]}, … differ ({_reason(error)}); give columns of one type") from error
    ends = accumulate(part.num_rows for part in parts)
    notes = list(dict.fromkeys(reader.notes))
    return Rows(table, names, list(zip(paths, ends)), notes, reader.faults, decimal=decimal)


def _names(table: Any) -> list[str]:
    return [name for name in table.column_names if name != LINE]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")


# ── files of this machine ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class _Reader:
    """Reads files as pyarrow.Tables. Arguments are those of `read_tables`, `notes` and `faults` those of `Rows`."""

    separator: str | None
    columns: Sequence[str] | None
    max_rows: int | None
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def read(self, file: Path) -> Any:
        """The table of a file. Raises DataError where it cannot be read."""
        read_bytes(file, 4, if_empty="give a table with a header and rows")
        if not file.name.lower().endswith(READABLE):
            others = advice_on(file.name) or f"; tables end in {', '.join(READABLE)}"
            raise DataError(f"{file} ends in {file.suffix.lower() or 'nothing'}{others}")
        if file.suffix.lower() == ".parquet":
            with _reading(file, " as Parquet"):
                return self._held(file, *_parquet(file))
        if file.suffix.lower() in (".arrow", ".feather"):
            with _reading(file, " as Arrow"):
                table = _mapped(file)
                table.validate(full=True)  # a flipped byte may be an offset that leads out of the file
                _check_names(file, table.column_names)
                return table
        names, rows = text_table(file, self.separator, self.columns, self.notes, self.faults)
        _check_names(file, names)
        return self._held(file, *_text(names, rows))

    def _held(self, file: Path, schema: Any, batches: Iterator[Any]) -> Any:
        """Batches as a table: in memory, or mapped from an Arrow file in the cache folder where they are large.

        An entry of the cache is of one size and time of change of `file`, and holds the faults of its rows, too.
        """
        import pyarrow as pa

        from seqkit.data.cache import cache_folder, cached, fingerprint, write  # brings NumPy

        stat = file.stat()
        options = repr((VERSION, self.separator, self.columns))
        key = fingerprint(str(file.resolve()), stat.st_size, stat.st_mtime_ns, options)
        if (known := cached(key)) is not None:
            table, meta = known
            self.faults.extend(meta["faults"])
            return table
        held: list[Any] = []
        before, used, num_rows = len(self.faults), 0, 0
        for batch in map(_valid, batches):
            held.append(batch)
            used, num_rows = used + batch.nbytes, num_rows + batch.num_rows
            if used > IN_MEMORY_BYTES or (self.max_rows is not None and num_rows >= self.max_rows):
                break
        if used <= IN_MEMORY_BYTES or self.max_rows is not None:
            return pa.Table.from_batches(held, schema)
        try:
            write(key, chain(held, map(_valid, batches)), lambda: {"faults": self.faults[before:]})
        except OSError as error:
            raise DataError(
                f"{file} cannot be written as Arrow to {cache_folder()} ({error.strerror or error}); make room there, "
                "or set SEQKIT_CACHE to another folder"
            ) from error
        if (known := cached(key)) is None:
            raise DataError(f"{file} was written to {cache_folder()} and cannot be read there; set SEQKIT_CACHE")
        return known[0]


@contextmanager
def _reading(what: str | Path, how: str = "") -> Iterator[None]:
    """Turns what pyarrow raises on damaged data into a DataError: its own errors, and those of Python beneath them."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise _damaged(what, error, how) from error


def _damaged(what: str | Path, error: Exception, how: str = "") -> DataError:
    return DataError(f"{what} cannot be read{how} ({_reason(error)}); write it again")


def _reason(error: BaseException) -> str:
    return one_line(" ".join(str(error).split()))[:200] or type(error).__name__


def _check_names(file: Path, names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{file} has two columns called {twice[0]!r}; rename one, or give --data.columns for CSV")
    if LINE in names:
        raise DataError(f"{file} has a column called {LINE}, which is ours; rename it")


def _valid(batch: Any) -> Any:
    batch.validate(full=True)
    return batch


def _mapped(file: Path) -> Any:
    """An Arrow file or stream, mapped as it lies."""
    import pyarrow as pa

    mapped = pa.memory_map(str(file))
    try:
        return pa.ipc.open_file(mapped).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(mapped).read_all()


def _parquet(file: Path) -> tuple[Any, Iterator[Any]]:
    """Schema and batches of a Parquet file."""
    from pyarrow.parquet import ParquetFile

    parquet = ParquetFile(file, memory_map=True, page_checksum_verification=True)
    _check_names(file, parquet.schema_arrow.names)
    return parquet.schema_arrow, parquet.iter_batches(BATCH_ROWS)


def _text(names: list[str], rows: Iterator[Row]) -> tuple[Any, Iterator[Any]]:
    """Schema and batches of a text table: texts, and the line of each row."""
    import pyarrow as pa

    schema = pa.schema([*((name, pa.string()) for name in names), (LINE, pa.int64())])

    def batches() -> Iterator[Any]:
        held: list[list[Any]] = []
        used = 0
        for line, cells in rows:
            held.append([*cells, line])
            used += sum(map(len, filter(None, cells)))
            if len(held) >= BATCH_ROWS or used >= BATCH_CHARACTERS:
                yield pa.record_batch([list(column) for column in zip(*held)], schema=schema)
                held, used = [], 0
        if held:
            yield pa.record_batch([list(column) for column in zip(*held)], schema=schema)

    return schema, batches()


# ── files elsewhere ──────────────────────────────────────────────────────────────────────────────────────────────────


def _remote(path: str, split: str) -> Any:
    """A hub name, `hf://owner/name`, or a file of an object store, `s3://bucket/file.parquet`; never code of theirs."""
    scheme, _, rest = path.partition("://")
    if scheme not in REMOTE or "::" in path:
        raise DataError(
            f"{one_line(path)} is not read: data is a file of this machine, a hub name (hf://owner/name) or a file of "
            "an object store (s3://bucket/file.parquet); download it and give its path"
        )
    # `datasets` takes a name that is a path, such as ../owner, for a folder of this machine
    is_hub_name = scheme == "hf" and re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?/?", rest) is not None
    suffix = Path(rest).suffix.lower()
    if not is_hub_name and suffix not in BUILDERS:
        raise DataError(f"{path} ends in {suffix or 'nothing'}; files elsewhere end in {', '.join(BUILDERS)}")
    for switch in ("HF_HUB_DISABLE_TELEMETRY", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(switch, "1")
    os.environ.setdefault("HF_UPDATE_DOWNLOAD_COUNTS", "0")
    datasets = import_optional("datasets", "hub")
    from seqkit.data.cache import cache_folder

    folder = str(cache_folder() / "hub")
    try:
        if is_hub_name:
            found = datasets.load_dataset(rest.strip("/"), split=split, cache_dir=folder)
        else:
            options = {"sep": "\t"} if suffix == ".tsv" else {}
            found = datasets.load_dataset(BUILDERS[suffix], data_files=path, split="train", cache_dir=folder, **options)
        return found.data.table.replace_schema_metadata(found.features.arrow_schema.metadata)
    except Exception as error:  # whatever its file systems raise
        while error.__cause__ is not None:
            error = error.__cause__  # type: ignore[assignment]
        raise DataError(f"{path} cannot be read ({_reason(error)}); check the name, and that it is online") from error
