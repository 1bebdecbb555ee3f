"""Rows of text files: CSV and TSV, JSON and JSON Lines; each fault with its file and line.

Python's `csv` and `json` read them. pandas and pyarrow are no faster where faults have to be named: 58,788 rows of 25
columns take `csv.reader` 0.4 s and `pandas.read_csv` 0.5 s. And they let through what would be learned as data (pandas
3.0, pyarrow 26.0): a row with a cell too few is filled up with nothing, `"one" two` becomes `one two`, a quote that is
not closed takes rows into its cell, and faults have the number of a row, not of a line.
"""

from __future__ import annotations

import csv
import json
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedReader, TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from seqkit.data.io import COMPRESSED, not_utf8, reading
from seqkit.data.notes import listed
from seqkit.data.tables.cells import AMBIGUOUS, is_missing, word_of
from seqkit.data.tables.cells import number as number_of
from seqkit.data.tables.rows import Rows, format_suffix
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


class _Unquoted(Exception):
    """Quotes of a file of tabs enclose no cells."""


@dataclass
class TextReader:
    """Reads one text file. faults, notes: as those of `Rows`."""

    file: Path
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

    def delimited(self, header: Sequence[str] | None) -> Rows:
        """Rows of a file of cells. header: names of the columns; None: the first line has them."""
        try:
            return self._delimited(header, quoted=True)
        except _Unquoted:  # messages between tabs often hold single quotes as they are
            self.faults.clear()
            self.notes.clear()
            return self._delimited(header, quoted=False)

    def _delimited(self, header: Sequence[str] | None, *, quoted: bool) -> Rows:
        with _opened(self.file) as text, _large_cells():
            beginning = [*islice(text, LOOKED_AT)]
            filled = [line.rstrip("\r\n") for line in beginning if line.strip()]
            separator, skipped = self._layout(filled, header)
            rows = self._cells(chain(beginning, text), separator, quoted)
            for _ in range(skipped):
                next(rows)
            names = list(header or ())
            if header is None:
                _, first = next(rows)
                names = [word_of(cell) or f"column {i}" for i, cell in enumerate(first, start=1)]
                below = [*islice(rows, LOOKED_AT - 1)]
                self._check_header(names, [row for _, row in below])
                rows = chain(below, rows)
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise DataError(f"{self.file} has two columns called {twice[0]!r}; rename one")
            if separator == "\t" and quoted:
                rows = _strict(rows, len(names))
            checked = self._checked(rows, names, separator, has_header=header is None)
            return self._in_columns(names, checked)

    def _in_columns(self, names: Sequence[str], rows: Iterator[tuple[int, list[str]]]) -> Rows:
        """Cells by column, some rows at a time, so that no row stays in memory."""
        lines = list[int]()
        columns = {name: list[str]() for name in names}
        while chunk := [*islice(rows, 500)]:
            lines += [line for line, _ in chunk]
            for column, cells in zip(columns.values(), zip(*(row for _, row in chunk))):
                column += cells
        return Rows(columns, [(str(self.file), len(lines))], lines, self.faults, self.notes)

    def _layout(self, first: Sequence[str], header: Sequence[str] | None) -> tuple[str, int]:
        """The separator, and the number of lines above the header. first: the first lines that are not blank."""
        if not first:
            raise DataError(
                f"{self.file} holds only blank lines; give a table with a header and rows"
            )
        named = re.fullmatch(r"sep=(.)", first[0])
        if named is not None:
            return named[1], 1
        skipped = next((i for i, line in enumerate(first) if not line.startswith("#")), len(first))
        if skipped == len(first):
            raise DataError(
                f"{self.file} begins with {len(first)} lines or more of comments; take them out"
            )
        separator = "\t"
        if format_suffix(self.file) != ".tsv":
            separator = self._separator(first[skipped:])
        if not skipped:
            return separator, 0
        num_marks = first[skipped].count(separator)
        if header is None and 0 < num_marks == first[skipped - 1].count(separator):
            advice = "take out the # if it is the header, else the line"
            raise DataError(
                f"{self.file}, line {skipped} begins with # and has as many cells as the next; {advice}"
            )
        self.notes.append(f"{self.file}: {skipped} lines at the top that begin with # are left out")
        return separator, skipped

    def _separator(self, first: Sequence[str]) -> str:
        """The separator by which most of the first lines have as many cells as the first one, more than one."""
        found: dict[str, tuple[int, int]] = {}
        for mark in SEPARATORS:
            with suppress(csv.Error):
                widths = [len(row) for row in csv.reader(first, delimiter=mark) if row]
                if widths and widths[0] > 1:
                    found[mark] = (sum(width == widths[0] for width in widths), widths[0])
        best = max(found, key=lambda mark: found[mark], default=",")
        if best != ",":
            names = {";": "semicolons", "\t": "tabs", "|": "bars"}
            self.notes.append(f"{self.file}: columns are separated by {names[best]}")
        return best

    def _check_header(self, names: Sequence[str], below: Sequence[Sequence[str]]) -> None:
        """Raise DataError where line 1 looks like a row: a table without a header would lose a row silently.

        It does where a cell is a number with a point, or all are, and where a text stands beside a value of its column.
        """
        below = [row for row in below if len(row) == len(names)]
        numbers = [_is_number(name) for name in names]
        values = [any(row[i].strip() == name for row in below) for i, name in enumerate(names)]
        texts = [len(name.split()) >= SEVERAL_WORDS for name in names]
        unnamed = [i for i, name in enumerate(names) if name.startswith("column ")]
        is_used = bool(below) and any(below[0][i].strip() for i in unnamed)
        if len(unnamed) > len(names) / 2 and (is_used or not below):
            raise DataError(
                f"{self.file}, line 1 looks like a title: most of its cells are empty; take it out"
            )
        has_decimal = any(is_one and "." in name for is_one, name in zip(numbers, names))
        is_sentences = len(names) > 1 and all(texts)
        words = [i for i, name in enumerate(names) if _is_name(name)]
        if below and any(all(_is_number(row[i].strip()) for row in below) for i in words):
            return  # a name of a column of numbers
        if all(numbers) or has_decimal or is_sentences or (any(texts) and any(values)):
            example = listed([f"column{i}" for i, _ in enumerate(names, start=1)], 3)
            raise DataError(
                f"{self.file}, line 1 looks like a row, not like a header: {one_line(repr(names[-1]))[:60]}; write a "
                f"header into the file, or train with names for all {len(names)}: --data.columns '[{example}]'"
            )

    def _checked(
        self,
        rows: Iterator[tuple[int, list[str]]],
        names: list[str],
        separator: str,
        *,
        has_header: bool,
    ) -> Iterator[tuple[int, list[str]]]:
        """The rows that have a cell for each column."""
        mark = "a tab" if separator == "\t" else repr(separator)
        what = "the header" if has_header else "the list of columns"
        for line, row in rows:
            if len(row) != len(names):
                count = "1 cell" if len(row) == 1 else f"{len(row)} cells"
                self.fault(
                    f"line {line} has {count}, and {what} has {len(names)}; quote cells that hold {mark}"
                )
            elif "\0" in "".join(row):
                self.fault(f"line {line} holds NUL bytes, so it is no text; give CSV as UTF-8")
            elif (
                has_header
                and len(row) > 1
                and word_of(row[0]) == names[0]
                and [*map(word_of, row)] == names
            ):
                self.fault(
                    f"line {line} is the header again, as where files were joined; take it out"
                )
            else:
                yield line, row

    def _cells(
        self, text: Iterable[str], separator: str, quoted: bool
    ) -> Iterator[tuple[int, list[str]]]:
        """(line, cells) of each row that is not blank. Raises DataError with the line where quotes are wrong."""
        last = [""]

        def noted() -> Iterator[str]:
            for line in text:
                last[0] = line
                yield line

        reader = csv.reader(
            noted(),
            delimiter=separator,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            strict=quoted,
        )
        begins = 1
        try:
            for row in reader:
                # of one column, "" is an empty cell, and a line of blanks is none
                if row and (len(row) > 1 or row[0].strip() or '"' in last[0]):
                    yield begins, row
                begins = reader.line_num + 1
        except csv.Error as error:
            if separator == "\t" and quoted:
                raise _Unquoted from error
            reason = str(error)
            if "unexpected end of data" in reason or "field larger" in reason:
                reason = "a quote that opens there is not closed"
            where = f"line {begins}"
            if begins != reader.line_num:
                where += f" to {reader.line_num}"
            raise DataError(
                f"{self.file}, {where}: {reason}; double the quotes inside a cell"
            ) from error

    # ── JSON ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def objects(self) -> Rows:
        """Rows of a JSON Lines file, or of a file that is one array of objects."""
        records: list[dict[str, Any]] = []
        places: list[int] = []
        names: dict[str, None] = {}
        array = None
        if format_suffix(self.file) == ".json":
            array = self._array()
        unit = "line"
        parsed: Iterator[tuple[int, Any]] = self._parsed()
        if array is not None:
            unit = "entry"
            parsed = enumerate(array, start=1)
        for number, record in parsed:
            if not isinstance(record, dict):
                self.fault(f'{unit} {number} holds no object; give objects, such as {{"text": …}}')
                continue
            names.update(dict.fromkeys(record))
            if len(names) > MAX_FIELDS:
                raise DataError(
                    f"{self.file}, {unit} {number}: there are more than {MAX_FIELDS:,} fields so far"
                )
            records.append(record)
            places.append(number)
        if not names:
            no_fields = (
                f'{self.file} holds no objects with fields; give one a line, such as {{"text": …}}'
            )
            raise DataError([*self.faults, no_fields][0])
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
        text = []
        length = 0
        with _opened(self.file) as lines:
            for line in lines:
                text.append(line)
                length += len(line)
                if length > MAX_ARRAY:
                    raise DataError(
                        f"{self.file} has more than {MAX_ARRAY:,} characters; write JSON Lines: .jsonl"
                    )
        try:
            whole = load_json("".join(text))
        except (ValueError, RecursionError) as error:
            if "Extra data" in str(error):  # objects, one after the other
                return None
            raise DataError(
                f"{self.file} is no JSON ({one_line(str(error))}); give an array of objects"
            ) from error
        if isinstance(whole, dict):
            is_pandas = whole.keys() >= {"columns", "data"}
            if whole and all(isinstance(x, dict) and x for x in whole.values()):
                keys = {tuple(x) for x in whole.values()}
                is_pandas = len(keys) == 1 and (len(whole) > 1 or len(*keys) > 1)
            if is_pandas:
                again = "df.to_json(FILE, orient='records', lines=True)"
                raise DataError(
                    f"{self.file} is no list of records, but by columns or index as pandas has it; write {again}"
                )
            lists = [
                x
                for x in whole.values()
                if isinstance(x, list) and all(isinstance(one, dict) for one in x)
            ]
            if len(lists) == 1:
                return lists[0]
            return [whole]
        return list(whole)


def _is_name(text: str) -> bool:
    """Whether a cell of the first line says something, and is no number nor a word for a missing one."""
    is_nothing = text.startswith("column ") or is_missing(text, AMBIGUOUS)
    return not is_nothing and number_of(text) is None and number_of(text, ",") is None


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return text == text.strip() and float(text) == float(text)
    return False


def _strict(rows: Iterator[tuple[int, list[str]]], width: int) -> Iterator[tuple[int, list[str]]]:
    """The rows, as long as quotes between tabs enclose cells: each has the same number, and none holds other rows."""
    for line, row in rows:
        if len(row) != width or any("\n" in cell and "\t" in cell for cell in row):
            raise _Unquoted
        yield line, row


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
    with reading(file):
        data = (opener or Path.open)(file, "rb")
    try:
        encoding = "utf-8-sig"
        if isinstance(data, BufferedReader) and data.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff"):
            encoding = "utf-16"
        with data, TextIOWrapper(data, encoding=encoding, newline="") as text:
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
            raise DataError(
                f"{file}, line {number} has more than {MAX_LINE:,} characters; write a row a line"
            )
        yield line
