"""Rows of text tables: CSV, TSV, JSON Lines and plain lines, each fault with its file and line.

Python's `csv` and `json` read them. The readers of pyarrow (26.0) are faster, and were measured to let through:

* CSV: `"one" two` becomes `one two`, NUL bytes stay, and a quote that is not closed takes the rest of the file into its
  cell where that leaves as many cells. Faults have the number of a row, not of a line.
* JSON Lines: the text "2020-01-01" becomes a timestamp, objects that are nested 100,000 deep end the process, and a
  text and a number in a column that nobody reads refuse the whole file.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Literal

from seqkit.data.io import not_utf8
from seqkit.errors import DataError, one_line
from seqkit.files import decoded, load_json, read_small

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

MAX_CELL = 2**24
"""Characters of a cell; a quote that is never closed would make the rest of the file one."""

MAX_LINE = 2**26
"""Characters of a line of a compressed file: a few megabytes may hold one that fills the memory."""

MAX_FIELDS = 1_000
"""Different fields of the objects of a JSON Lines file."""

MAX_FAULTS = 1_000
"""Faulty rows that are collected; a file with more of them is read with the wrong settings."""

LINE = "__line__"
"""Column that holds the line (from 1) in which a row begins."""

ENCODED = "\0"
"""Begins a cell that holds a JSON value other than a text, in JSON."""

Row = tuple[int, list[str | None]]
"""The line (from 1) in which a row begins, and its cells in the order of the columns."""


def text_table(
    file: Path, separator: str | None, columns: Sequence[str] | None, notes: list[str], faults: list[str]
) -> tuple[list[str], Iterator[Row]]:
    """The names of the columns of a text file, and its rows.

    separator, columns: of CSV files; None: found in the first line. notes: gets a sentence on a separator that was
    guessed. faults: gets an error for each row that cannot be read, while the rows are read.
    Raises DataError, with file and line, for what leaves the rest of the file unclear.
    """
    suffix = format_suffix(file)
    if suffix in (".csv", ".tsv"):
        return _delimited(file, separator or ("\t" if suffix == ".tsv" else None), columns, notes, faults)
    if suffix in (".json", ".jsonl", ".ndjson"):
        names = _json_columns(file)
        return names, _json_rows(file, names, faults)
    return ["text"], ((number, [line]) for number, line in _lines(file) if line.strip())


def format_suffix(file: str | Path) -> str:
    """The suffix that names the format, in lower case; `.gz` behind it counts as none."""
    return Path(str(file).lower().removesuffix(".gz")).suffix


def _add_fault(faults: list[str], fault: str) -> None:
    """Keep an error of a row. Raises DataError for the first one where there are too many."""
    faults.append(fault)
    if len(faults) > MAX_FAULTS:
        raise DataError(f"{faults[0]} (and so are more than {MAX_FAULTS:,} rows)")


# ── delimited text ───────────────────────────────────────────────────────────────────────────────────────────────────


def _delimited(
    file: Path, separator: str | None, columns: Sequence[str] | None, notes: list[str], faults: list[str]
) -> tuple[list[str], Iterator[Row]]:
    if separator is not None and len(separator) != 1:
        raise DataError(f"--data.separator is {separator!r}; give one character, such as ';'")
    separator = separator or _separator(file, notes)
    quoted = separator != "\t" or _is_quoted(file)
    header = list(columns or ()) or _header(file, separator, quoted)
    return header, _delimited_rows(file, separator, quoted, header, columns is None, faults)


def _separator(file: Path, notes: list[str]) -> str:
    """The separator that the first line has most of, quoted cells apart."""
    with _opened(file) as text:
        line = next((line for line in text if line.strip()), "")
    bare = "".join(line.split('"')[::2])
    counts = {mark: bare.count(mark) for mark in SEPARATORS}
    most = max(counts.values())
    best = [mark for mark, count in counts.items() if count == most]
    if most == 0:
        return ","
    if len(best) > 1:
        words = " and ".join(f"{most} {SEPARATORS[mark]}" for mark in best)
        raise DataError(f"{file}, line 1 has {words}; say which separates the columns: --data.separator '{best[0]}'")
    if best[0] != ",":
        notes.append(f"{file}: columns are separated by {SEPARATORS[best[0]]}")
    return best[0]


def _header(file: Path, separator: str, quoted: bool) -> list[str]:
    for _, row in _cells(file, separator, quoted):
        # pandas writes the index as a column without a name
        return [bare_name(cell) or f"column {i}" for i, cell in enumerate(row, start=1)]
    raise DataError(f"{file} holds only blank lines; give a table with a header and rows")


def bare_name(cell: str) -> str:
    """A name of a column or class without the spaces around it, or quotes: in `a, "b"` the space keeps the quotes."""
    name = cell.strip()
    return name[1:-1].strip() if len(name) > 2 and name[0] == name[-1] == '"' else name


def _is_quoted(file: Path) -> bool:
    """Whether quotes in a tab-separated file enclose cells; messages and tags often hold single ones as they are."""
    width = None
    try:
        for _, row in _cells(file, "\t", True):
            width = width or len(row)
            if len(row) != width or any("\n" in cell and "\t" in cell for cell in row):
                return False
    except _QuoteError:
        return False
    return True


def _delimited_rows(
    file: Path, separator: str, quoted: bool, header: list[str], has_header: bool, faults: list[str]
) -> Iterator[Row]:
    rows = _cells(file, separator, quoted)
    if has_header:
        next(rows, None)
    mark = {"\t": "a tab"}.get(separator, repr(separator))
    advice = f"quote cells that hold {mark}, or give --data.separator" if quoted else "take the line out, or mend it"
    for line, row in rows:
        if any("\0" in cell for cell in row):
            _add_fault(faults, f"{file}, line {line} holds NUL bytes, so it is no text; give CSV as UTF-8")
        elif len(row) != len(header):
            count = f"{len(row)} cell{'' if len(row) == 1 else 's'}"
            names = "the header" if has_header else "--data.columns"
            _add_fault(faults, f"{file}, line {line} has {count}, and {names} has {len(header)}; {advice}")
        else:
            yield line, list(row)


class _QuoteError(DataError):
    """A quote that is not closed, or closed too early."""


def _cells(file: Path, separator: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row that is not blank. Raises `_QuoteError` with the line where its quotes are wrong."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    with _opened(file) as text:
        reader = csv.reader(text, delimiter=separator, quoting=quoting, strict=quoted)
        while True:
            begins = reader.line_num + 1
            limit = csv.field_size_limit(MAX_CELL)  # of the process, and others read CSV between two rows
            try:
                row = next(reader, None)
            except csv.Error as error:
                is_open = "unexpected end of data" in str(error) or "field larger" in str(error)
                reason = "a quote that opens there is not closed" if is_open else str(error)
                where = f"{file}, line {begins}" + ("" if begins == reader.line_num else f" to {reader.line_num}")
                raise _QuoteError(
                    f"{where}: {reason}; double the quotes inside a cell, or give --data.separator"
                ) from error
            finally:
                csv.field_size_limit(limit)
            if row is None:
                return
            if row and (len(row) > 1 or row[0].strip()):
                yield begins, row


# ── other text ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _records(file: Path, faults: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of a JSON Lines file, or of a file that is one array of objects (line: their number)."""
    if file.suffix.lower() == ".json" and (array := _array(file)) is not None:
        for number, record in enumerate(array, start=1):
            if isinstance(record, dict):
                yield number, record
            else:
                _add_fault(faults, f'{file}, entry {number} is no object; give objects, such as {{"text": …}}')
        return
    for number, line in _lines(file):
        if not line.strip():
            continue
        try:
            record = load_json(line)
        except (ValueError, RecursionError) as error:
            why = f"is no JSON ({one_line(str(error))})"
            _add_fault(faults, f'{file}, line {number} {why}; give an object a line, such as {{"text": …}}')
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            _add_fault(faults, f'{file}, line {number} holds no object; give one a line, such as {{"text": …}}')


MAX_ARRAY_BYTES = 1 << 30
"""Size of a JSON array, which is read as a whole; JSON Lines have no such limit."""


def _array(file: Path) -> list[Any] | None:
    """Entries of a file that is an array, or an object with one array of objects; None: it begins with something else.

    Raises DataError where it is damaged or too large.
    """
    with file.open("rb") as data:
        if not data.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"[", b"{")):
            return None
    lines = f"{file.with_suffix('.jsonl').name}, an object a line"
    try:
        whole = load_json(decoded(read_small(file, MAX_ARRAY_BYTES)))
    except (ValueError, RecursionError) as error:
        if "Extra data" in str(error):  # objects, one after the other
            return None
        raise DataError(f"{file} is no JSON ({one_line(str(error))}); give an array of objects, or {lines}") from error
    if isinstance(whole, dict):
        lists = [x for x in whole.values() if isinstance(x, list) and all(isinstance(one, dict) for one in x)]
        whole = lists[0] if len(lists) == 1 else [whole]
    return whole


def _json_columns(file: Path) -> list[str]:
    """The fields of all objects, in the order in which they appear."""
    names: dict[str, None] = {}
    faults: list[str] = []
    for number, record in _records(file, faults):
        names.update(dict.fromkeys(record))
        if len(names) > MAX_FIELDS:
            raise DataError(f"{file}, line {number}: there are more than {MAX_FIELDS:,} fields so far; name them alike")
    if not names:
        no_fields = f'{file} holds no objects with fields; give one a line, such as {{"text": …}}'
        raise DataError(faults[0] if faults else no_fields)
    return list(names)


def _json_rows(file: Path, names: Sequence[str], faults: list[str]) -> Iterator[Row]:
    for number, record in _records(file, faults):
        row = [_cell(record.get(name)) for name in names]
        try:
            "".join(filter(None, row)).encode()
        except UnicodeEncodeError:
            _add_fault(faults, f"{file}, line {number} has half a surrogate pair, which is no character; correct it")
            continue
        yield number, row


def _cell(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and not value.startswith(ENCODED)):
        return value
    return ENCODED + json.dumps(value, ensure_ascii=False)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """(number, line without its end) of a file; lines end at a line feed alone, as U+2028 may stand inside one."""
    with _opened(file) as text:
        for number, line in enumerate(text, start=1):
            yield number, line.rstrip("\r\n")


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _opened(file: Path) -> Iterator[Iterator[str]]:
    """The lines of a file, without a byte-order mark. Raises DataError for what is not UTF-8, or is damaged."""
    try:
        with _bytes_of(file) as data, TextIOWrapper(data, encoding="utf-8-sig", newline="") as text:
            yield _bounded(file, text) if file.suffix.lower() == ".gz" else text
    except UnicodeDecodeError:
        raise not_utf8(file) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{file} is damaged ({one_line(str(error))}); compress it again") from error


def _bytes_of(file: Path) -> IO[bytes]:
    return gzip.open(file) if file.suffix.lower() == ".gz" else file.open("rb")  # type: ignore[return-value]


def _bounded(file: Path, text: IO[str]) -> Iterator[str]:
    """The lines of a compressed file. Raises DataError for one that would fill the memory."""
    number = 0
    while line := text.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            raise DataError(f"{file}, line {number} has more than {MAX_LINE:,} characters; write a row a line")
        yield line
