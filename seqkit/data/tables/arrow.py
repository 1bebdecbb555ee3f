"""Rows of Arrow tables: Parquet and Arrow files, and data sets of the Hugging Face hub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyarrow.parquet import ParquetFile

from seqkit.data.cache import cache_folder
from seqkit.data.source import import_optional
from seqkit.data.tables.rows import Rows
from seqkit.errors import DataError, one_line
from seqkit.files import load_json

INDEX = re.compile(r"__index_level_\d+__")
"""Names of the columns in which pandas writes its index to Parquet."""


class ArrowColumn(Sequence[Any]):
    """Cells of a column of an Arrow table, converted on access, since they may be whole files."""

    def __init__(self, name: str, values: Any, classes: Sequence[str] | None):
        self._name = name
        self._values = values
        self._classes = classes

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        with _reading(self._name):
            return self._plain(self._values[index].as_py())

    def __iter__(self) -> Iterator[Any]:
        for chunk in self._values.chunks:
            for start in range(0, len(chunk), 1000):
                with _reading(self._name):
                    values = [self._plain(value) for value in chunk.slice(start, 1000).to_pylist()]
                yield from values

    def _plain(self, value: Any) -> Any:
        if self._classes is not None and isinstance(value, int):
            if 0 <= value < len(self._classes):
                return self._classes[value]
            return None
        return value


def read_arrow(file: Path) -> Rows:
    """Rows of a Parquet or Arrow file. Raises DataError if it is damaged."""
    with _reading(file):
        if file.suffix.lower() == ".parquet":
            parquet = ParquetFile(file, memory_map=True, page_checksum_verification=True)
            table = pa.Table.from_batches(parquet.iter_batches(10_000), parquet.schema_arrow)
        else:
            mapped = pa.memory_map(str(file))
            try:
                table = pa.ipc.open_file(mapped).read_all()
            except pa.ArrowInvalid:
                table = pa.ipc.open_stream(mapped).read_all()
        table.validate(full=True)  # a flipped byte may be an offset beyond the end of the file
    return _of_arrow(table, str(file))


def _of_arrow(table: Any, name: str) -> Rows:
    """Rows of an Arrow table: decimals as numbers, durations in seconds, without the index of pandas."""
    columns: dict[str, Sequence[Any]] = {}
    categories = set()
    for column in table.column_names:
        if INDEX.fullmatch(column):
            continue
        if column in columns:
            raise DataError(f"{name} has two columns called {column!r}; rename one")
        values = table.column(column)
        kind = table.schema.field(column).type
        with _reading(f"{name}: column {column!r}"):
            if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
                categories.add(column)
            elif pa.types.is_decimal(kind):
                values = values.cast(pa.float64())
            elif pa.types.is_duration(kind):
                values = pa.compute.divide(
                    values.cast(pa.duration("ns")).cast(pa.int64()).cast(pa.float64()), 1e9
                )
        columns[column] = ArrowColumn(
            f"{name}: column {column!r}", values, _classes(table.schema.metadata, column)
        )
    files = [(name, int(table.num_rows))]
    return Rows(columns, files, categories=frozenset(categories))


def _classes(metadata: dict[bytes, bytes] | None, column: str) -> list[str] | None:
    """Names of the classes of a column of numbers, as `datasets` of Hugging Face saves them; None: it has none."""
    with suppress(ValueError, KeyError, TypeError):
        feature = load_json((metadata or {})[b"huggingface"].decode())["info"]["features"][column]
        if feature["_type"] == "ClassLabel" and all(
            isinstance(name, str) for name in feature["names"]
        ):
            return list(feature["names"])
    return None


@contextmanager
def _reading(what: str | Path) -> Iterator[None]:
    """Turns any error of pyarrow on damaged data into a DataError, except IndexError, which ends a sequence."""
    try:
        yield
    except (DataError, IndexError):
        raise
    except Exception as error:
        raise DataError(f"{what} cannot be read ({_reason(error)}); write it again") from error


def _reason(error: BaseException) -> str:
    return one_line(" ".join(str(error).split()))[:200] or type(error).__name__


def read_hub(path: str, split: str) -> Rows:
    """Rows of a data set of the Hugging Face hub, `hf://owner/name`; its code is never run."""
    name = re.fullmatch(r"hf://(\w[\w.-]*/\w[\w.-]*)/?", path)
    if name is None:
        raise DataError(
            f"{one_line(path)} is not read: give a local file, or hf://owner/name for the hub"
        )
    if Path(name[1]).exists():  # `datasets` would read this folder instead
        raise DataError(
            f"{path} is on the hub, but there is a folder {name[1]} here; run the command elsewhere"
        )
    for switch in ("HF_HUB_DISABLE_TELEMETRY", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(switch, "1")
    datasets = import_optional("datasets", "hub")
    try:
        found = datasets.load_dataset(name[1], split=split, cache_dir=str(cache_folder() / "hub"))
        table = found.data.table.replace_schema_metadata(found.features.arrow_schema.metadata)
    except Exception as error:  # its file systems raise errors of many types
        raise DataError(
            f"{path} cannot be read ({_reason(error)}); check the name, and that it is online"
        ) from error
    return _of_arrow(table, path)
