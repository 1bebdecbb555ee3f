"""Samples of a table: its rows that have an input and a target, checked one by one, and counted where left out."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.data.notes import Caution
from seqkit.data.sample import Sample, Samples
from seqkit.data.tables.columns import (
    OF_FILES,
    YES_NO,
    YES_NO_WORDS,
    Columns,
    conversation,
    decimal_hint,
    exact_number,
    is_blank,
    is_missing,
    is_series,
    languages,
    lookalike,
    number,
    truth,
)
from seqkit.data.tables.file_cells import content_of, name_of, read_content
from seqkit.data.tables.files import Rows
from seqkit.data.tables.text_formats import bare_name
from seqkit.errors import DataError, one_line

if TYPE_CHECKING:
    from seqkit.data.tables.mixed_columns import MixedCells

MAX_NUMBER = 1e18
"""Largest measurement: the square of a larger one, as a loss takes it, is too near the end of float32 (3e38)."""


class InputColumn(Sequence[Any]):
    """Cells of the input column by row, and the raw examples that they hold or name.

    folder: folder of the files that the input names. read: reads these files; None: it names none.
    """

    def __init__(self, rows: Rows, columns: Columns, folder: Path, read: Callable[[Path], Any] | None = None):
        self._cells, self.columns, self.folder, self._read_file = rows.column(columns.input), columns, folder, read
        self._steps = rows.steps.get(columns.input, ())

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, row: Any) -> Any:
        return self._cells[row]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cells)  # reads whole batches

    def is_absent(self, cell: Any) -> bool:
        """Whether a cell holds no input."""
        return (is_blank if self.columns.kind == "text" else is_missing)(cell)

    def check(self, cell: Any) -> None:
        """Raise ValueError where a cell is no input, or names no file."""
        are_words = self.columns.target_kind == "tags"
        check_cell(self.columns.input, cell, self.columns.kind, are_words=are_words, steps=self._steps)
        if not are_words and self.columns.kind in OF_FILES and content_of(cell) is None:
            check_file(self.folder, name_of(cell), "choose another column with --data.input")

    def raw(self, cell: Any) -> Any:
        """The raw example that a cell holds, or names. Raises DataError where a file cannot be read."""
        if self.columns.target_kind == "tags":
            return " ".join(words_of(cell))
        if self.columns.kind in OF_FILES:
            assert self._read_file is not None, "inputs that are files have a reader"
            content = content_of(cell)
            if content is None:
                return self._read_file(self.folder / name_of(cell))
            return read_content(content, self._read_file, self.columns.input)
        return input_of(cell, self.columns.kind)


class UsableRows(Sequence[Sample]):
    """Samples of the rows that have input and target; an input is read on access.

    inputs: cells of each row, and the raw examples that they are. say: gets the sentence that counts the other rows.
    encode: is tried on each molecule, and on what a file of the tokenizer's own format holds, where rows may be left
    out; None: anything passes. skip_bad: number of rows that may be left out because a cell is not what its column
    should hold, or a file cannot be read.
    indices: places of the rows in the table, in its order. codes: class of each row, by its place in `texts`.
    counts: number of each class or tag. numbers: measurements of each row, one after the other; NaN: there is none.
    Raises DataError, with file and line, where more rows than `skip_bad` cannot be used, or none is left.
    """

    def __init__(
        self,
        rows: Rows,
        columns: Columns,
        inputs: InputColumn | MixedCells,
        *,
        say: Callable[[str], None],
        encode: Callable[[Any], Any] | None = None,
        skip_bad: int = 0,
    ):
        self.rows, self.columns, self.inputs = rows, columns, inputs
        self.indices, self.codes, self.numbers = array("q"), array("q"), array("d")
        self._targets = [rows.column(column) for column in columns.targets]
        self.counts: Counter[str] = Counter()
        self._code_of: dict[str, int] = {}
        self._first_spelling: dict[float, tuple[str, int]] = {}
        self._languages: dict[str, set[str]] = {}
        self._first_type: tuple[str, int] | None = None
        self._read(say, encode if columns.kind in ("smiles", "file") else None, skip_bad)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        return Sample(self.inputs.raw(self.cell(index)), self.label(index))

    @property
    def labels(self) -> list[Any]:
        """Labels without reading an input."""
        return [self.label(index) for index in range(len(self))]

    @property
    def texts(self) -> list[str]:
        """The different classes or tags, by their codes; in the order in which they appear, until they are numbered."""
        return list(self._code_of)

    def sample_name(self, index: int) -> str:
        """File and line of a sample, for messages."""
        return self.rows.place(self.indices[index])

    def cell(self, index: int) -> Any:
        """Cell of the input column, or cells of the input columns by name."""
        return self.inputs[self.indices[index]]

    def label(self, index: int) -> Any:
        """Target of a sample: a class, a number or several, a text or several, or classes [n] of its words."""
        kind, k = self.columns.target_kind, len(self._targets)
        if kind == "classes":
            return self.codes[index]
        if kind == "labels":
            return list(self.numbers[index * k : index * k + k])
        if kind == "numbers":
            found = self.numbers[index * k : index * k + k]
            return found[0] if k == 1 else list(found)
        if kind == "none":
            return None
        value = self._targets[0][self.indices[index]]
        if kind == "text":
            return value
        import torch  # slow to import, and a mistake is answered without it

        return torch.tensor([self._code_of[str(tag).strip()] for tag in words_of(value)])

    def use_classes(self, names: Sequence[str], split: str) -> None:
        """Number classes or tags by their place in `names`. Raises DataError for one that training lacks."""
        known = {name: i for i, name in enumerate(names)}
        for text, code in self._code_of.items():
            if text in known:
                continue
            place, what = self.rows.name, f"tag {_short(text)}"
            if self.columns.target_kind == "classes":
                place = self.sample_name(self.codes.index(code))
                what = f"class {_short(text)} ({self.codes.count(code):,} rows)"
            raise DataError(
                f"{place}: the {split} split has the {what}, which training lacks{lookalike(text, names)}; add rows of "
                "it to training, or take them out"
            )
        texts = self.texts
        self.codes = array("q", (known[texts[code]] for code in self.codes))
        self._code_of = known

    def _read(self, say: Callable[[str], None], encode: Callable[[Any], Any] | None, skip_bad: int) -> None:
        keep = getattr(self, f"_keep_{self.columns.target_kind}")
        bad = list(self.rows.faults[:1])
        num_bad = len(self.rows.faults)
        empty: dict[str, list[int]] = {}
        kinds = {self.columns.input: self.columns.kind} | dict.fromkeys(self.columns.targets, self.columns.target_kind)
        words: dict[str, list[int]] = {column: [] for column, kind in kinds.items() if kind == "text"}
        for i, (value, *labels) in enumerate(zip(self.inputs, *self._targets)):
            if self.inputs.is_absent(value):
                empty.setdefault(self.columns.input, []).append(i)
                continue
            try:
                self.inputs.check(value)
                if skip_bad > 0:  # each input is read once, to find those that cannot be
                    raw = self.inputs.raw(value)
                    if encode is not None:
                        encode(raw)
                has_target = keep(i, value, labels)
            except (ValueError, OSError) as error:
                bad = bad or [f"{self.rows.place(i)}: {error}"]
                num_bad += 1
                continue
            if has_target:
                self.indices.append(i)
                for column, cell in zip(kinds, (value, *labels)):
                    if column in words and is_missing(cell):
                        words[column].append(i)
            else:
                empty.setdefault(" or ".join(self.columns.targets), []).append(i)
        total = len(self.rows) + len(self.rows.faults)
        if num_bad > skip_bad:
            is_counted = self.columns.kind != "row"  # of which single cells are left out
            advice = f"; --data.skip_bad {num_bad} leaves them out" if len(self) and is_counted else ""
            raise DataError(f"{bad[0]} ({num_bad:,} of {total:,} rows cannot be used{advice})")
        why = [f"no {what}: {len(rows):,}, the first in {self._line(rows[0])}" for what, rows in empty.items()]
        why += [f"cannot be used: {num_bad:,}, the first: {bad[0]}"] if bad else []
        if not len(self):
            raise DataError(
                f"{self.rows.name}: none of the {total:,} rows has both input and target ({', '.join(why)}); "
                "choose columns with --data.input and --data.target"
            )
        for column, found in words.items():
            if found:
                say(
                    f"{self.rows.name}: in {len(found):,} rows {column} is a word for a missing value (first: "
                    f"{self._line(found[0])}), which counts as a text; leave the cell empty where there is none"
                )
        if why:
            say(Caution(f"{self.rows.name}: {total - len(self):,} of {total:,} rows are left out ({', '.join(why)})"))

    def _line(self, row: int) -> str:
        return self.rows.place(row).rpartition(", ")[2]

    # ── targets: each method keeps those of a row; it returns False where the row has none ───────────────────────────

    def _keep_none(self, _row: int, _value: Any, _labels: list[Any]) -> bool:
        return True

    def _keep_classes(self, row: int, _value: Any, labels: list[Any]) -> bool:
        (column,), (label,) = self.columns.targets, labels
        if is_missing(label):
            return False
        if isinstance(label, list | dict):
            raise ValueError(
                f"{column} is {_short(label)}, which is no class; for a class each word give --data.target_kind tags"
            )
        kind = "texts" if isinstance(label, str) else "true and false" if isinstance(label, bool) else "numbers"
        self._first_type = self._first_type or (kind, row)
        if self._first_type[0] != kind:
            raise ValueError(
                f"{column} is {_short(label)}, and from {self._line(self._first_type[1])} on it held "
                f"{self._first_type[0]}; write all in one type, or name another column with --data.target"
            )
        name = str(label).lower() if isinstance(label, bool) else bare_name(str(label))
        if name not in self._code_of and (value := exact_number(name)) is not None:
            spelling, first = self._first_spelling.setdefault(value, (name, row))
            if spelling != name:
                raise ValueError(
                    f"{column} is {_short(label)}, and in {self._line(first)} it is {spelling!r}, the same number; "
                    f"write both alike, or with a letter if they are two classes (v{spelling}, v{name})"
                )
        self.codes.append(self._code(name))
        return True

    def _keep_numbers(self, row: int, _value: Any, labels: list[Any]) -> bool:
        found = [number(label, self.rows.decimal) for label in labels]
        for column, label, x in zip(self.columns.targets, labels, found):
            if x is None or abs(x) > MAX_NUMBER:
                is_finite = x is not None and not math.isinf(x)
                raise ValueError(
                    f"{column} is {_short(label)}, "
                    + (f"beyond {MAX_NUMBER:g}, where float32 has no squares" if is_finite else "not a finite number")
                    + f"; {decimal_hint(label, self.rows.decimal)}correct it or take the line out, or name another "
                    "column with --data.target (words: --data.target_kind classes)"
                )
        return self._keep_values([x for x in found if x is not None])

    def _keep_labels(self, row: int, _value: Any, labels: list[Any]) -> bool:
        found = [truth(label) for label in labels]
        for column, label, x in zip(self.columns.targets, labels, found):
            if x is None:
                raise ValueError(
                    f"{column} is {_short(label)}; write one of {YES_NO_WORDS}, 1/0, or nothing where it is not known, "
                    "or name other columns with --data.target"
                )
            known = self._languages.get(column, set(YES_NO))
            self._languages[column] = known & languages(label)
            if not self._languages[column]:
                others = " or ".join(sorted(known))
                raise ValueError(
                    f"{column} is {_short(label)}, and rows before it say yes and no in {others}; write all in one "
                    "language"
                )
        return self._keep_values([x for x in found if x is not None])

    def _keep_values(self, values: list[float]) -> bool:
        has_one = not all(map(math.isnan, values))
        if has_one:
            self.numbers.extend(values)
        return has_one

    def _keep_tags(self, row: int, value: Any, labels: list[Any]) -> bool:
        (column,), (label,) = self.columns.targets, labels
        if is_missing(label):
            return False
        tags, words = words_of(label), words_of(value)
        for tag in tags:
            if is_blank(tag) or isinstance(tag, list | dict):
                raise ValueError(f"{column} is {_short(label)}, and {_short(tag)} in it is no tag")
        if len(tags) != len(words):
            raise ValueError(
                f"{self.columns.input} has {len(words)} words and {column} {len(tags)}; give a tag for each word, or "
                "other columns with --data.input and --data.target"
            )
        for tag in tags:
            self._code(str(tag).strip())
        return True

    def _keep_text(self, row: int, _value: Any, labels: list[Any]) -> bool:
        (column,), (label,) = self.columns.targets, labels
        if is_blank(label):
            return False
        if not all(isinstance(text, str) and text.strip() for text in (label if isinstance(label, list) else [label])):
            raise ValueError(f"{column} is {_short(label)}, which is no text; choose another column with --data.target")
        return True

    def _code(self, text: str) -> int:
        self.counts[text] += 1
        return self._code_of.setdefault(text, len(self._code_of))


class Subset:
    """Some rows of a table, in a given order."""

    def __init__(self, samples: UsableRows, indices: Sequence[int], groups: Sequence[str] | None = None):
        self.samples, self.indices, self.groups = samples, list(indices), groups

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def labels(self) -> list[Any]:
        return [self.samples.label(i) for i in self.indices]

    def sample_name(self, index: int) -> str:
        return self.samples.sample_name(self.indices[index])

    def samples_of(self) -> Samples:
        """The rows as samples."""
        return Samples(self.raw, self.labels, groups=self.groups, name=self.sample_name)

    def raw(self, index: int) -> Any:
        return self.samples.inputs.raw(self.samples.cell(self.indices[index]))


def check_cell(column: str, value: Any, kind: str = "text", *, are_words: bool, steps: Sequence[str] = ()) -> None:
    """Raise ValueError where a cell of the input column is not what its kind says or, for tags, no list of words.

    steps: columns of a series that is spread over several, each of which must hold a number.
    """
    for step, cell in zip(steps, value if steps else ()):
        if is_missing(cell):
            raise ValueError(f"{step} is empty, and each column of a series holds a number; fill it in")
        if not isinstance(cell, int | float) or isinstance(cell, bool) or math.isinf(cell):
            raise ValueError(f"{step} is {_short(cell)}, which is no number, as each column of a series holds")
    if are_words:
        if not all(isinstance(word, str) and len(word.split()) == 1 for word in words_of(value)):
            raise ValueError(f"{column} is {_short(value)}, which is no list of words without spaces")
    elif kind == "series":
        if not is_series(value):
            raise ValueError(f"{column} is {_short(value)}, which is no list of numbers")
    elif kind in ("image", "audio") and (content_of(value) or isinstance(name_of(value), str)):
        return
    elif not isinstance(value, str) and (kind != "text" or conversation(value) is None):
        raise ValueError(f"{column} is {_short(value)}, which is no text; write it in quotes")


def input_of(cell: Any, kind: str) -> Any:
    """The raw example of a cell that names no file: a text, a conversation as a text, molecules, or a series."""
    if isinstance(cell, str):
        return cell.strip() if kind == "smiles" else cell
    return cell if kind == "series" else conversation(cell)


def check_file(folder: Path, name: str, otherwise: str) -> None:
    """Raise ValueError where a cell names no file in the folder; otherwise: what else may be done."""
    is_file = False
    with suppress(OSError, ValueError):  # a long text is no path
        is_file = (folder / name).is_file()
    if not is_file:
        where = f"does not exist in {folder}; name files relative to the table, or {otherwise}"
        raise ValueError(f"{one_line(name)[:200]} {where}")


def words_of(value: Any) -> list[Any]:
    """Words or tags of a cell: a list, or a text with spaces between them."""
    return value.split() if isinstance(value, str) else list(value) if isinstance(value, list) else [value]


def _short(value: Any) -> str:
    content = content_of(value)
    text = repr(value if content is None else content[:40])
    return one_line(text if len(text) <= 60 else f"{text[:57]}…")
