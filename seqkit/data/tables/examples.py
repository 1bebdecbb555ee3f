"""Raw examples and labels from the rows of a table. Rows that cannot be used are left out and counted, or an error."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from seqkit.data.cache import state_of
from seqkit.data.formats import OF_KIND, own_reader
from seqkit.data.kinds import FILES, OF_CELLS
from seqkit.data.notes import Caution
from seqkit.data.tables.cells import (
    is_blank,
    is_missing,
    read_content,
    short,
    truth,
    word_of,
    words_of,
)
from seqkit.data.tables.rows import Rows
from seqkit.data.tables.schema import CELLS, Column, Schema, objective_option
from seqkit.errors import DataError, attempt, one_line, reason


class Examples:
    """Raw examples of the rows of a table, by its schema.

    folder: folder of the files that cells name; they must be below it. tokenizer: reads files as it encodes them. With
    several parts (`Join`), an example has a part for each column, and one part for all numbers, categories and dates.
    None: the schema decides.
    values: for each input column, the value of each row (`Column.read`); a file in a cell has only its SHA-256 there,
    as cells may be larger than memory. faults: for each row that cannot be used, the reason.

    >>> rows = Rows({"size": ["1.5", "x"]}, [("t.csv", 2)])
    >>> examples = Examples(rows, Schema((Column("size", "number"),), "none"), Path())
    >>> examples.raw(0), examples.faults
    ({'cells': {'size': 1.5}}, {1: "size is 'x', which is no number"})
    """

    def __init__(self, rows: Rows, schema: Schema, folder: Path, tokenizer: Any = None):
        self.rows = rows
        self.schema = schema
        self.folder = folder
        parts: Mapping[str, Any] | None = getattr(tokenizer, "parts", None)
        reads: Mapping[str, str] = getattr(tokenizer, "reads", {})
        first = schema.inputs[0]
        self._one: Column | None = None
        self._tokenizers: dict[str, Any] = {}
        if parts is not None:
            self._tokenizers = {reads.get(part, part): one for part, one in parts.items()}
        elif tokenizer is not None:
            self._one = first
            self._tokenizers = {first.name: tokenizer}
        elif len(schema.inputs) == 1 and first.kind not in OF_CELLS:
            self._one = first
        self.values: dict[str, list[Any]] = {}
        self.faults: dict[int, str] = {}
        for column in schema.inputs:
            reader = self._tokenizers.get(column.name)
            if column.kind == "file" and reader is not None and own_reader(reader) is None:
                what = f"names files for a tokenizer with read(path), which {type(reader).__name__} does not have"
                raise DataError(f"{rows.name}: {column.name} {what}")
            if column.name in rows.columns or schema.steps:
                self.values[column.name] = self._read(column)

    def __len__(self) -> int:
        return len(self.rows)

    def is_absent(self, row: int) -> bool:
        """Whether a row has no input."""
        return all(values[row] is None for values in self.values.values())

    def raw(self, row: int) -> Any:
        """The raw example of a row. Raises DataError if a file cannot be read."""
        if self._one is not None:
            return self._part(self._one, self.values[self._one.name][row], row)
        example: dict[str, Any] = {}
        cells: dict[str, Any] = {}
        for column in self.schema.inputs:
            value = self.values[column.name][row] if column.name in self.values else None
            if value is None:
                continue
            if column.kind in OF_CELLS:
                cells[column.name] = value
            else:
                example[column.name] = self._part(column, value, row)
        if cells:
            example[CELLS] = cells
        return example

    def attempt(self, row: int) -> None:
        """Read the row, and encode it with the tokenizers that need no `fit`. Raises ValueError or OSError."""
        given = self.raw(row)
        if self._one is not None:
            given = {self._one.name: given}
        for name, tokenizer in self._tokenizers.items():
            if name in given and not hasattr(tokenizer, "fit"):
                attempt(tokenizer, "encode", given[name])

    def _read(self, column: Column) -> list[Any]:
        """Values of all rows of a column; reasons why rows cannot be used are kept in `faults`."""
        if not self.schema.steps:
            return self._values(column, self.rows.columns[column.name])
        steps = [self._values(step, self.rows.columns[step.name]) for step in self.schema.steps]
        for step, values in zip(self.schema.steps, steps):
            for row in (row for row, value in enumerate(values) if value is None):
                self.faults.setdefault(
                    row, f"{step.name} is empty, and each column of a series holds a number"
                )
        return [None if None in numbers else list(numbers) for numbers in zip(*steps)]

    def _values(self, column: Column, cells: Iterable[Any]) -> list[Any]:
        if column.kind in FILES:  # cells may be whole files, which are not kept in memory
            values, faults = _read_each(cells, partial(self._file, column))
        else:
            values, faults = read_cells(cells, lambda cell: column.read(cell, self.schema.missing))
        for row, fault in faults.items():
            self.faults.setdefault(row, fault)
        return values

    def _file(self, column: Column, cell: Any) -> str | bytes | None:
        """Name of a file, or SHA-256 of a file in the cell. Raises ValueError if the file is not below the folder."""
        name: str | bytes | None = column.read(cell, self.schema.missing)
        if isinstance(name, bytes):
            return sha256(name).digest()
        if name is None:
            return None
        path = self.folder / name
        where = "name files relative to the table, or train with --data.folder FOLDER"
        root = os.path.realpath(self.folder)
        if os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise ValueError(f"{one_line(name)[:200]} is not below {self.folder}; {where}")
        if not path.is_file():
            near = []
            if path.parent.is_dir():
                near = sorted(path.parent.glob(f"{path.name}.*"))
            hint = "".join(f"; there is {one.name}" for one in near[:1])
            raise ValueError(
                f"{one_line(name)[:200]} does not exist in {self.folder}{hint}; {where}"
            )
        return name

    def _part(self, column: Column, value: Any, row: int) -> Any:
        """The raw data of a part. Raises DataError if a file cannot be read."""
        if column.kind == "words":
            return " ".join(value)
        if column.kind not in FILES:
            return value
        tokenizer = self._tokenizers.get(column.name)
        read = own_reader(tokenizer) or (
            lambda file: OF_KIND[column.kind].read_for(file, tokenizer)
        )
        if isinstance(value, str):
            return read(self.folder / value)
        return read_content(column.read(self.rows.columns[column.name][row]), read, column.name)


def read_cells(
    cells: Iterable[Any], read: Callable[[Any], Any]
) -> tuple[list[Any], dict[int, str]]:
    """The value of each cell, None if `read` raises ValueError or OSError, and the reasons by row.

    In a column of texts, equal ones are read once.
    """
    cells = tuple(cells)
    if not {*map(type, cells)} <= {str, type(None)}:
        return _read_each(cells, read)
    distinct = tuple(dict.fromkeys(cells))
    each, faults = _read_each(distinct, read)
    value_of = dict(zip(distinct, each))
    fault_of = {distinct[i]: fault for i, fault in faults.items()}
    faulty = {}
    if fault_of:
        faulty = {row: fault_of[cell] for row, cell in enumerate(cells) if cell in fault_of}
    return [value_of[cell] for cell in cells], faulty


def _read_each(
    cells: Iterable[Any], read: Callable[[Any], Any]
) -> tuple[list[Any], dict[int, str]]:
    values: list[Any] = []
    faults: dict[int, str] = {}
    for i, cell in enumerate(cells):
        value = None
        try:
            value = read(cell)
        except (ValueError, OSError) as error:
            faults[i] = reason(error)
        values.append(value)
    return values, faults


class UsableRows:
    """The rows that have both input and target.

    say: is called with a sentence that counts the rows left out. skip_bad: most rows that are left out because a cell
    does not fit its column or a file cannot be read; above 0, each row is read once to find them.
    indices: indices of the rows in the table, in its order. labels: their labels; classes are words until `number`.
    Raises DataError, with file and line, if more than `skip_bad` rows cannot be used, or if no row is left.
    """

    def __init__(self, examples: Examples, *, say: Callable[[str], None], skip_bad: int = 0):
        self.examples = examples
        self.rows = examples.rows
        self.schema = examples.schema
        files = [Path(name) for name, _ in self.rows.files]
        self._files: list[str] | None = None
        if all(file.is_file() for file in files):
            self._files = [*map(state_of, files)]
        self.indices: list[int] = []
        self.labels: list[Any] = []
        self._read(say, skip_bad)

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        """File and line of a row."""
        return self.rows.place(self.indices[index])

    def raw(self, index: int) -> Any:
        """The raw example of a row."""
        return self.examples.raw(self.indices[index])

    def key(self) -> str | None:
        """Fingerprint of rows, schema, and files (path, size, time of change); None if the table is no local file."""
        if self._files is None:
            return None
        digest = sha256(
            f"{self._files} {self.schema} {self.indices}".encode(errors="surrogatepass")
        )
        for values in (self.examples.values[c.name] for c in self.schema.inputs if c.kind in FILES):
            for name in (values[row] for row in self.indices):
                if isinstance(name, str):
                    digest.update(
                        state_of(self.examples.folder / name).encode(errors="surrogatepass")
                    )
        return digest.hexdigest()

    def number(self, names: Sequence[str], split: str) -> None:
        """Replace classes and tags by their index in `names`. Raises DataError for one that training lacks."""
        known = {name: i for i, name in enumerate(names)}
        is_tags = self.schema.target_kind == "tags"
        for i, label in enumerate(self.labels):
            unknown = [word for word in (label if is_tags else [label]) if word not in known]
            if unknown:
                kind = "tag" if is_tags else "class"
                raise DataError(
                    f"{self.name(i)}: the {split} split has the {kind} {short(unknown[0])}, which training lacks; add "
                    "rows of it to training, or take them out"
                )
        if is_tags:
            import torch  # slow to import, and errors above do not need it

            self.labels = [torch.tensor([known[tag] for tag in tags]) for tags in self.labels]
        else:
            self.labels = [known[label] for label in self.labels]

    def _read(self, say: Callable[[str], None], skip_bad: int) -> None:
        examples = self.examples
        bad = list(self.rows.faults)
        labels, faults = labels_of(examples)
        empty: dict[str, list[int]] = {}
        inputs = "filled cell"
        if len(self.schema.inputs) == 1:
            inputs = self.schema.inputs[0].name
        targets = " or ".join(column.name for column in self.schema.targets)
        has_target = self.schema.target_kind != "none"
        for row in range(len(self.rows)):
            fault = examples.faults.get(row)
            if fault is None and examples.is_absent(row):
                empty.setdefault(inputs, []).append(row)
                continue
            fault = fault or faults.get(row)
            if fault is None and labels[row] is None and has_target:
                empty.setdefault(targets, []).append(row)
                continue
            if fault is None and skip_bad > 0:
                try:
                    examples.attempt(row)
                except (ValueError, OSError) as error:
                    fault = reason(error)
            if fault is None:
                self.indices.append(row)
                self.labels.append(labels[row])
            else:
                bad.append(f"{self.rows.place(row)}: {fault}")
        self._tell(say, bad, empty, skip_bad)

    def _tell(
        self, say: Callable[[str], None], bad: list[str], empty: dict[str, list[int]], skip_bad: int
    ) -> None:
        """Say which rows are left out. bad: errors of rows. empty: rows that hold nothing, by what they lack."""
        name = self.rows.name
        total = len(self.rows) + len(self.rows.faults)
        if len(bad) > skip_bad:
            advice = "cannot be used"
            if self.indices:
                advice += f"; --data.skip_bad {len(bad)} leaves them out"
            raise DataError(f"{bad[0]} ({len(bad):,} of {total:,} rows {advice})")
        why = [
            f"no {what}: {len(rows):,}, the first: {self.rows.place(rows[0])}"
            for what, rows in empty.items()
        ]
        if bad:
            why.append(f"cannot be used: {len(bad):,}, the first: {bad[0]}")
        if not self.indices:
            none = f"none of the {total:,} rows has both input and target ({', '.join(why)})"
            raise DataError(f"{name}: {none}; give --data.columns and --data.target")
        if why:
            left_out = f"{total - len(self):,} of {total:,} rows are left out"
            say(Caution(f"{name}: {left_out} ({'; '.join(why)})"))


def labels_of(examples: Examples) -> tuple[list[Any], dict[int, str]]:
    """The label of each row, and the reasons, by row, why a cell is no label.

    A label is the word of a class, a number, a list of numbers, a text or several, or tags; None: the row has none.
    """
    schema = examples.schema
    columns = examples.rows.columns
    kind = schema.target_kind
    if kind == "none":
        return [None] * len(examples), {}
    each = []
    faults = dict[int, str]()
    for target in schema.targets:
        read = partial(_LABELS[kind], target, schema.missing)
        values, wrong = read_cells(columns[target.name], read)
        each.append(values)
        faults = wrong | faults
    if kind == "labels" or len(each) > 1:
        rows = [[math.nan if x is None else x for x in row] for row in zip(*each)]
        return [None if all(map(math.isnan, row)) else row for row in rows], faults
    (labels,) = each
    if kind == "tags":
        ((name, words),) = examples.values.items()
        for row, (tags, own) in enumerate(zip(labels, words)):
            if tags is not None and own is not None and len(tags) != len(own):
                target = schema.targets[0]
                what = f"{name} has {len(own)} words and {target.name} {len(tags)}"
                faults[row] = (
                    f"{what}; give a tag for each word, or for several labels of a text a column each"
                )
    return labels, faults


def _number(target: Column, missing: Sequence[str], cell: Any) -> float | None:
    try:
        found: float | None = replace(target, kind="number").read(cell, missing)
    except ValueError as error:
        raise ValueError(
            f"{error}; correct it, or take the row out (words: --data.target_kind classes "
            f"{objective_option('classes')})"
        ) from None
    return found


def _truth(target: Column, missing: Sequence[str], cell: Any) -> float | None:
    if (found := truth(cell, missing)) is None:
        raise ValueError(
            f"{target.name} is {short(cell)}; write yes or no, true or false, 1 or 0, or nothing"
        )
    return None if math.isnan(found) else found


def _answer(target: Column, _: Sequence[str], cell: Any) -> str | list[str] | None:
    if is_blank(cell):
        return None
    texts = cell if isinstance(cell, list) else [cell]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(
            f"{target.name} is {short(cell)}, which is no text; choose another with --data.target"
        )
    answer: str | list[str] = cell
    return answer


def _tags(_: Column, __: Sequence[str], cell: Any) -> list[str] | None:
    if is_blank(cell):
        return None
    return [word_of(tag) for tag in words_of(cell)]


def _class(target: Column, missing: Sequence[str], cell: Any) -> str | None:
    if is_missing(cell, missing):
        return None
    if isinstance(cell, list | dict):
        advice = "for a class of each word give --data.target_kind tags, for several labels a column each"
        raise ValueError(f"{target.name} is {short(cell)}, which is no class; {advice}")
    return word_of(cell)


_LABELS: dict[str, Callable[[Column, Sequence[str], Any], Any]] = {
    "classes": _class, "numbers": _number, "labels": _truth, "text": _answer, "tags": _tags,
}  # fmt: skip
"""Reads the label in a cell, by what the target holds."""
