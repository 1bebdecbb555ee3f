"""Rows of table files: CSV, TSV, JSON, JSON Lines, Parquet, Arrow and lines of text, each fault with its file and line.

Python's `csv` and `json` read text. pandas and pyarrow are no faster where faults have to be named: 58,788 rows of 25
columns take `csv.reader` 0.4 s and `pandas.read_csv` 0.5 s. And they let through what would be learned as data (pandas
3.0, pyarrow 26.0): a row with a cell too few is filled up with nothing, `"one" two` becomes `one two`, a quote that is
not closed takes rows into its cell, and faults have the number of a row, not of a line.
"""

from __future__ import annotations

import csv
import json
import lzma
import os
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import accumulate, chain, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from seqkit.data.formats import TABLE
from seqkit.data.io import COMPRESSED, not_utf8, read_bytes
from seqkit.data.source import import_optional
from seqkit.data.tables.cells import word_of
from seqkit.data.walk import matching, walk
from seqkit.errors import DataError, one_line
from seqkit.files import load_json, unique_keys

SEPARATORS = (",", ";", "\t", "|")

MAX_CELL = 2**24
"""Characters of a cell; a quote that is never closed would make the rest of the file one."""

MAX_LINE = 2**26
"""Characters of a line of a compressed file: a few megabytes may hold one that fills the memory."""

MAX_FIELDS = 10_000
"""Different fields of the objects of a JSON Lines file."""

MAX_FAULTS = 1_000
"""Faulty rows that are collected; a file with more of them is read in a wrong way."""

MAX_ARRAY = 1 << 30
"""Characters of a JSON array, which is read as a whole; JSON Lines have no such limit."""

LOOKED_AT = 20
"""Lines by which separator and header are found."""

SEVERAL_WORDS = 3
"""Words from which on a cell of the first line is a text rather than a name."""

INDEX = re.compile(r"__index_level_\d+__")
"""Columns in which pandas writes its index to Parquet."""


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
        parts.append(_remote(file, split) if is_remote(file) else _read(Path(file), header, max_rows))
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
        return _arrow(file, max_rows)
    text = _Text(file, max_rows)
    if suffix in (".csv", ".tsv"):
        names, rows = text.delimited("\t" if suffix == ".tsv" else None, header)
    elif suffix in (".json", ".jsonl", ".ndjson"):
        return text.objects()
    elif suffix == ".txt":
        names, rows = ["text"], ((number, [line]) for number, line in text.lines() if line.strip())
    else:
        known = ", ".join(sorted({format_suffix(f"t{name}") for name in (*TABLE.suffixes, ".txt")}))
        raise DataError(f"{file} ends in {file.suffix.lower() or 'nothing'}; tables end in {known}")
    lines: list[int] = []
    columns: dict[str, list[str]] = {name: [] for name in names}
    rows = islice(rows, max_rows)
    while chunk := [*islice(rows, 500)]:  # cells by column, so that no row stays in memory
        lines += [line for line, _ in chunk]
        for column, cells in zip(columns.values(), zip(*(row for _, row in chunk))):
            column += cells
    return Rows(columns, [(str(file), len(lines))], lines, text.faults, text.notes)


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _QuoteError(DataError):
    """A quote that is not closed, or closed too early."""


@dataclass
class _Text:
    """Reads one text file. faults, notes: as those of `Rows`."""

    file: Path
    max_rows: int | None
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[tuple[int, str]]:
        """(number, line without its end); lines end at a line feed alone, as U+2028 may stand inside one."""
        with _opened(self.file) as text:
            for number, line in enumerate(text, start=1):
                yield number, line.rstrip("\r\n")

    def fault(self, error: str) -> None:
        """Keep an error of a row. Raises DataError for the first one where there are too many."""
        self.faults.append(f"{self.file}, {error}")
        if len(self.faults) > MAX_FAULTS:
            raise DataError(f"{self.faults[0]} (and so are more than {MAX_FAULTS:,} rows)")

    # ── delimited ────────────────────────────────────────────────────────────────────────────────────────────────────

    def delimited(
        self, separator: str | None, header: Sequence[str] | None
    ) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
        """Names of the columns and rows. separator: None: found in the first lines."""
        first = [line for _, (_, line) in zip(range(LOOKED_AT), self.lines()) if line.strip()]
        if not first:
            raise DataError(f"{self.file} holds only blank lines; give a table with a header and rows")
        skipped = 0
        if named := re.fullmatch(r"sep=(.)", first[0]):
            separator, skipped = named[1], 1
        elif first[0].startswith("#"):
            skipped = next((i for i, line in enumerate(first) if not line.startswith("#")), len(first))
            if skipped == len(first):
                raise DataError(f"{self.file} begins with {len(first)} lines or more of comments; take them out")
        separator = separator or self._separator(first[skipped:])
        if skipped and not named:
            if header is None and 0 < first[skipped].count(separator) == first[skipped - 1].count(separator):
                advice = "take out the # if it is the header, else the line"
                raise DataError(
                    f"{self.file}, line {skipped} begins with # and has as many cells as the next; {advice}"
                )
            self.notes.append(f"{self.file}: {skipped} lines at the top that begin with # are left out")
        quoted = separator != "\t" or self._is_quoted()
        rows = self._cells(separator, quoted)
        for _ in range(skipped):
            next(rows)
        if header is None:
            names = [word_of(cell) or f"column {i}" for i, cell in enumerate(next(rows)[1], start=1)]
            self._check_header(names, [row for _, (_, row) in zip(range(LOOKED_AT), self._cells(separator, quoted))])
        else:
            names = list(header)
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise DataError(f"{self.file} has two columns called {twice[0]!r}; rename one, or give --data.columns")
        return names, self._checked(rows, names, separator, has_header=header is None)

    def _separator(self, first: Sequence[str]) -> str:
        """The separator by which most of the first lines have as many cells as the first one, more than one."""
        found: dict[str, tuple[int, int]] = {}
        for mark in SEPARATORS:
            with _large_cells(), suppress(csv.Error):
                widths = [len(row) for row in csv.reader(first, delimiter=mark) if row]
                if widths and widths[0] > 1:
                    found[mark] = (sum(width == widths[0] for width in widths), widths[0])
        best = max(found, key=lambda mark: found[mark], default=",")
        if best != ",":
            names = {";": "semicolons", "\t": "tabs", "|": "bars"}
            self.notes.append(f"{self.file}: columns are separated by {names[best]}")
        return best

    def _is_quoted(self) -> bool:
        """Whether quotes in a tab-separated file enclose cells; messages often hold single ones as they are."""
        width = None
        try:
            for _, row in self._cells("\t", True):
                width = width or len(row)
                if len(row) != width or any("\n" in cell and "\t" in cell for cell in row):
                    return False
        except _QuoteError:
            return False
        return True

    def _check_header(self, names: Sequence[str], first: Sequence[Sequence[str]]) -> None:
        """Raise DataError where line 1 looks like a row: a table without a header would lose a row silently.

        It does where a cell is a number with a point, or all are, and where a text stands beside a value of its column.
        """
        below = [row for row in first if len(row) == len(names)][1:]
        numbers = [_is_number(name) for name in names]
        values = [any(row[i].strip() == name for row in below) for i, name in enumerate(names)]
        texts = [len(name.split()) >= SEVERAL_WORDS for name in names]
        if sum(name.startswith("column ") for name in names) > len(names) / 2:
            raise DataError(f"{self.file}, line 1 looks like a title: most of its cells are empty; take it out")
        has_decimal = any(is_one and "." in name for is_one, name in zip(numbers, names))
        if all(numbers) or has_decimal or (any(texts) and any(values)) or (len(names) > 1 and all(texts)):
            example = ", ".join(f"column{i}" for i in range(1, min(len(names), 3) + 1)) + ", …" * (len(names) > 3)
            raise DataError(
                f"{self.file}, line 1 looks like a row, not like a header: {one_line(repr(names[-1]))[:60]}; write a "
                f"header into the file, or name all {len(names)} columns: --data.columns '[{example}]'"
            )

    def _checked(
        self, rows: Iterator[tuple[int, list[str]]], names: Sequence[str], separator: str, *, has_header: bool
    ) -> Iterator[tuple[int, list[str]]]:
        """The rows that have a cell for each column."""
        mark = {"\t": "a tab"}.get(separator, repr(separator))
        for line, row in rows:
            if len(row) != len(names):
                count = f"{len(row)} cell{'' if len(row) == 1 else 's'}"
                what = "the header" if has_header else "--data.columns"
                self.fault(f"line {line} has {count}, and {what} has {len(names)}; quote cells that hold {mark}")
            elif "\0" in "".join(row):
                self.fault(f"line {line} holds NUL bytes, so it is no text; give CSV as UTF-8")
            elif word_of(row[0]) == names[0] and has_header and len(row) > 1 and [*map(word_of, row)] == [*names]:
                self.fault(f"line {line} is the header again, as where files were joined; take it out")
            else:
                yield line, row

    def _cells(self, separator: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
        """(line, cells) of each row that is not blank. Raises `_QuoteError` with the line where quotes are wrong."""
        with _opened(self.file) as text, _large_cells():
            reader = csv.reader(
                text, delimiter=separator, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=quoted
            )
            begins = 1
            try:
                for row in reader:
                    if row and (len(row) > 1 or row[0].strip()):
                        yield begins, row
                    begins = reader.line_num + 1
            except csv.Error as error:
                is_open = "unexpected end of data" in str(error) or "field larger" in str(error)
                reason = "a quote that opens there is not closed" if is_open else str(error)
                where = f"line {begins}" + ("" if begins == reader.line_num else f" to {reader.line_num}")
                raise _QuoteError(f"{self.file}, {where}: {reason}; double the quotes inside a cell") from error

    # ── JSON ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def objects(self) -> Rows:
        """Rows of a JSON Lines file, or of a file that is one array of objects."""
        records: list[dict[str, Any]] = []
        places: list[int] = []
        names: dict[str, None] = {}
        array = self._array() if format_suffix(self.file) == ".json" else None
        unit = "line" if array is None else "entry"
        for number, record in self._parsed() if array is None else enumerate(array, start=1):
            if not isinstance(record, dict):
                self.fault(f'{unit} {number} holds no object; give objects, such as {{"text": …}}')
                continue
            names.update(dict.fromkeys(record))
            if len(names) > MAX_FIELDS:
                raise DataError(f"{self.file}, {unit} {number}: there are more than {MAX_FIELDS:,} fields so far")
            records.append(record)
            places.append(number)
            if len(records) == self.max_rows:
                break
        if not names:
            no_fields = f'{self.file} holds no objects with fields; give one a line, such as {{"text": …}}'
            raise DataError(self.faults[0] if self.faults else no_fields)
        columns = {name: [record.get(name) for record in records] for name in names}
        return Rows(columns, [(str(self.file), len(records))], places, self.faults, self.notes)

    def _parsed(self) -> Iterator[tuple[int, Any]]:
        """(line, value) of each line that is JSON."""
        for number, line in self.lines():
            if not line.strip():
                continue
            try:
                value = json.loads(line, object_pairs_hook=unique_keys)
                if "\\ud" in line.lower():  # the escape of half a surrogate pair is no character
                    json.dumps(value, ensure_ascii=False).encode()
            except (ValueError, RecursionError) as error:
                self.fault(
                    f'line {number} is no JSON ({one_line(str(error))}); give an object a line, as {{"text": …}}'
                )
                continue
            yield number, value

    def _array(self) -> list[Any] | None:
        """Entries of a file that is an array, or an object with one array of objects; None: it holds something else."""
        begin = next((line for _, line in self.lines() if line.strip()), "")
        if not begin.lstrip().startswith(("[", "{")):
            return None
        text, length = [], 0
        with _opened(self.file) as lines:
            for line in lines:
                text.append(line)
                length += len(line)
                if length > MAX_ARRAY:
                    raise DataError(f"{self.file} has more than {MAX_ARRAY:,} characters; write JSON Lines: .jsonl")
        try:
            whole = load_json("".join(text))
        except (ValueError, RecursionError) as error:
            if "Extra data" in str(error):  # objects, one after the other
                return None
            raise DataError(f"{self.file} is no JSON ({one_line(str(error))}); give an array of objects") from error
        if isinstance(whole, dict):
            lists = [x for x in whole.values() if isinstance(x, list) and all(isinstance(one, dict) for one in x)]
            whole = lists[0] if len(lists) == 1 else [whole]
        return list(whole)


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return text == text.strip() and float(text) == float(text)
    return False


@contextmanager
def _large_cells() -> Iterator[None]:
    limit = csv.field_size_limit(MAX_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


@contextmanager
def _opened(file: Path) -> Iterator[Iterator[str]]:
    """The lines of a file, without a byte-order mark. Raises DataError for what is no text, or is damaged."""
    opener = COMPRESSED.get(file.suffix.lower())
    with file.open("rb") as beginning:
        is_utf16 = opener is None and beginning.read(2) in (b"\xff\xfe", b"\xfe\xff")
    try:
        encoding = "utf-16" if is_utf16 else "utf-8-sig"
        with (opener or Path.open)(file, "rb") as data, TextIOWrapper(data, encoding=encoding, newline="") as text:
            yield text if opener is None else _bounded(file, text)
    except UnicodeError:
        raise not_utf8(file) from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{file} is damaged ({one_line(str(error))}); write it again") from error


def _bounded(file: Path, text: IO[str]) -> Iterator[str]:
    """The lines of a compressed file. Raises DataError for one that would fill the memory."""
    number = 0
    while line := text.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            raise DataError(f"{file}, line {number} has more than {MAX_LINE:,} characters; write a row a line")
        yield line


# ── Parquet, Arrow, and the hub ──────────────────────────────────────────────────────────────────────────────────────


class ArrowColumn(Sequence[Any]):
    """Cells of a column of an Arrow table, read on access: it may hold whole files."""

    def __init__(self, name: str, values: Any, classes: Sequence[str] | None):
        self._name, self._values, self._classes = name, values, classes

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
            return self._classes[value] if 0 <= value < len(self._classes) else None
        return value


def _arrow(file: Path, max_rows: int | None) -> Rows:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    with _reading(file):
        if file.suffix.lower() == ".parquet":
            parquet = ParquetFile(file, memory_map=True, page_checksum_verification=True)
            batches = [*zip(range(-(-(max_rows or 2**62) // 10_000)), parquet.iter_batches(10_000))]
            table = pa.Table.from_batches([batch for _, batch in batches], parquet.schema_arrow)
        else:
            mapped = pa.memory_map(str(file))
            try:
                table = pa.ipc.open_file(mapped).read_all()
            except pa.ArrowInvalid:
                table = pa.ipc.open_stream(mapped).read_all()
        table.validate(full=True)  # a flipped byte may be an offset that leads out of the file
    return _of_arrow(table, str(file))


def _of_arrow(table: Any, name: str) -> Rows:
    """Rows of an Arrow table: decimals and durations as numbers, without the index of pandas."""
    import pyarrow as pa

    columns: dict[str, Sequence[Any]] = {}
    for column in table.column_names:
        if INDEX.fullmatch(column):
            continue
        if column in columns:
            raise DataError(f"{name} has two columns called {column!r}; rename one")
        values, kind = table.column(column), table.schema.field(column).type
        with _reading(f"{name}: column {column!r}"):
            if pa.types.is_decimal(kind):
                values = values.cast(pa.float64())
            elif pa.types.is_duration(kind):
                values = pa.compute.divide(values.cast(pa.duration("ns")).cast(pa.int64()).cast(pa.float64()), 1e9)
        columns[column] = ArrowColumn(f"{name}: column {column!r}", values, _classes(table.schema.metadata, column))
    return Rows(columns, [(name, int(table.num_rows))])


def _classes(metadata: dict[bytes, bytes] | None, column: str) -> list[str] | None:
    """Names of the classes of a column of numbers, as Hugging Face `datasets` keeps them in a file; None: none."""
    with suppress(ValueError, KeyError, TypeError):
        feature = load_json((metadata or {})[b"huggingface"].decode())["info"]["features"][column]
        if feature["_type"] == "ClassLabel" and all(isinstance(name, str) for name in feature["names"]):
            return list(feature["names"])
    return None


@contextmanager
def _reading(what: str | Path) -> Iterator[None]:
    """Turns what pyarrow raises on damaged data into a DataError: its own errors, and those of Python beneath them."""
    try:
        yield
    except (DataError, IndexError):
        raise
    except Exception as error:
        raise DataError(f"{what} cannot be read ({_reason(error)}); write it again") from error


def _reason(error: BaseException) -> str:
    return one_line(" ".join(str(error).split()))[:200] or type(error).__name__


def _remote(path: str, split: str) -> Rows:
    """Rows of a data set of Hugging Face's hub, `hf://owner/name`; never code of theirs."""
    name = re.fullmatch(r"hf://(\w[\w.-]*/\w[\w.-]*)/?", path)
    if name is None:
        raise DataError(f"{one_line(path)} is not read: give a file of this machine, or hf://owner/name of the hub")
    if Path(name[1]).exists():  # which `datasets` would read in place of the hub's
        raise DataError(f"{path} is of the hub, and there is a folder {name[1]} here; run the command elsewhere")
    for switch in ("HF_HUB_DISABLE_TELEMETRY", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(switch, "1")
    datasets = import_optional("datasets", "hub")
    from seqkit.data.cache import cache_folder

    try:
        found = datasets.load_dataset(name[1], split=split, cache_dir=str(cache_folder() / "hub"))
        table = found.data.table.replace_schema_metadata(found.features.arrow_schema.metadata)
    except Exception as error:  # whatever its file systems raise
        raise DataError(f"{path} cannot be read ({_reason(error)}); check the name, and that it is online") from error
    return _of_arrow(table, path)
