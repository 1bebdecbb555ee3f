"""Raw examples named on the command line: files, folders, patterns, tables, standard input, or text itself."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from seqkit.data.formats import (
    FORMATS,
    MAX_FILES,
    OF_CLASSES,
    OF_TOKENIZER,
    TABLE,
    advice_on,
    format_of,
    own_reader,
    readable_suffixes,
)
from seqkit.data.kinds import KIND_OF_TOKENIZER
from seqkit.data.notes import listed
from seqkit.data.tables.examples import Examples
from seqkit.data.tables.infer import infer
from seqkit.data.tables.read import Tables
from seqkit.data.tables.rows import Rows
from seqkit.data.tables.schema import FILES, Column, Given, Schema, check_column
from seqkit.data.walk import PATTERN_MARKS, exists_as, matching, suffix_of, walk
from seqkit.errors import DataError, UsageError, one_line, reason, suggest
from seqkit.files import load_json
from seqkit.interfaces import Tokenizer, Tokens
from seqkit.tokenizers.cells import Cells, Row

STDIN = "-"

_SUFFIX = re.compile(r"\.\w{1,10}$")
_NAME = re.compile(r"(?:^|,)\s*([^,=]+?)\s*=")

MAX_LINE_BYTES = 2**24
"""Longest line of standard input: one that never ends would fill the memory."""


@dataclass(frozen=True, slots=True)
class Input:
    """A raw example and its name for messages.

    error: sentence that says why there is no example. parts: names of its tokens, where each token has an answer of its
    own, as the nodes of a graph; None: the example has one answer. tokens: of the example, where they are known.
    """

    name: str
    raw: Any = None
    error: str | None = None
    parts: Sequence[str] | None = None
    tokens: Tokens | None = None


def schema_of(config: Mapping[str, Any]) -> Schema | None:
    """Schema of the examples that a run reads, as its configuration has it; None: they are no rows.

    A part of another source than a table is as its tokenizer reads it; one that no table can hold is left out.
    """
    source = config.get("data", {}).get("source")
    tokenizer = config.get("tokenizer", {})
    if isinstance(source, Mapping) and ("target_kind" in source or "columns" in source):
        schema = Schema.of_settings(source)
        return schema if schema.inputs else None
    if tokenizer.get("type") != "Join":
        return None
    reads = tokenizer.get("reads") or {}
    columns = [
        Column(reads.get(name, name), KIND_OF_TOKENIZER[part["type"]])
        for name, part in tokenizer["parts"].items()
        if part["type"] in KIND_OF_TOKENIZER
    ]
    return Schema(tuple(columns), "none")


def first_input(
    given: str, tokenizer: Tokenizer, schema: Schema | None = None
) -> tuple[str, Any, int]:
    """Name and raw example of the first example in `given`, and the number of examples. Raises as `Inputs`."""
    inputs = iter(Inputs([given], tokenizer, schema))
    first = next(inputs)
    if first.error is not None:
        raise DataError(first.error)
    return first.name, first.raw, 1 + sum(1 for _ in inputs)


def read_inputs(
    given: str, tokenizer: Tokenizer, kind: str | None = None
) -> Iterator[tuple[str, Any]]:
    """(name, raw example) for each example in `given`: a file (`FORMATS`), or a text or SMILES string itself.

    Images are read with as many channels as the tokenizer has. A .smi file holds one SMILES (and maybe a name) a line,
    and for a tokenizer of code a .py file its functions.
    A tokenizer that has `read` reads every file itself, and what looks like a path is then no text (`names_file`).
    kind: what a run's own column holds; None: there is none.
    Raises DataError where a file is missing, or has another format.
    """
    path = Path(given)
    read = own_reader(tokenizer)
    known = format_of(path, tokenizer)
    is_folder = exists_as(path, Path.is_dir)
    if not exists_as(path, Path.is_file) and not (
        is_folder and known is not None and known.grouped
    ):
        is_sentence = " " in given and KIND_OF_TOKENIZER.get(type(tokenizer).__name__) == "text"
        is_file = known is not None and known.reader is not None and not is_sentence
        if not given or is_file or is_folder:
            if not given:
                what = "nothing"
            elif is_folder:
                what = "a folder here"
            else:
                what = "no file"
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
        if known.many:
            yield from ((one.name, one.raw) for one in raw)
        else:
            yield given, raw


def names_file(given: str, kind: str | None) -> bool:
    """Whether what names no file looks like the path of one, to a run whose tokenizer reads files.

    It does with a separator, a mark of a pattern or a suffix, unless the run is on texts or molecules such as `C/C=C`.
    """
    if "\n" in given or kind in ("text", "smiles"):
        return False
    return (
        any(mark in given for mark in (os.sep, *PATTERN_MARKS)) or _SUFFIX.search(given) is not None
    )


class Inputs:
    """Raw examples, each read when it is asked for. If one cannot be read, its entry holds the error instead.

    given: files, folders (all files in them of the first format of `FORMATS` that has some), patterns such as
    `clips/*.wav`, tables (a row is an example), `-` for the lines of standard input, or texts and SMILES themselves. To
    a run on several parts, examples are rows of tables, and `image=a.png,text=…`. A line of standard input that ends as
    an image or a recording does names a file; every other line is an example.
    schema: of the run's own rows; None: it was trained on no table. column: column of tables to read; None: the run's
    own if the table has it, else by names and values. graph: reads a file as a graph, into the raw example and the
    names of its nodes; None: graphs are not read. stdin: lines in place of those of standard input. tables: has read
    some of the tables already.
    notes: a sentence for each folder of which files were skipped, and each table that lacks columns.
    Raises UsageError where a column is named and no table is given; DataError where a folder has nothing to read.
    """

    def __init__(
        self,
        given: Sequence[str],
        tokenizer: Tokenizer,
        schema: Schema | None = None,
        *,
        column: str | None = None,
        graph: Callable[[str], tuple[Any, list[str]]] | None = None,
        stdin: BinaryIO | None = None,
        tables: Tables | None = None,
    ):
        self.tokenizer = tokenizer
        self.schema = schema
        self.column = column
        self.graph = graph
        self.stdin = stdin
        self.tables = tables or Tables()
        self.has_parts = schema is not None and hasattr(tokenizer, "parts")
        self.kind = None
        if schema is not None and not self.has_parts:
            self.kind = schema.inputs[0].kind
        self.notes: list[str] = []
        self._entries: list[str | Examples | Input] = []
        for one in given:
            self._entries += self._entries_of(one)
        if column is not None and not any(isinstance(entry, Examples) for entry in self._entries):
            faults = [entry.error for entry in self._entries if isinstance(entry, Input)]
            none = f"--input {column} names a column of a table, and none is given"
            raise UsageError([*filter(None, faults), none][0])

    @property
    def total(self) -> int | None:
        """Number of examples; None: not known, as of a file that holds several."""
        number = 0
        for entry in self._entries:
            number += 1
            if isinstance(entry, Examples):
                number += len(entry) + len(entry.rows.faults) - 1
            elif isinstance(entry, str):
                known = format_of(Path(entry), self.tokenizer)
                if entry == STDIN or self.graph is not None or (known and known.many):
                    return None
        return number

    def __iter__(self) -> Iterator[Input]:
        for entry in self._entries:
            if isinstance(entry, Input):
                yield entry
            elif isinstance(entry, Examples):
                yield from (_of_row(entry, row) for row in range(len(entry)))
                yield from (Input(entry.rows.name, error=fault) for fault in entry.rows.faults)
            elif entry == STDIN:
                yield from self._lines()
            else:
                yield from self._named(entry)

    def _entries_of(self, given: str) -> Sequence[str | Examples | Input]:
        """Names of files, each to be read later, or the rows of a table; or the error of the table."""
        path = Path(given)
        if given == STDIN or self.graph is not None:
            return [given]
        is_table = format_of(path) is TABLE
        is_written = not is_table or ("=" in given and not exists_as(path, Path.is_file))
        if self.has_parts and is_written:
            return [self._written(given)]
        if given and exists_as(path, Path.is_dir):
            return self._folder(path)
        reads_files = own_reader(self.tokenizer) is not None
        if is_table and (not reads_files or self.column is not None or self.kind == "file"):
            try:
                return [self._table(given, reads_files=reads_files)]
            except DataError as error:
                # a file of the tokenizer's own, called as tables are
                if reads_files and self.column is None:
                    return [given]
                return [Input(given, error=str(error))]
        # a SMILES string with brackets matches no file
        return matching(given, is_needed=False) or [given]

    def _table(self, given: str, *, reads_files: bool) -> Examples:
        """The rows of a table, read as those of training were. Raises DataError where it lacks what is read."""
        folder = Path(given).expanduser().parent
        header = None if self.schema is None else self.schema.header or None
        rows = self.tables.read(given, header=header)
        if not len(rows) and not rows.faults:
            raise DataError(f"{given} has a header and no rows; give it rows")
        schema = self._schema_of_run(rows, given)
        if schema is None:
            schema = self._inferred(rows, folder if reads_files else None)
        return Examples(rows, schema, folder, self.tokenizer)

    def _schema_of_run(self, rows: Rows, given: str) -> Schema | None:
        """The run's own schema, as far as the table has its columns; None: the one column is named, or found."""
        schema = self.schema
        if schema is None or self.column is not None:
            return None
        needed = [column.name for column in schema.steps or schema.inputs]
        absent = [name for name in needed if name not in rows.columns]
        if not absent:
            return schema
        if self.has_parts and len(absent) < len(needed):
            note = f"{given} has no column {listed(absent)}, so these are absent"
            unused = [name for name in rows.names if name not in needed]
            if unused:
                note += f"; it has columns that are not used: {listed(unused)}"
            self.notes.append(note)
            return schema
        if self.has_parts or schema.steps:
            raise DataError(
                f"{given} lacks columns of the run ({listed(absent)}); it has {listed(rows.names)}"
            )
        return None

    def _inferred(self, rows: Rows, folder: Path | None) -> Schema:
        """The schema of a table of which one column is read. folder: of files that the tokenizer reads itself."""
        if self.column is not None:
            check_column(rows, self.column, "--input")
        kinds = None
        if self.column is not None and self.kind is not None:
            kinds = {self.column: self.kind}
        missing = None if self.schema is None else list(self.schema.missing)
        what = Given(input=self.column, target_kind="none", columns=kinds, missing=missing)
        reads = self.kind or KIND_OF_TOKENIZER.get(type(self.tokenizer).__name__, "")
        return infer(rows, what, reads=reads, folder=folder, input_flag="--input")

    def _written(self, given: str) -> Input:
        """The one example that is written out as `name=value,name=value`, or as a JSON object."""
        assert self.schema is not None, "a run on parts has a schema"
        try:
            values: Any = _pairs(given)
            if given.startswith("{"):
                values = load_json(given)
            if not isinstance(values, dict) or not values:
                names = listed([f"{column.name}=…" for column in self.schema.inputs])
                advice = advice_on(given) or f"; give a table, or {names}"
                raise DataError(f"{one_line(given)[:100]!r} names no part of an example{advice}")
            return Input(given, example_of(values, self.schema, self.tokenizer))
        except (ValueError, OSError) as error:
            return Input(given, error=reason(error))

    def _folder(self, folder: Path) -> list[str]:
        """Files of a folder that are read, of the run's kind. Adds a note of those that are skipped, by suffix."""
        below = walk(folder, limit=MAX_FILES + 1)
        if len(below.files) > MAX_FILES:
            raise DataError(
                f"{folder} holds more than {MAX_FILES:,} files; give the folder of the data alone"
            )
        known = OF_TOKENIZER.get(type(self.tokenizer).__name__)
        chosen = below.files
        if known is not None:
            below, chosen = known.examples(below)
        elif own_reader(self.tokenizer) is None:
            of_kind = (
                kind.examples(below)[1]
                for kind in FORMATS
                if kind.reader is not None and kind.grouped is None
            )
            chosen = next((names for names in of_kind if names), [])
        if not chosen:
            raise DataError(
                f"{folder} holds no file to read; raw files end in {', '.join(readable_suffixes())}"
            )
        skipped = below.skipped + Counter({"hidden": below.num_hidden})
        kept = set(chosen)
        skipped.update(suffix_of(name) or "no suffix" for name in below.files if name not in kept)
        if skipped:
            counts = ", ".join(
                f"{one_line(suffix)}: {count:,}" for suffix, count in sorted(skipped.items())
            )
            total = len(chosen) + skipped.total()
            self.notes.append(
                f"{folder}: {skipped.total():,} of {total:,} files are skipped ({counts})"
            )
        return [str(folder / name) for name in chosen]

    def _lines(self) -> Iterator[Input]:
        number = 0
        stream = self.stdin or sys.stdin.buffer
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            where = f"standard input, line {number}"
            if len(line) > MAX_LINE_BYTES:
                yield Input(f"line {number}", error=f"{where} has more than 16 MB")
                while line and not line.endswith(b"\n"):
                    line = stream.readline(MAX_LINE_BYTES)
                continue
            try:
                text = line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                yield Input(f"line {number}", error=f"{where} is not UTF-8 ({error.reason})")
                continue
            if not text.strip():
                yield Input(f"line {number}", error=f"{where} is blank")
            elif self.has_parts:
                yield self._written(text)
            elif (
                format_of(Path(text), self.tokenizer) in OF_CLASSES
                or own_reader(self.tokenizer) is not None
            ):
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
            yield from (
                Input(name, raw) for name, raw in read_inputs(given, self.tokenizer, self.kind)
            )
        except (ValueError, OSError) as error:
            yield Input(given, error=reason(error))


def example_of(values: Row, schema: Schema, tokenizer: Any) -> Any:
    """The raw example of values by column or part; bytes are the content of a file, which a text names.

    Files are named relative to the working folder. Raises DataError for a wrong name or value.
    """
    parts: Mapping[str, str] = getattr(tokenizer, "reads", {})
    known = {column.name: column for column in schema.inputs}
    row: dict[str, list[Any]] = {}
    for name, value in values.items():
        column = known.get(parts.get(name, name)) or known.get(name)
        if column is None:
            raise DataError(
                f"{one_line(name)!r} is no part of the run's examples; {suggest(name, known)}"
            )
        if column.kind in FILES and isinstance(value, str):
            value = str(Path(value).absolute())
        row[column.name] = [value]
    if all(value is None for (value,) in row.values()):
        raise DataError(f"none of {listed(known)} is filled; give one or more")
    one = replace(schema, columns=tuple(column for column in schema.inputs if column.name in row))
    made = _of_row(Examples(Rows(row, [("the example", 1)]), one, Path("/"), tokenizer), 0)
    if made.error is not None:
        raise DataError(made.error.removeprefix(f"{made.name}: "))
    return made.raw


def nested(raw: Any, schema: Schema | None, tokenizer: Any) -> Any:
    """A raw example by part, where its cells may stand beside the parts, by column.

    Raises DataError for a wrong name or value.
    """
    parts: Mapping[str, Any] = getattr(tokenizer, "parts", {})
    if schema is None or not parts or not isinstance(raw, Mapping):
        return raw
    reads: Mapping[str, str] = getattr(tokenizer, "reads", {})
    keys = {reads.get(name, name) for name in parts}
    cells = {name: value for name, value in raw.items() if name not in keys}
    if not cells:
        return raw
    found = {name: value for name, value in raw.items() if name in keys}
    for name, value in example_of(cells, schema, tokenizer).items():
        found[name] = {**(found.get(name) or {}), **value} if isinstance(value, Mapping) else value
    return found


def flat(row: Row, tokenizer: Any) -> dict[str, Any]:
    """A row by column, where cells may stand together below the name of their part."""
    parts: Mapping[str, Any] = getattr(tokenizer, "parts", {})
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(parts.get(name), Cells) and isinstance(value, Mapping):
            found |= value
        else:
            found[name] = value
    return found


def _of_row(examples: Examples, row: int) -> Input:
    """The example of a row; its name is file and line."""
    name = examples.rows.place(row)
    if row in examples.faults:
        return Input(name, error=f"{name}: {examples.faults[row]}")
    if examples.is_absent(row):
        return Input(name, error=f"{name}: {listed([*examples.values])} is empty")
    try:
        return Input(name, examples.raw(row))
    except (ValueError, OSError) as error:
        return Input(name, error=f"{name}: {reason(error)}")


def _pairs(given: str) -> dict[str, str]:
    found = list(_NAME.finditer(given))
    if not found or found[0].start() > 0:
        return {}
    ends = [*(match.start() for match in found[1:]), len(given)]
    return {match[1]: given[match.end() : end] for match, end in zip(found, ends)}
