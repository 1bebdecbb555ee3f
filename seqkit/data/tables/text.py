"""Parsers of text tables: CSV, TSV, JSON Lines, CoNLL and plain lines, each fault with its file and line.

They are parsed here because a fault is to be named by its line: pandas, which `datasets` reads CSV with, fills short
rows silently and takes the type of a column from its chunks.
"""

from __future__ import annotations

import csv
import json
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from seqkit.errors import DataError, one_line
from seqkit.files import load_json

DELIMITED = {".csv": "", ".tsv": "\t"}
"""Suffixes of delimited text, with the separator; an empty one is found in the header."""

JSON_LINES = (".jsonl", ".ndjson")
CONLL = (".conll", ".bio", ".iob")
PLAIN = (".txt",)

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

MAX_CELL = 2**24
"""Characters of a cell; a quote that is never closed would make the rest of the file one."""

MAX_FIELDS = 1_000
"""Different fields of the objects of a JSON Lines file."""

BATCH_ROWS, BATCH_CHARACTERS = 10_000, 2**26
"""Rows of an Arrow batch end at the one or the other."""

LINE = "__line__"
"""Column that holds the line (from 1) in which a row begins."""

ENCODED = "\0"
"""Begins a cell that holds a JSON value other than a text, in JSON."""


class TextTable:
    """Batches of a text file. columns: their names. batches: of (line, cells in the order of the columns)."""

    def __init__(self, columns: list[str], rows: Callable[[], Iterator[tuple[int, list[str | None]]]]):
        self.columns, self.rows = columns, rows

    def batches(self) -> Iterator[Any]:
        """pyarrow.RecordBatch, one after the other."""
        lines: list[int] = []
        cells: list[list[str | None]] = []
        used = 0
        for line, row in self.rows():
            lines.append(line)
            cells.append(row)
            used += sum(len(cell) for cell in row if cell is not None)
            if len(lines) >= BATCH_ROWS or used >= BATCH_CHARACTERS:
                yield self._batch(lines, cells)
                lines, cells, used = [], [], 0
        if lines:
            yield self._batch(lines, cells)

    def schema(self) -> Any:
        """Texts, and the line of each row."""
        import pyarrow as pa

        return pa.schema([*((name, pa.string()) for name in self.columns), (LINE, pa.int64())])

    def _batch(self, lines: list[int], cells: list[list[str | None]]) -> Any:
        import pyarrow as pa

        return pa.record_batch([*(list(column) for column in zip(*cells)), lines], schema=self.schema())


def text_table(file: Path, separator: str | None, columns: Sequence[str] | None, notes: list[str]) -> TextTable:
    suffix = file.suffix.lower()
    if suffix in JSON_LINES:
        names = _json_columns(file)
        return TextTable(names, lambda: _json_rows(file, names))
    if suffix in CONLL:
        return TextTable(["tokens", "tags"], lambda: _conll_rows(file))
    if suffix in PLAIN:
        return TextTable(["text"], lambda: _plain_rows(file))
    return _delimited(file, separator, columns, notes)


# ── delimited text ───────────────────────────────────────────────────────────────────────────────────────────────────


def _delimited(file: Path, separator: str | None, columns: Sequence[str] | None, notes: list[str]) -> TextTable:
    if separator is not None and len(separator) != 1:
        raise DataError(f"--data.separator is {separator!r}; give one character, such as ';'")
    found = separator or DELIMITED[file.suffix.lower()] or _separator(file, notes)
    quoted = found != "\t" or _is_quoted(file, found)
    header: list[str] = list(columns or ()) or _header(file, found, quoted)
    twice = sorted({name for name in header if header.count(name) > 1})
    _check_names(header, file)
    if twice:
        raise DataError(
            f"{file} has two columns called {twice[0]!r}; rename one in its first line, or give --data.columns"
        )
    return TextTable(header, lambda: _delimited_rows(file, found, quoted, header, has_header=columns is None))


def _check_names(names: Sequence[str], file: Path) -> None:
    if LINE in names:
        raise DataError(f"{file} has a column called {LINE}, which is ours; rename it")


def _separator(file: Path, notes: list[str]) -> str:
    """The separator that the first line has most of, quoted cells apart."""
    with _opened(file) as text:
        line = next((line for line in text if line.strip()), "")
    bare, inside = [], False
    for letter in line:
        inside ^= letter == '"'
        if not inside:
            bare.append(letter)
    counts = {mark: bare.count(mark) for mark in SEPARATORS}
    most = max(counts.values())
    best = [mark for mark, count in counts.items() if count == most and count > 0]
    if len(best) > 1:
        words = " and ".join(f"{most} {SEPARATORS[mark]}" for mark in best)
        raise DataError(f"{file}, line 1 has {words}; say which separates the columns: --data.separator '{best[0]}'")
    if not best:
        return ","
    if best[0] != ",":
        notes.append(f"{file}: columns are separated by {SEPARATORS[best[0]]}")
    return best[0]


def _header(file: Path, separator: str, quoted: bool) -> list[str]:
    for _, row in _cells(file, separator, quoted):
        # pandas writes the index as a column without a name
        return [cell.strip() or f"column {i}" for i, cell in enumerate(row, start=1)]
    raise DataError(f"{file} holds only blank lines; give a table with a header and rows")


def _is_quoted(file: Path, separator: str) -> bool:
    """Whether quotes in a tab-separated file enclose cells; messages and tags often hold single ones as they are."""
    try:
        width = None
        for _, row in _cells(file, separator, True):
            width = width or len(row)
            if len(row) != width or any("\n" in cell and separator in cell for cell in row):
                return False
    except DataError as error:
        if "UTF-8" in str(error) or "NUL" in str(error):
            raise
        return False
    return True


def _delimited_rows(
    file: Path, separator: str, quoted: bool, header: list[str], *, has_header: bool
) -> Iterator[tuple[int, list[str | None]]]:
    rows = _cells(file, separator, quoted)
    if has_header:
        next(rows, None)
    for line, row in rows:
        if len(row) != len(header):
            mark = {"\t": "a tab"}.get(separator, repr(separator))
            advice = (
                f"quote cells that hold {mark}, or give --data.separator" if quoted else "take the line out, or mend it"
            )
            names = "the header" if has_header else "--data.columns"
            s = "" if len(row) == 1 else "s"
            raise DataError(f"{file}, line {line} has {len(row)} cell{s}, and {names} has {len(header)}; {advice}")
        yield line, list(row)


def _cells(file: Path, separator: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row that is not blank. Raises DataError with the line of a fault."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    with _opened(file) as text:
        reader = csv.reader(text, delimiter=separator, quoting=quoting, strict=quoted)
        while True:
            begins = reader.line_num + 1
            limit = csv.field_size_limit(MAX_CELL)  # of the process, and others read CSV between two rows
            try:
                row = next(reader, None)
            except csv.Error as error:
                reason = str(error)
                if "unexpected end of data" in reason or "field larger" in reason:
                    reason = "a quote that opens there is not closed"
                where = f"{file}, line {begins}" + ("" if begins == reader.line_num else f" to {reader.line_num}")
                raise DataError(
                    f"{where}: {reason}; double the quotes inside a cell, or give --data.separator"
                ) from error
            finally:
                csv.field_size_limit(limit)
            if row is None:
                return
            if any("\0" in cell for cell in row):
                raise DataError(f"{file}, line {begins} holds NUL bytes, so it is no text; give CSV as UTF-8")
            if row and (len(row) > 1 or row[0].strip()):
                yield begins, row


@contextmanager
def _opened(file: Path) -> Iterator[IO[str]]:
    """The text of a file, without a byte-order mark. Raises DataError, with the offset, for what is not UTF-8."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            yield text
    except UnicodeDecodeError:
        raise DataError(_not_utf8(file)) from None


def _not_utf8(file: Path) -> str:
    """Where the first byte is that is not UTF-8, and its line."""
    decoder, before, line = getincrementaldecoder("utf-8")(), 0, 1
    with file.open("rb") as data:
        head = data.read(2)
        data.seek(0)
        while True:
            block = decoder.getstate()[0] + data.read(2**20)
            decoder.reset()
            try:
                decoder.decode(block, final=len(block) < 2**20)
            except UnicodeDecodeError as error:
                offset, byte = before + error.start, block[error.start]
                line += block.count(b"\n", 0, error.start)
                break
            taken = len(block) - len(decoder.getstate()[0])
            before, line = before + taken, line + block.count(b"\n", 0, taken)
    is_utf16 = head in (b"\xff\xfe", b"\xfe\xff")
    kind, encoding = ("it looks like UTF-16; ", "utf-16") if is_utf16 else ("", "latin1")
    return (
        f"{file} is not UTF-8: byte 0x{byte:02x} at offset {offset}, line {line}; {kind}save it as UTF-8 "
        f"(for instance: iconv -f {encoding} -t utf-8 {file.name} > new{file.suffix})"
    )


# ── other text ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """(number, line without its end) of a file; lines end at a line feed alone, as U+2028 may stand inside one."""
    with _opened(file) as text:
        for number, line in enumerate(text, start=1):
            yield number, line.rstrip("\r\n")


def _records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(file):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
        try:
            record = load_json(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f'{place} is no JSON ({reason_of(error)}); give an object a line, such as {{"text": …}}'
            ) from error
        if not isinstance(record, dict):
            raise DataError(f'{place} holds no object; give one a line, such as {{"text": …}}')
        yield number, record


def _json_columns(file: Path) -> list[str]:
    """The fields of all objects, in the order in which they appear."""
    names: dict[str, None] = {}
    for number, record in _records(file):
        names.update(dict.fromkeys(record))
        if len(names) > MAX_FIELDS:
            raise DataError(f"{file}, line {number}: there are more than {MAX_FIELDS:,} fields so far; name them alike")
    _check_names(list(names), file)
    if not names:
        raise DataError(f'{file} holds no objects with fields; give one a line, such as {{"text": …}}')
    return list(names)


def _json_rows(file: Path, names: Sequence[str]) -> Iterator[tuple[int, list[str | None]]]:
    for number, record in _records(file):
        try:
            row = [_cell(record.get(name)) for name in names]
            "".join(filter(None, row)).encode()
        except UnicodeEncodeError:
            raise DataError(
                f"{file}, line {number} has half a surrogate pair, which is no character; correct it"
            ) from None
        yield number, row


def _cell(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and not value.startswith(ENCODED)):
        return value
    return ENCODED + json.dumps(value, ensure_ascii=False)


def _conll_rows(file: Path) -> Iterator[tuple[int, list[str | None]]]:
    """Sentences of a file with a word and its tag in each line, and a blank line between sentences.

    The word is the first of the columns, which spaces or tabs separate, the tag is the last. Lines that begin with
    `# ` (CoNLL-U) and `-DOCSTART-` are no words.
    """
    tokens: list[str] = []
    tags: list[str] = []
    begins = 1
    for number, line in (*_lines(file), (0, "")):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or cells[0] == "-DOCSTART-":
            if tokens:
                yield begins, [_cell(tokens), _cell(tags)]
            tokens, tags = [], []
            continue
        if line.startswith("# ") and not tokens:
            continue
        if len(cells) < 2 or not cells[0].strip() or not cells[-1].strip():
            raise DataError(f"{file}, line {number} holds {one_line(line)!r}; give a word and its tag in each line")
        if not tokens:
            begins = number
        tokens.append(cells[0].strip())
        tags.append(cells[-1].strip())


def _plain_rows(file: Path) -> Iterator[tuple[int, list[str | None]]]:
    return ((number, [line]) for number, line in _lines(file) if line.strip())


def reason_of(error: BaseException) -> str:
    """An error of a library in one line, by its innermost cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(" ".join(str(error).split()))[:200] or type(error).__name__
