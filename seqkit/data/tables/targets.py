"""The usable rows of a table: those with an input and a target, checked one by one, and counted where they are not."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from seqkit.data.tables.columns import Columns, is_missing, number
from seqkit.data.tables.files import Rows
from seqkit.errors import DataError, one_line

MAX_NUMBER = 1e18
"""Of measurements: the square of a larger one, as a loss takes it, is too near the end of float32 (3e38)."""


class UsableRows:
    """Rows that have input and target. say: is given the sentence that counts the others.

    indices: of the rows in the table, in its order. texts: the different classes or tags, as they appear first.
    codes: of each row its class, by its place in `texts`. numbers: of each row its measurements, one after the other;
    NaN: there is none.
    Raises DataError, with file and line, where a cell is not what its column should hold.
    """

    def __init__(self, rows: Rows, columns: Columns, say: Callable[[str], None]):
        self.rows, self.columns = rows, columns
        self.indices, self.codes, self.numbers = array("q"), array("q"), array("d")
        self.texts: list[str] = []
        self._code_of: dict[str, int] = {}
        self._first_type: tuple[str, int] | None = None
        self._read(say)

    def __len__(self) -> int:
        return len(self.indices)

    def place(self, index: int) -> str:
        """File and line of a usable row."""
        return self.rows.place(self.indices[index])

    def numbered(self, names: Sequence[str], split: str) -> array[int]:
        """The class of each row by its place in `names`. Raises DataError for a class or tag that training lacks."""
        known = {name: i for i, name in enumerate(names)}
        for code, text in enumerate(self.texts):
            if text in known:
                continue
            what, count, place = "tag", "", self.rows.files[0][0]
            if self.columns.target_kind == "classes":
                what, count, place = "class", f" ({self.codes.count(code):,} rows)", self.place(self.codes.index(code))
            raise DataError(
                f"{place}: the {split} split has the {what} {_short(text)}{count}, which training lacks; add rows of "
                "it to training, or take them out"
            )
        return array("q", (known[self.texts[code]] for code in self.codes))

    def _read(self, say: Callable[[str], None]) -> None:
        check = _is_words if self.columns.target_kind == "tags" else _is_text
        add = getattr(self, f"_add_{self.columns.target_kind}")
        left_out: dict[str, list[int]] = {}
        targets = [self.rows.column(column) for column in self.columns.targets]
        for i, (value, *labels) in enumerate(zip(self.rows.column(self.columns.input), *targets)):
            reason = f"no {self.columns.input}"
            if not is_missing(value):
                if problem := check(value):
                    raise self._error(i, self.columns.input, value, f"{problem}; or choose another with --data.input")
                reason = add(i, value, labels)
            if reason is None:
                self.indices.append(i)
            else:
                left_out.setdefault(reason, []).append(i)
        name, total = self.rows.files[0][0], sum(map(len, left_out.values()))
        if not len(self):
            raise DataError(
                f"{name}: none of the {len(self.rows):,} rows has both input and target ({self._why(left_out)}); "
                "choose columns with --data.input and --data.target"
            )
        if left_out:
            say(f"{name}: {total:,} of {len(self.rows):,} rows are left out ({self._why(left_out)})")

    def _why(self, left_out: dict[str, list[int]]) -> str:
        return ", ".join(
            f"{reason}: {len(places):,}, the first in {self.rows.place(places[0]).rpartition(', ')[2]}"
            for reason, places in left_out.items()
        )

    def _error(self, row: int, column: str, value: Any, what: str) -> DataError:
        return DataError(f"{self.rows.place(row)}: {column} is {_short(value)}, {what}")

    # ── targets: each gives the reason why the row is left out, or None ──────────────────────────────────────────────

    def _add_none(self, _row: int, _value: Any, _labels: list[Any]) -> str | None:
        return None

    def _add_classes(self, row: int, _value: Any, labels: list[Any]) -> str | None:
        (column,), (label,) = self.columns.targets, labels
        if is_missing(label):
            return f"no {column}"
        if isinstance(label, list | dict):
            advice = "which is no class; for a class each word give --data.target_kind tags"
            raise self._error(row, column, label, advice)
        kind = "texts" if isinstance(label, str) else "true and false" if isinstance(label, bool) else "numbers"
        self._first_type = self._first_type or (kind, row)
        if self._first_type[0] != kind:
            where = self.rows.place(self._first_type[1]).rpartition(", ")[2]
            advice = f"and from {where} on it held {self._first_type[0]}; write all in one type, or name another column"
            raise self._error(row, column, label, f"{advice} with --data.target")
        self.codes.append(self._code(str(label).lower() if isinstance(label, bool) else str(label).strip()))
        return None

    def _add_numbers(self, row: int, _value: Any, labels: list[Any]) -> str | None:
        found = []
        for column, label in zip(self.columns.targets, labels):
            x = number(label)
            if x is None or abs(x) > MAX_NUMBER:
                advice = "correct it or take the line out, or name another column with --data.target"
                what = "not a finite number"
                if x is not None and not math.isinf(x):
                    what = f"beyond {MAX_NUMBER:g}, where float32 has no squares"
                raise self._error(row, column, label, f"{what}; {advice} (words: --data.target_kind classes)")
            found.append(x)
        if all(map(math.isnan, found)):
            return f"no {' or '.join(self.columns.targets)}"
        self.numbers.extend(found)
        return None

    def _add_tags(self, row: int, value: Any, labels: list[Any]) -> str | None:
        (column,), (label,) = self.columns.targets, labels
        if is_missing(label):
            return f"no {column}"
        tags = words_of(label)
        for tag in tags:
            if is_missing(tag) or isinstance(tag, list | dict):
                raise self._error(row, column, label, f"and {_short(tag)} in it is no tag; give a tag for each word")
            self._code(str(tag))
        if len(tags) != len(words_of(value)):
            raise DataError(
                f"{self.rows.place(row)} has {len(words_of(value))} words in {self.columns.input} and {len(tags)} "
                f"{column}; give a tag for each word, or other columns with --data.input and --data.target"
            )
        return None

    def _add_text(self, row: int, _value: Any, labels: list[Any]) -> str | None:
        (column,), (label,) = self.columns.targets, labels
        if is_missing(label):
            return f"no {column}"
        if not all(isinstance(text, str) and text.strip() for text in (label if isinstance(label, list) else [label])):
            raise self._error(row, column, label, "which is no text; choose another column with --data.target")
        return None

    def _code(self, text: str) -> int:
        code = self._code_of.setdefault(text, len(self.texts))
        if code == len(self.texts):
            self.texts.append(text)
        return code


def words_of(value: Any) -> list[Any]:
    """Words or tags of a cell: a list, or a text with spaces between them."""
    return value.split() if isinstance(value, str) else list(value) if isinstance(value, list) else [value]


def _is_text(value: Any) -> str | None:
    """What is wrong with an input that should be a text, the name of a file or a SMILES string."""
    return None if isinstance(value, str) else "which is no text; write it in quotes"


def _is_words(value: Any) -> str | None:
    words = words_of(value)
    fits = all(isinstance(word, str) and len(word.split()) == 1 for word in words)
    return None if fits else "which is no list of words; give words without spaces in them, or a text of such words"


def _short(value: Any) -> str:
    text = repr(value)
    return one_line(text if len(text) <= 60 else f"{text[:57]}…")
