"""Raw examples named on the command line: files, folders, patterns, tables, standard input, or text itself."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from glob import glob
from itertools import islice
from pathlib import Path
from typing import Any

from seqkit.data.formats import (
    AUDIO,
    FORMATS,
    IMAGE,
    MAX_FILES,
    TABLE,
    FileFormat,
    format_of,
    own_reader,
    readable_suffixes,
)
from seqkit.data.mixed_inputs import MixedRows, parse_example
from seqkit.data.tables.columns import OF_FILES, check_column, is_blank, is_missing, settle
from seqkit.data.tables.file_cells import content_of, kind_of_content, name_of, read_content
from seqkit.data.tables.files import Rows, read_tables
from seqkit.data.tables.usable_rows import check_cell, input_of, words_of
from seqkit.data.walk import walk
from seqkit.errors import DataError, UsageError, one_line, reason
from seqkit.interfaces import Tokenizer

STDIN = "-"

PATTERN_MARKS = "*?["

OF_TEXTS = ("text", "smiles")
"""Kinds of a column whose cells are raw examples themselves."""

_SUFFIX = re.compile(r"\.\w{1,10}$")

MAX_LINE_BYTES = 2**24
"""Longest line of standard input: one that never ends would fill the memory."""


@dataclass(frozen=True, slots=True)
class Input:
    """A raw example and its name for messages.

    error: sentence that says why there is no example. parts: names of its tokens, where each token has an answer of its
    own, as the nodes of a graph; None: the example has one answer.
    """

    name: str
    raw: Any = None
    error: str | None = None
    parts: Sequence[str] | None = None


def first_input(
    given: str,
    tokenizer: Tokenizer,
    *,
    kind: str | None = None,
    columns: Mapping[str, str] | None = None,
    decimal: str = ".",
) -> tuple[str, Any, int]:
    """Name and raw example of the first example in `given`, and the number of examples.

    given, kind: as of `read_inputs`. columns, decimal: as of `Inputs`, which then reads `given`. Raises DataError as
    both.
    """
    if columns is None:
        found = list(read_inputs(given, tokenizer, kind=kind))
        return (*found[0], len(found))
    inputs = Inputs([given], tokenizer, columns=columns, decimal=decimal)
    first = next(iter(inputs))
    if first.error is not None:
        raise DataError(first.error)
    return first.name, first.raw, inputs.total or 1


def read_inputs(given: str, tokenizer: Tokenizer, *, kind: str | None = None) -> Iterator[tuple[str, Any]]:
    """(name, raw example) for each example in `given`: a file (`FORMATS`), or a text or SMILES string itself.

    Images are read with as many channels as the tokenizer has. A .smi file holds one SMILES (and maybe a name) a line.
    A tokenizer that has `read` reads every file itself, and what looks like a path is then no text (`names_file`).
    kind: what the column of a run's own table holds (`table_kind`); None: there is none.
    Raises DataError where a file is missing, or has another format.
    """
    path, read = Path(given), own_reader(tokenizer)
    known = format_of(path)
    if not exists_as(path, Path.is_file):
        if not given or (known is not None and known.reader is not None) or exists_as(path, Path.is_dir):
            what = "nothing" if not given else "a folder here" if exists_as(path, Path.is_dir) else "no file"
            raise DataError(f"{given!r} is {what}; give a file, or the text or SMILES itself")
        if read is not None and names_file(given, kind):
            raise DataError(
                f"{one_line(given)!r} is no file, and looks like a path; give a file that exists, or a text like this "
                "in a table (predict, embed: TABLE --input COLUMN)"
            )
        yield given, given
    elif read is not None:
        yield given, read(path)
    elif known is None or known.reader is None:
        raise DataError(
            f"{given} ends in {path.suffix.lower() or 'nothing'}; raw files end in {', '.join(readable_suffixes())}"
        )
    else:
        raw = known.read_for(path, tokenizer)
        yield from ((str(one), one) for one in raw) if known.many else [(given, raw)]


def names_file(given: str, kind: str | None) -> bool:
    """Whether what names no file looks like the path of one, to a run whose tokenizer reads files.

    kind: as in `read_inputs`. Of a run on a column of texts, where `C/C=C` may be a SMILES string: a path that leads
    into a folder which exists. Of all others: any with a separator, a mark of a pattern or a suffix.
    """
    if "\n" in given:
        return False
    folder, separator, _ = given.replace(os.altsep or os.sep, os.sep).rpartition(os.sep)
    if kind in OF_TEXTS:
        return bool(separator) and exists_as(Path(folder or separator), Path.is_dir)
    return bool(separator) or any(mark in given for mark in PATTERN_MARKS) or _SUFFIX.search(given) is not None


def table_kind(config: Mapping[str, Any]) -> str | None:
    """Kind of the input column of the table that a run was trained on, by its configuration; None: no table."""
    source = config.get("data", {}).get("source")
    return source.get("kind") if isinstance(source, dict) and source.get("type") == "Table" else None


def table_decimal(config: Mapping[str, Any]) -> str:
    """Decimal point or comma of the table that a run was trained on, by its configuration."""
    source = config.get("data", {}).get("source")
    is_table = isinstance(source, dict) and source.get("type") in ("Table", "MixedTable")
    return str(source.get("decimal", ".")) if is_table else "."


class Inputs:
    """Raw examples, each read when it is asked for. If one cannot be read, its entry holds the error instead.

    given: files, folders (all files in them of the first format of `FORMATS` that has some), patterns such as
    `clips/*.wav`, tables (a row is an example), `-` for the lines of standard input, or texts and SMILES themselves.
    A line of standard input that ends as an image or a recording does names a file; every other line is an example.
    column: column of tables to read; None: `usual_column` if the table has it, else a guess by names and values. That
    may be the columns of a series, too.
    kind: what the column holds; None: as guessed. are_words: True: a run on words with a tag each, so a cell may be a
    list of words; False: a cell is a text. graph: reads a file as a graph, into the raw example and the names of its
    nodes; None: graphs are not read. columns: kind of each input column of a run whose examples have several parts:
    a row of a table is an example, and so is `image=a.png,text=…` (`parse_example`); None: they have one part.
    skip_bad: True: cells of its tables that cannot be used count as empty. decimal: "." or ",", before the decimals of
    numbers in tables. stdin: lines in place of those of standard input.
    notes: a sentence for each folder of which files were skipped.
    Raises UsageError where a column is named and no table is given; DataError where a folder has nothing to read.
    """

    def __init__(
        self,
        given: Sequence[str],
        tokenizer: Tokenizer,
        *,
        column: str | None = None,
        usual_column: str | Sequence[str] | None = None,
        kind: str | None = None,
        are_words: bool = False,
        graph: Callable[[str], tuple[Any, list[str]]] | None = None,
        columns: Mapping[str, str] | None = None,
        skip_bad: bool = False,
        decimal: str = ".",
        stdin: Iterable[bytes] | None = None,
    ):
        self.tokenizer, self.column, self.usual_column, self.kind = tokenizer, column, usual_column, kind
        self.are_words, self.decimal = are_words, decimal
        self.graph, self.stdin, self.columns, self.skip_bad = graph, stdin, columns, skip_bad
        self.notes: list[str] = []
        self._entries: list[str | list[Path] | _TableRows | MixedRows | Input] = []
        for one in given:
            self._entries.append(self._entry(one))
        if column is not None and not any(isinstance(entry, _TableRows) for entry in self._entries):
            faults = [entry.error for entry in self._entries if isinstance(entry, Input) and entry.error]
            raise UsageError(faults[0] if faults else f"--input {column} names a column of a table, and none is given")

    @property
    def total(self) -> int | None:
        """Number of examples; None: not known. A .smi file counts as one until it is read."""
        if STDIN in self._entries or self.graph is not None:
            return None
        many = (list, _TableRows, MixedRows)
        return sum(len(entry) if isinstance(entry, many) else 1 for entry in self._entries)

    def __iter__(self) -> Iterator[Input]:
        for entry in self._entries:
            if isinstance(entry, Input):
                yield entry
            elif isinstance(entry, _TableRows):
                yield from (entry.input(row, self._file) for row in range(len(entry)))
            elif isinstance(entry, MixedRows):
                yield from (Input(name, raw, error) for name, raw, error in entry)
            elif isinstance(entry, list):
                for path in entry:
                    yield from self._named(str(path))
            elif entry == STDIN:
                yield from self._lines()
            else:
                yield from self._named(entry)

    def _entry(self, given: str) -> str | list[Path] | _TableRows | MixedRows | Input:
        """A name, files of a folder or a pattern, or rows of a table, to be read later; or the error of the table."""
        path = Path(given)
        if given == STDIN or self.graph is not None:
            return given
        if self.columns is not None:
            return self._mixed(given, self.columns)
        if given and exists_as(path, Path.is_dir):
            return self._folder(path)
        reads_files = own_reader(self.tokenizer) is not None
        is_table = not reads_files or self.column is not None
        if format_of(path) is TABLE and (is_table or self.kind == "file"):  # trained on files that a table named
            try:
                rows, usual = _with_usual(read_tables(given, decimal=self.decimal), self.usual_column)
                if is_table or usual is not None:
                    column = self.column or usual
                    options = {"are_words": self.are_words, "reads_files": reads_files}
                    return _TableRows(given, rows, column, self.kind, **options)
            except DataError as error:
                if is_table:
                    return Input(given, error=str(error))
        if any(mark in given for mark in PATTERN_MARKS) and not exists_as(path, Path.exists):
            # glob, as the pattern may be absolute, which Path.glob refuses; a SMILES string matches no file
            found = sorted(Path(file) for file in glob(given, recursive=True) if Path(file).is_file())  # noqa: PTH207
            if found:
                return found
        return given

    def _mixed(self, given: str, columns: Mapping[str, str]) -> MixedRows | Input:
        """Rows of a table, or the one example that is written out."""
        try:
            if format_of(Path(given)) is TABLE and "=" not in given:
                rows = MixedRows(given, columns, self.tokenizer, skip_bad=self.skip_bad, decimal=self.decimal)
                self.notes += rows.notes
                return rows
            return Input(given, parse_example(given, columns, self.tokenizer, self.decimal))
        except (ValueError, OSError) as error:
            return Input(given, error=reason(error))

    def _folder(self, folder: Path) -> list[Path]:
        """Files of a folder that are read; adds a note of those that are skipped, by suffix."""
        below = walk(folder, limit=MAX_FILES + 1)
        files = [folder / name for name in below.files]
        if len(files) > MAX_FILES:
            raise DataError(f"{folder} holds more than {MAX_FILES:,} files; give the folder of the data alone")
        if own_reader(self.tokenizer) is not None:
            chosen = files
        else:
            kinds = [kind for kind in FORMATS if kind.reader is not None]
            of_kind = ([path for path in files if path.suffix.lower() in kind.suffixes] for kind in kinds)
            found = [paths for paths in of_kind if paths]
            chosen = min(found, key=self._is_foreign) if len(found) > 1 else found[0] if found else []
        if not chosen:
            raise DataError(f"{folder} holds no file to read; raw files end in {', '.join(readable_suffixes())}")
        known = set(chosen)
        skipped = below.skipped + Counter({"hidden": below.num_hidden})
        skipped.update(path.suffix.lower() or "no suffix" for path in files if path not in known)
        if skipped:
            counts = ", ".join(f"{one_line(suffix)}: {count:,}" for suffix, count in sorted(skipped.items()))
            num_skipped = sum(skipped.values())
            total = len(chosen) + num_skipped
            self.notes.append(f"{folder}: {num_skipped:,} of {total:,} files are skipped ({counts})")
        return chosen

    def _is_foreign(self, files: Sequence[Path]) -> bool:
        """Whether the tokenizer cannot encode such files, as a tokenizer of sound cannot encode images."""
        for path in files[:3]:  # one of them may be damaged
            with suppress(ValueError, OSError):
                for _, raw in islice(read_inputs(str(path), self.tokenizer), 1):
                    self.tokenizer.encode(raw)
                return False
        return True

    def _lines(self) -> Iterator[Input]:
        number = 0
        lines = sys.stdin.buffer if self.stdin is None else self.stdin
        for number, line in enumerate(lines, start=1):
            try:
                text = line[:MAX_LINE_BYTES].decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                yield Input(f"line {number}", error=f"standard input, line {number} is not UTF-8 ({error.reason})")
                continue
            if len(line) > MAX_LINE_BYTES:
                yield Input(f"line {number}", error=f"standard input, line {number} has more than 16 MB")
            elif not text.strip():
                yield Input(f"line {number}", error=f"standard input, line {number} is blank")
            elif self.columns is not None:
                found = self._mixed(text, self.columns)
                yield from [found] if isinstance(found, Input) else (Input(*one) for one in found)
            elif format_of(Path(text)) in (IMAGE, AUDIO) or own_reader(self.tokenizer) is not None:
                yield from self._named(text)
            else:
                yield Input(text, text)
        if number == 0:
            yield Input(STDIN, error="standard input is empty; give a line for each example")

    def _named(self, given: str) -> Iterator[Input]:
        try:
            if self.graph is not None:
                raw, parts = self.graph(given)
                yield Input(given, raw, parts=parts)
                return
            yield from (Input(name, raw) for name, raw in read_inputs(given, self.tokenizer, kind=self.kind))
        except (ValueError, OSError) as error:
            yield Input(given, error=reason(error))

    def _file(self, path: Path, kind: FileFormat | None = None) -> Any:
        """The raw example of a file that a table names, or holds. kind: its format; None: by its suffix."""
        if (read := own_reader(self.tokenizer)) is not None:
            return read(path)
        kind = format_of(path) if kind is None else kind
        if kind is None or kind.reader is None or kind.many:
            raise DataError(f"{path} is no image or recording")
        return kind.read_for(path, self.tokenizer)


def _with_usual(rows: Rows, usual: str | Sequence[str] | None) -> tuple[Rows, str | None]:
    """The rows, and the column that the run was trained on; None: they lack it.

    Columns of a series are one column of the returned rows. Raises DataError where one of them is missing.
    """
    if usual is None or isinstance(usual, str):
        return rows, usual if usual in rows.names else None
    return rows.with_series(usual)


class _TableRows:
    """The rows of a table, each an example. Raises DataError where the column does not exist, or several fit."""

    def __init__(
        self, path: str, rows: Rows, column: str | None, kind: str | None, *, are_words: bool, reads_files: bool
    ):
        if column is not None:
            check_column(rows, column, "--input")
        if column is None or kind is None:
            try:
                folder = Path(path).expanduser().parent if reads_files else None
                found, _ = settle(rows, input=column, target_kind="none", files_in=folder)
            except DataError as error:  # its flag is that of training
                raise DataError(str(error).replace("--data.input", "--input")) from None
            column, kind = found.input, kind or found.kind
        self.rows, self.column, self.kind, self.are_words = rows, column, kind, are_words
        self.folder = Path(path).expanduser().parent
        self.values = rows.column(column)

    def __len__(self) -> int:
        return len(self.rows)

    def input(self, row: int, read: Callable[..., Any]) -> Input:
        """The example of a row; its name is file and line."""
        name, value = self.rows.place(row), self.values[row]
        if (is_blank if self.kind == "text" else is_missing)(value):
            return Input(name, error=f"{name}: {self.column} is empty")
        try:
            steps = self.rows.steps.get(self.column, ())
            check_cell(self.column, value, self.kind or "text", are_words=self.are_words, steps=steps)
        except ValueError as error:
            return Input(name, error=f"{name}: {error}")
        if self.kind in OF_FILES:
            content = content_of(value)
            try:
                if content is not None:
                    kind = AUDIO if kind_of_content(content) == "audio" else IMAGE
                    return Input(name, read_content(content, partial(read, kind=kind), self.column))
                return Input(name, read(self.folder / str(name_of(value))))
            except (ValueError, OSError) as error:
                return Input(name, error=f"{name}: {reason(error)}")
        if self.are_words:
            return Input(name, " ".join(words_of(value)))
        return Input(name, input_of(value, self.kind or "text"))


def exists_as(path: Path, test: Callable[[Path], bool]) -> bool:
    """Whether there is such a file or folder; a long text names none."""
    try:
        return test(path)
    except (OSError, ValueError):  # a long text is no path
        return False
