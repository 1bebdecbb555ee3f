"""Files of rows and columns as memory-mapped Arrow, by `datasets`: text tables, Parquet, Arrow, hub names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from hashlib import sha256
from pathlib import Path
from typing import Any

from seqkit.data.download import writable
from seqkit.data.tables.text import (
    BATCH_ROWS,
    CONLL,
    DELIMITED,
    ENCODED,
    JSON_LINES,
    LINE,
    PLAIN,
    TextTable,
    reason_of,
    text_table,
)
from seqkit.errors import DataError
from seqkit.files import read_regular

PARQUET = (".parquet",)
ARROW = (".arrow", ".feather")

SUFFIXES = (*DELIMITED, *JSON_LINES, *PARQUET, *ARROW, *CONLL)
"""Of the files that are tables, whatever they are named for; a .txt file is one where the data source is told so."""

IN_MEMORY_BYTES = 2**26
"""A text file up to this size is parsed anew each time; a larger one once, into an Arrow file of the cache folder."""

VERSION = 1
"""Of the parsed files in the cache folder: raised when parsing changes."""


class Column(Sequence[Any]):
    """A column, its values read on access: texts, numbers, booleans, lists, or None."""

    def __init__(self, values: Any, names: Sequence[str] | None = None):
        self._values, self._names = values, names  # a pyarrow.ChunkedArray; names of classes that it holds as numbers

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._plain(value) for value in self._values[index].to_pylist()]
        return self._plain(self._values[int(index)].as_py())

    def __iter__(self) -> Iterator[Any]:
        for chunk in self._values.chunks:
            for start in range(0, len(chunk), BATCH_ROWS):
                yield from map(self._plain, chunk.slice(start, BATCH_ROWS).to_pylist())

    def _plain(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith(ENCODED):
            return json.loads(value[1:])
        if self._names is not None and isinstance(value, int):
            return self._names[value] if 0 <= value < len(self._names) else None
        return value


@dataclass(frozen=True)
class Rows:
    """Rows of one file or several, one after the other. names: of the columns. files: of each its name and its end."""

    dataset: Any
    names: list[str]
    files: list[tuple[str, int]]
    notes: list[str]

    def __len__(self) -> int:
        return len(self.dataset)

    def column(self, name: str) -> Column:
        """The values of a column that exists."""
        feature = self.dataset.features[name]
        return Column(self.dataset.data.column(name), getattr(feature, "names", None))

    def place(self, index: int) -> str:
        """File and line of a row, for messages; a file of another format than text has row numbers, from 1."""
        number = next(i for i, (_, end) in enumerate(self.files) if index < end)
        name, start = self.files[number][0], self.files[number - 1][1] if number else 0
        line = self.dataset.data.column(LINE)[index].as_py() if LINE in self.dataset.column_names else None
        return f"{name}, row {index - start + 1}" if line is None else f"{name}, line {line}"


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
        found = sorted(str(f) for f in file.rglob("*") if f.is_file() and f.suffix.lower() in (*SUFFIXES, *PLAIN))
        if not found:
            raise DataError(f"{path} holds no table; give a folder of {', '.join(SUFFIXES)} files")
        if len(kinds := sorted({Path(f).suffix.lower() for f in found})) > 1:
            raise DataError(
                f"{path} holds tables of several formats ({', '.join(kinds)}); give one, as {path}/*{kinds[0]}"
            )
        return found
    if any(c in path for c in "*?[") and not file.exists():
        # glob, as the pattern may be absolute, which Path.glob refuses
        found = sorted(f for f in glob(str(file), recursive=True) if Path(f).is_file())  # noqa: PTH207
        if not found:
            raise DataError(f"no file matches {path}; check the pattern (it is relative to {Path.cwd()})")
        return found
    return [str(file)]


def read_tables(
    path: str | Sequence[str],
    *,
    split: str = "train",
    separator: str | None = None,
    columns: Sequence[str] | None = None,
) -> Rows:
    """The rows of one path or several: files, folders of shards, patterns, hub names.

    split: of a hub name. separator: of CSV files; None: found in the header. columns: names, where CSV files have no
    header. Raises DataError, naming file and line, where one cannot be read or their columns differ.
    """
    paths = [file for one in ([path] if isinstance(path, str) else path) for file in files_of(one)]
    if not paths:
        raise DataError("path is an empty list; give at least one table")
    notes: list[str] = []
    parts = [_one(file, split, separator, columns, notes) for file in paths]
    first = _names(parts[0])
    for file, part in zip(paths, parts):
        if set(_names(part)) != set(first):
            odd = sorted(set(_names(part)) ^ set(first))
            raise DataError(
                f"{file} has the columns {_list(_names(part))}, and {paths[0]} has {_list(first)}; "
                f"give tables of the same columns ({_list(odd)} is not in both)"
            )
    rows = parts[0]
    if len(parts) > 1:
        with _quiet() as datasets:
            try:
                rows = datasets.concatenate_datasets(parts)
            except ValueError as error:
                raise DataError(
                    f"the tables {paths[0]}, … differ ({reason_of(error)}); give columns of one type"
                ) from error
    ends, end = [], 0
    for part in parts:
        end += len(part)
        ends.append(end)
    return Rows(rows, first, list(zip(paths, ends)), list(dict.fromkeys(notes)))


def _names(dataset: Any) -> list[str]:
    return [name for name in dataset.column_names if name != LINE]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:12])}, … ({len(names)} in all)"


def _one(path: str, split: str, separator: str | None, columns: Sequence[str] | None, notes: list[str]) -> Any:
    """The `datasets.Dataset` of one file or hub name."""
    if is_remote(path):
        return _remote(path, split)
    file = Path(path)
    suffix = file.suffix.lower()
    try:
        head = read_regular(file, 4)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; check the path") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); give a file that you may read") from error
    if not head:
        raise DataError(f"{path} is empty (0 bytes); give a table with a header and rows")
    if suffix in PARQUET:
        return _parquet(path)
    if suffix in ARROW:
        return _arrow(path)
    if suffix not in (*SUFFIXES, *PLAIN):
        raise DataError(f"{path} ends in {suffix or 'nothing'}; tables end in {', '.join((*SUFFIXES, *PLAIN))}")
    reader = text_table(file, separator, columns, notes)
    if file.stat().st_size <= IN_MEMORY_BYTES:
        return _in_memory(reader)
    return _cached(file, reader, [separator, list(columns or ())])


def _in_memory(reader: TextTable) -> Any:
    import pyarrow as pa

    with _quiet() as datasets:
        return datasets.Dataset(pa.Table.from_batches(reader.batches(), schema=reader.schema()))


def _cached(file: Path, reader: TextTable, options: Any) -> Any:
    """The file as Arrow in the cache folder, written whole or not at all; a file that changed has another name."""
    import pyarrow as pa

    stat = file.stat()
    key = repr((VERSION, str(file.resolve()), stat.st_size, stat.st_mtime_ns, options))
    path = writable(f"tables/{file.stem}-{sha256(key.encode()).hexdigest()[:24]}.arrow")
    if not path.exists():
        temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_stream(sink, reader.schema()) as writer:
                for batch in reader.batches():
                    writer.write_batch(batch)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    with _quiet() as datasets:
        return datasets.Dataset.from_file(str(path))


# ── columns of their own types ───────────────────────────────────────────────────────────────────────────────────────


def _parquet(path: str) -> Any:
    stat = Path(path).stat()
    key = repr((str(Path(path).resolve()), stat.st_size, stat.st_mtime_ns))
    folder = writable(f"tables/{Path(path).stem}-{sha256(key.encode()).hexdigest()[:24]}/data").parent
    with _quiet() as datasets:
        try:
            return datasets.Dataset.from_parquet(path, cache_dir=str(folder))
        except Exception as error:  # whatever pyarrow and datasets raise of a damaged file
            raise DataError(f"{path} cannot be read as Parquet ({reason_of(error)}); write it again") from error


def _arrow(path: str) -> Any:
    """An Arrow file or stream, mapped as it lies."""
    import pyarrow as pa

    with _quiet() as datasets:
        try:
            mapped = pa.memory_map(path)
            try:
                table = pa.ipc.open_file(mapped).read_all()
            except pa.ArrowInvalid:
                table = pa.ipc.open_stream(mapped).read_all()
            return datasets.Dataset(table)
        except Exception as error:
            raise DataError(f"{path} cannot be read as Arrow ({reason_of(error)}); write it again") from error


BUILDERS = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".arrow": "arrow"}


def _remote(path: str, split: str) -> Any:
    """A hub name, `hf://owner/name`, or a file of an object store, `s3://bucket/file.parquet`; never code of theirs."""
    scheme, _, rest = path.partition("://")
    folder = str(writable("tables/remote/data").parent)
    suffix = Path(rest).suffix.lower()
    with _quiet() as datasets:
        try:
            if scheme == "hf" and rest.strip("/").count("/") <= 1:
                return datasets.load_dataset(rest.strip("/"), split=split, cache_dir=folder)
            if suffix not in BUILDERS:
                raise DataError(f"{path} ends in {suffix or 'nothing'}; files elsewhere end in {', '.join(BUILDERS)}")
            options = {"sep": "\t"} if suffix == ".tsv" else {}
            return datasets.load_dataset(BUILDERS[suffix], data_files=path, split="train", cache_dir=folder, **options)
        except DataError:
            raise
        except Exception as error:  # whatever its file systems raise
            raise DataError(
                f"{path} cannot be read ({reason_of(error)}); check the name, and that it is online"
            ) from error


@contextmanager
def _quiet() -> Iterator[Any]:
    """The library `datasets`, without telemetry, progress bars and chatter; 1.2 s to import, so where it is used."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import datasets

    had_bars = not datasets.are_progress_bars_disabled()
    counts = datasets.config.HF_UPDATE_DOWNLOAD_COUNTS
    level = datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    datasets.logging.set_verbosity_error()
    try:
        yield datasets
    finally:
        datasets.logging.set_verbosity(level)
        datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = counts
        if had_bars:
            datasets.enable_progress_bars()
