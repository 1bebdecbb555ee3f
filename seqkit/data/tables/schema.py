"""The columns of a table, their kinds and roles: given or inferred, saved with the run, used wherever rows are read."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from seqkit.data.kinds import FILES, KINDS, OF_CELLS, TARGETS, TargetKind
from seqkit.data.source import Arguments
from seqkit.data.tables.cells import (
    content_of,
    conversation,
    is_blank,
    is_missing,
    is_series,
    is_word,
    name_of,
    number,
    numbers_of,
    short,
    word_of,
    words_of,
    years,
)  # fmt: skip
from seqkit.data.tables.rows import Rows
from seqkit.errors import DataError, suggest
from seqkit.files import load_yaml

CELLS = "cells"
"""Key of the row of numbers, categories and dates in a raw example, and name of its part."""

MAX_NUMBER = 1e18
"""Largest number: the square of a larger one, as a loss takes it, is too near the end of float32 (3e38)."""

SAID_COLUMNS = 30
"""Columns that are said in a line each; of wider tables the rest is counted."""


Role = Literal["input", "target", "group", "split", "unused"]
"""Use of a column."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    role: what it is used as. form: of dates, their form as `strptime` takes it ("": ISO 8601); of numbers, "," where
    the decimals stand behind a comma. why: why it is not used, or what is odd about its cells. flag: the option that
    changes it, as it is typed; empty: none does. is_given: whether the user named its kind.

    >>> Column("price", "number").read("$1,234.50"), Column("price", "number", form=",").read("1.234,50 €")
    (1234.5, 1234.5)
    """

    name: str
    kind: str
    role: Role = "input"
    form: str = ""
    why: str = ""
    flag: str = ""
    is_given: bool = False

    def read(self, cell: Any, missing: Iterable[str] = ()) -> Any:
        """The value of a cell; None where it holds nothing. missing: words, in lower case, that say so, too.

        Numbers and dates are floats (dates in years since 1970), categories texts; texts, names of files and series are
        as they are. Raises ValueError where it is not what the column holds.
        """
        if self.kind in ("text", "words"):  # which may be called null
            is_empty = is_blank(cell) or (isinstance(cell, str) and cell.strip().lower() in missing)
        else:
            is_empty = is_missing(cell, missing)
        if is_empty:
            return None
        return _READERS[self.kind](self, cell)

    def _number(self, cell: Any) -> float | None:
        found = number(cell, self.form)
        if found is None:
            raise ValueError(self._wrong(cell, "is no number"))
        if abs(found) > MAX_NUMBER:
            raise ValueError(self._wrong(cell, f"is beyond {MAX_NUMBER:g}"))
        return None if math.isnan(found) else found

    def _date(self, cell: Any) -> float:
        found = years(cell, self.form)
        if found is None:
            form = self.form or "ISO 8601, such as 2022-02-21"
            raise ValueError(self._wrong(cell, f"is no date as the others are ({form})"))
        return found

    def _category(self, cell: Any) -> str:
        if isinstance(cell, list | dict | bytes):
            raise ValueError(self._wrong(cell, "is no category"))
        word = word_of(cell)
        return {"true": "true", "false": "false"}.get(word.lower(), word)  # as JSON has them

    def _text(self, cell: Any) -> str:
        if not isinstance(cell, str) and (cell := conversation(given := cell)) is None:
            raise ValueError(self._wrong(given, "is no text; write it in quotes"))
        return str(cell)

    def _smiles(self, cell: Any) -> str:
        return self._text(cell).strip()

    def _series(self, cell: Any) -> list[Any]:
        if isinstance(cell, str):
            cell = numbers_of(cell) or cell
        if not is_series(cell):
            raise ValueError(self._wrong(cell, "is no list of numbers"))
        return list(cell)

    def _words(self, cell: Any) -> list[str]:
        found = words_of(cell)
        if not all(map(is_word, found)):
            raise ValueError(self._wrong(cell, "is no list of words without spaces"))
        return found

    def _file(self, cell: Any) -> str | bytes:
        found = content_of(cell) or name_of(cell)
        if not isinstance(found, str | bytes):
            raise ValueError(self._wrong(cell, "is no file's name or content"))
        return found

    def _wrong(self, cell: Any, what: str) -> str:
        return f"{self.name} is {short(cell)}, which {what}"


_READERS: dict[str, Callable[[Column, Any], Any]] = {
    "number": Column._number, "date": Column._date, "category": Column._category, "text": Column._text,
    "smiles": Column._smiles, "series": Column._series, "words": Column._words,
    **dict.fromkeys(FILES, Column._file), "unused": lambda _, cell: cell,
}  # fmt: skip


@dataclass(frozen=True)
class Given:
    """The user's word on a table's columns; what is left open is inferred from its cells.

    input: the one column that is read, or several of numbers that are a series, or a pattern such as `s*`; None: all.
    target: the column that is learned; several for numbers and labels. target_kind: what it holds (`TargetKind`).
    columns: kind of each column (`KINDS`), or a list of the names of all columns, which is taken as `header`. forms:
    form of dates, as `strptime` takes it, "," for numbers with a decimal comma, and "# kg" for a unit. missing:
    words that say that a cell is empty, beside those that programs write. header: names of all columns, where the
    file has none.
    """

    is_settings = True

    input: str | list[str] | None = None
    target: str | list[str] | None = None
    target_kind: TargetKind | None = None
    columns: dict[str, str] | list[str] | None = None
    forms: dict[str, str] | None = None
    missing: list[str] | None = None
    header: list[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.columns, list):
            object.__setattr__(self, "header", self.columns)
            object.__setattr__(self, "columns", None)
        if isinstance(self.target, list) and (
            not self.target or len(set(self.target)) < len(self.target)
        ):
            raise ValueError(
                f"target is {self.target}; give one column or several different ones, or leave it out"
            )
        if self.target_kind is not None and self.target_kind not in TARGETS:
            raise ValueError(
                f"target_kind is {self.target_kind!r}; {suggest(str(self.target_kind), TARGETS)}"
            )
        if len(self.targets) > 1 and self.target_kind in ("classes", "text", "tags"):
            raise ValueError(
                f"target_kind is {self.target_kind}, and target names {len(self.targets)} columns; give one"
            )
        for name, kind in self.kinds.items():
            if kind not in KINDS:
                raise ValueError(
                    f"columns says that {name!r} is {kind!r}; {suggest(str(kind), KINDS)}"
                )
        for name, form in (self.forms or {}).items():
            if form not in ("", ",") and "%" not in form and "#" not in form:
                raise ValueError(
                    f"forms says that {name!r} is written {form!r}; give ',', '# UNIT', or a date's, such as %d/%m/%Y"
                )

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of columns that are known."""
        return self.columns if isinstance(self.columns, dict) else {}

    @property
    def targets(self) -> list[str]:
        """Columns of the target."""
        if isinstance(self.target, str):
            return [self.target]
        return list(self.target or ())


@dataclass(frozen=True)
class Schema:
    """The columns of a table, what they hold and what they are used as.

    target_kind: what the targets hold. missing: words, in lower case, that say that a cell is empty. name: the table,
    for messages. steps: columns of numbers that are one series; empty: the input is one column, or all. header: names
    of all columns, where the file has none.

    >>> columns = Column("size", "number"), Column("note", "text"), Column("kind", "category", "target")
    >>> schema = Schema(columns, "classes")
    >>> schema.parts, schema.settings()["columns"]
    ({'note': 'text', 'cells': 'cells'}, {'size': 'number', 'note': 'text'})
    """

    columns: tuple[Column, ...]
    target_kind: TargetKind
    missing: tuple[str, ...] = ()
    name: str = ""
    steps: tuple[Column, ...] = ()
    header: tuple[str, ...] = ()

    @property
    def inputs(self) -> list[Column]:
        """The columns that are read."""
        return [column for column in self.columns if column.role == "input"]

    @property
    def targets(self) -> list[Column]:
        """The columns that are learned."""
        return [column for column in self.columns if column.role == "target"]

    def column(self, name: str) -> Column:
        """The column of that name."""
        return next(column for column in self.columns if column.name == name)

    @property
    def parts(self) -> dict[str, str]:
        """Kind of each part of an example: columns, and `cells` for numbers, categories and dates together."""
        found: dict[str, str] = {
            column.name: column.kind for column in self.inputs if column.kind not in OF_CELLS
        }
        if len(found) < len(self.inputs):
            found[CELLS] = CELLS
        return found

    def settings(self) -> Arguments:
        """The schema as the settings of a data source (`Given`) that are saved with a run."""
        columns = {}
        for column in self.columns:
            if column.role == "unused":
                columns[column.name] = "unused"
            elif column.role == "input" and not self.steps:
                columns[column.name] = column.kind
        forms = {one.name: one.form for one in (*self.columns, *self.steps) if one.form}
        targets = [column.name for column in self.targets]
        found = {
            "target": targets[0] if len(targets) == 1 else targets or None,
            "target_kind": self.target_kind,
            "columns": columns,
            "forms": forms or None,
            "missing": list(self.missing) or None,
            "header": list(self.header) or None,
        }
        if self.steps:
            found["input"] = [column.name for column in self.steps]
        return found

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> Schema:
        """The columns that are read, from the settings of a data source that were saved with a run."""
        kinds = settings.get("columns") or {}
        forms = settings.get("forms") or {}
        given = settings.get("input")
        steps: list[Column] = []
        if isinstance(given, list):
            steps = [Column(name, "number", form=forms.get(name, "")) for name in given]
            columns = [series_of(steps)]
        else:
            if isinstance(given, str) and not kinds:
                kinds = {given: "text"}
            columns = [
                Column(name, kind, form=forms.get(name, ""))
                for name, kind in kinds.items()
                if kind != "unused"
            ]
        missing = tuple(settings.get("missing") or ())
        header = tuple(settings.get("header") or ())
        return cls(tuple(columns), "none", missing, steps=tuple(steps), header=header)

    def lines(self) -> Iterator[str]:
        """The inferred columns, a line for each."""
        inferred = [
            c
            for c in self.columns
            if c.role not in ("group", "split") and (c.why or not c.is_given)
        ]
        for column in inferred[:SAID_COLUMNS]:
            words = [repr(column.name)]
            if column.form:
                words.append(
                    "with decimal commas" if column.form == "," else f"written {column.form}"
                )
            kind = column.kind
            if column.role == "target":
                words.append(f"target ({self.target_kind})")
                kind = {"unused": "column"}.get(kind, kind)
            elif column.role == "unused":
                kind = "not used"
            else:
                words.append(column.role)
            why = f" ({column.why})" if column.why else ""
            change = f"; to change: {column.flag}" if column.flag else ""
            yield f"{self.name}: {kind}: {', '.join(words)}{why}{change}"
        if (more := len(inferred) - SAID_COLUMNS) > 0:
            yield f"{self.name}: and {more:,} columns more; --print_config shows all"
        for word in self.missing if inferred else ():
            yield f"{self.name}: {word.upper()} counts as an empty cell; to change: --data.missing '[]'"


def series_of(steps: Sequence[Column]) -> Column:
    """The column that stands for several columns of numbers which are one series."""
    return Column(f"{steps[0].name} … {steps[-1].name}", "series", is_given=True)


def check_column(rows: Rows, column: str, flag: str) -> None:
    """Raise DataError where there is no such column. flag: option that names it."""
    if column not in rows.columns:
        raise no_column(rows.name, column, rows.names, flag)


def no_column(table: str, column: str, names: Iterable[str], flag: str) -> DataError:
    """The error for a column that does not exist, with the nearest one."""
    return DataError(f"{table} has no column {column!r}; {suggest(column, names)} ({flag})")


def option(name: str, value: str | Mapping[str, str] | Sequence[str]) -> str:
    """`--data.NAME VALUE`, to be pasted into a shell: quoted where a column's name has spaces, quotes or colons."""
    if isinstance(value, Mapping):
        value = f"{{{', '.join(f'{_in_yaml(column)}: {_in_yaml(kind)}' for column, kind in value.items())}}}"
    elif not isinstance(value, str):
        value = f"[{', '.join(map(_in_yaml, value))}]"
    return f"--data.{name} {shlex.quote(value)}"


def objective_option(kind: TargetKind) -> str:
    """The option by which a recipe learns targets of another kind, to be pasted into a shell."""
    return f"--model.objective {shlex.quote(TARGETS[kind].objective)}"


def _in_yaml(word: str) -> str:
    """A word inside a list or mapping of YAML, in double quotes where it would be read as something else."""
    with suppress(yaml.YAMLError):
        if load_yaml(f"{{{word}: x}}") == {word: "x"} and load_yaml(f"[{word}]") == [word]:
            return word
    return json.dumps(word, ensure_ascii=False)
