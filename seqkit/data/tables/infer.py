"""The schema of a table: roles of its columns, by what is given, their kinds and their names.

A table with more than one usable column is learnt from all its columns; a lone text column takes the text recipe; the
target is the named column, else one with a well-known name, else the last of numbers or classes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqkit.data.kinds import FILES, KINDS, OF_CELLS, TargetKind
from seqkit.data.tables.cells import (
    number,
    short,
    truth,
)  # fmt: skip
from seqkit.data.tables.columns import (
    OF_IDS,
    Cells,
    all_fit,
    column_of,
    numbers_rows,
    words_for_missing,
)
from seqkit.data.tables.rows import Rows
from seqkit.data.tables.schema import (
    CELLS,
    Column,
    Given,
    Schema,
    no_column,
    option,
    series_of,
)
from seqkit.errors import DataError

FEW_VALUES = 20
"""Different whole numbers up to which a target that is called as classes are holds classes."""

CLASS_NAMES = ("target", "label", "class", "y", "targets", "labels", "category", "sentiment")
"""Names of targets under which few whole numbers are classes."""

TARGET_NAMES = (
    *CLASS_NAMES, "output", "outcome", "result", "answer", "translation", "tgt", "tags", "ner_tags", "pos_tags",
    "value", "score",
)  # fmt: skip
"""Names of columns that are the target where none is named, the likeliest first."""

OF_GROUPS = re.compile(
    r"(?i:(.*[_ .-])?(id|patient|subject|person|participant|donor|animal|speaker|author|user|customer|client|member"
    r"|household|family|group|session|device|machine|sensor|station|site|school|hospital|batch|plate)s?)"
    r"|.*[a-z](Id|ID)"
)
"""Names of columns that say which rows are of one thing, where their cells come again."""

IDENTIFIES = ("number", "category", "text")
"""Kinds of columns that may number the rows."""

OF_YEARS = ("year", "date", "time", "timestamp")
"""Names of columns that say when a row is from."""


def infer(
    rows: Rows,
    given: Given | None = None,
    *,
    reads: str | None = None,
    split: str | None = None,
    group: str | None = None,
    folder: Path | None = None,
    input_flag: str = "--data.input",
) -> Schema:
    """The schema of a table, from its cells and what is given.

    reads: the kind of the one column that a recipe reads; "": one column of any kind; None: the recipe reads all
    columns. split, group: columns that say the split and the group of a row. folder: folder of files that the tokenizer
    reads itself; None: it reads none. input_flag: option that names the input, for messages.
    Raises DataError where a column does not exist, or the input or target is not clear.

    >>> schema = infer(Rows({"size": ["1.5", "2", "NA"], "kind": ["a", "b", "a"]}, [("t.csv", 3)]))
    >>> [(column.name, column.kind, column.role) for column in schema.columns], schema.missing
    ([('size', 'number', 'input'), ('kind', 'category', 'target')], ('na',))
    """
    if len(rows) == 0:
        no_rows = f"{rows.name} has a header ({', '.join(rows.names)}) and no rows; add some"
        raise DataError([*rows.faults, no_rows][0])
    table = _Columns(rows, given or Given(), reads, input_flag)
    return table.schema(split, group, folder)


# ── roles ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Columns:
    """The columns of a table, by which its schema is inferred; the arguments are those of `infer`.

    cells: by column. named: columns that the user names as input; steps: several that are one series.
    """

    def __init__(self, rows: Rows, given: Given, reads: str | None, input_flag: str):
        self.name = rows.name
        self.names = rows.names
        self.categories = rows.categories
        self.given = given
        self.reads = reads
        self.input_flag = input_flag
        self.cells = {name: Cells(rows.columns[name]) for name in rows.names}

    def schema(self, split: str | None, group: str | None, folder: Path | None) -> Schema:
        """The schema of the table."""
        given = self.given
        own = [name for name in (split, group) if name is not None]
        self.steps = self._steps(own)
        self.named = list(self.steps)
        if isinstance(given.input, str) and not self.steps:
            self.named = [given.input]
        self._check(split, group)
        missing = given.missing
        if missing is None:
            missing = words_for_missing(self.cells.values())
        missing = [word.strip().lower() for word in missing]
        for cells in self.cells.values():
            cells.fill(missing)
        self.columns = {
            name: column_of(name, cells, given, folder) for name, cells in self.cells.items()
        }
        for name, column in self.columns.items():
            is_open = not column.is_given and name not in given.targets
            if is_open and column.kind in IDENTIFIES and numbers_rows(name, self.cells[name]):
                self._change(name, kind="unused", role="unused", why="it numbers the rows")
        self._settle_decimals()
        for name in self.categories & {*self.columns} - {*given.kinds}:
            if self.columns[name].kind == "number":
                self._change(name, kind="category", form="")
        for name in own:
            if name in self.named or name in given.kinds:
                continue
            if name == split:
                self._change(name, role="split")
            elif self.columns[name].kind in (*OF_CELLS, "unused"):
                self._change(name, role="group")
        for name in self._targets():
            column = self.columns[name]
            why = column.why if column.kind == "number" else ""
            self._change(name, role="target", why=why, is_given=bool(given.targets))
        target_kind = given.target_kind or self._target_kind()
        self._take_input(target_kind)
        columns = list(self.columns.values())
        series = [replace(self.columns[name], kind="number") for name in self.steps]
        if series:
            others = [column for column in columns if column.name not in self.steps]
            columns = [series_of(series), *others]
        for column in columns:
            if column.name == CELLS and column.role == "input" and column.kind not in OF_CELLS:
                raise DataError(f"{self.name}: a column cannot be called {CELLS!r}; rename it")
        header = tuple(given.header or ())
        return Schema(tuple(columns), target_kind, tuple(missing), self.name, tuple(series), header)

    def _change(self, name: str, **changes: Any) -> None:
        self.columns[name] = replace(self.columns[name], **changes)

    def _of_role(self, *roles: str) -> list[Column]:
        return [column for column in self.columns.values() if column.role in roles]

    def _check(self, split: str | None, group: str | None) -> None:
        """Raise DataError where a column that is named does not exist, or has two roles."""
        given = self.given
        said: dict[str, Iterable[str | None]] = {
            "input": self.named, "target": given.targets, "columns": given.kinds, "forms": given.forms or (),
            "split": [split], "group": [group],
        }  # fmt: skip
        for flag, names in said.items():
            for name in names:
                if name is not None and name not in self.cells:
                    raise no_column(self.name, name, self.names, f"--data.{flag}")
        for name in given.targets:
            if name in (split, group):
                raise DataError(
                    f"{self.name}: {name!r} is the target, and names split or group; give another column"
                )
            if name in self.named or given.kinds.get(name, "unused") != "unused":
                raise DataError(
                    f"{self.name}: {name!r} is input and target; give another column with --data.target"
                )

    def _settle_decimals(self) -> None:
        """Read 1.234 and 1,234 as the decimals of other columns say; where none does, say how they are read."""
        signs = set()
        unclear = []
        for name, column in self.columns.items():
            marked = self.cells[name].marked
            if column.kind != "number" or not marked:
                continue
            if column.is_given or column.form == "," or not all_fit(marked, ","):
                signs.add(column.form)
            else:
                unclear.append(name)
        for name in unclear:
            cell = next((cell for cell in self.cells[name].marked if "," in cell), None)
            if signs == {","}:
                self._change(name, form=",")
            elif cell is not None and signs != {""}:
                way = option("forms", {name: ","})
                read = f"{short(cell)} is read as {number(cell):g}; if its comma is a decimal sign"
                self._change(name, why=f"{read}: {way}")

    # ── target ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _targets(self) -> list[str]:
        """The columns of the target: the named ones, one with a well-known name, or the last of numbers or classes."""
        wanted = self.given.target_kind
        if self.given.targets or wanted == "none":
            return self.given.targets
        is_open = {
            name: column
            for name, column in self.columns.items()
            if name not in self.named and name not in self.given.kinds
        }
        free = [name for name, column in is_open.items() if column.role == "input"]
        targets = []
        if wanted == "labels":
            targets = [name for name in free if _is_yes_no(self.cells[name].counts)]
        if not targets:
            called = {
                name.lower().strip(): name
                for name, column in reversed(is_open.items())
                if column.role in ("input", "unused")
            }
            known = [called[name] for name in TARGET_NAMES if name in called]
            kinds: tuple[str, ...] = ("number", "category")
            if wanted in ("text", "tags"):
                kinds = ("text", "words", "category")
            last = [
                name
                for name in free
                if self.columns[name].kind in kinds and not OF_IDS.fullmatch(name.strip())
            ]
            targets = known[:1] or last[-1:] or free[-1:]
            left = [
                name
                for name, column in is_open.items()
                if column.role in ("input", "group") and name not in targets
            ]
            if not (self.named or self.given.kinds or left):
                targets = []
        if not targets and wanted is not None:
            raise DataError(
                f"{self.name} has no column for the target ({', '.join(self.names)}); name one: --data.target"
            )
        return targets

    def _target_kind(self) -> TargetKind:
        """Kind of targets: words and few whole numbers under a name of classes are classes, numbers measured."""
        targets = self._of_role("target")
        if not targets:
            return "none"
        if len(targets) > 1:
            if all(column.kind == "number" for column in targets):
                return "numbers"
            if all(_is_yes_no(self.cells[column.name].counts) for column in targets):
                return "labels"
            names = ", ".join(column.name for column in targets)
            raise DataError(
                f"{self.name}: several targets ({names}) are all numbers or all yes and no; give --data.target"
            )
        (target,) = targets
        if target.kind == "words":
            return "tags"
        cells = self.cells[target.name]
        if target.kind in FILES or any(isinstance(cell, list | dict) for cell in cells.drawn):
            what = f"{target.name} is {short(cells.first)}, which is no target"
            raise DataError(
                f"{self.name}: {what}; give another --data.target, or what it holds: --data.target_kind"
            )
        values = {cell: number(cell, target.form) for cell in cells.counts}
        few = {x for x in values.values() if x is not None and not math.isnan(x)}
        is_other = target.kind in ("unused", "date")
        if target.kind == "number" or (is_other and None not in values.values()):
            num = sum(cells.counts[cell] for cell, x in values.items() if x in few)
            is_whole = all(x.is_integer() for x in few) and 2 * len(few) <= num
            is_called = target.name.lower() in CLASS_NAMES and len(few) <= FEW_VALUES
            if not is_whole or not (is_called or len(few) == 2):
                return "numbers"
        elif target.kind in ("text", "smiles"):
            return "text"
        return "classes"

    # ── input ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_input(self, target_kind: TargetKind) -> None:
        """Leave as input only what is read: named columns, one for a recipe of one, or all."""
        inputs = self._of_role("input") or self._of_role("group")
        chosen = self.named
        if not chosen and self.reads is None:
            chosen = [column.name for column in inputs]
        elif not chosen:
            chosen = [self._one_input(inputs)]
        for column in self._of_role("input"):
            if column.name not in chosen:
                self._change(column.name, role="unused", why="the recipe reads one column")
        if self.steps:
            return
        for name in chosen:
            column = self.columns[name]
            self._change(
                name,
                kind=self._wanted(column, is_tagged=target_kind == "tags"),
                why=column.why if column.role == "input" else "",
                role="input",
                is_given=column.is_given or bool(self.named),
            )
        if not chosen:
            whys = [f"{one.name}: {one.why}" for one in self.columns.values() if one.why]
            why = "; ".join(whys) or ", ".join(self.names)
            raise DataError(f"{self.name}: no column is left as input ({why}); give --data.columns")
        if target_kind == "tags" and len(chosen) > 1:
            raise DataError(
                f"{self.name}: tags need one input, not {', '.join(chosen)}; name one with --data.input"
            )

    def _wanted(self, column: Column, *, is_tagged: bool) -> str:
        """The kind as which a recipe reads a column: a recipe of texts reads categories and numbers as texts, too."""
        if is_tagged:
            return "words"
        if self.reads and not column.is_given:
            return self.reads
        return "text" if column.kind == "unused" else column.kind

    def _one_input(self, inputs: Sequence[Column]) -> str:
        """The one column that a recipe reads: of its kind, by name, else the longest text."""
        reads = self.reads
        same = [column for column in inputs if reads in ("", column.kind)]
        if reads == "text" and not same:
            free = self._of_role("input", "group")
            same = [column for column in free if column.kind in ("category", "words", "smiles")]
        if not same:
            held = ", ".join(f"{column.name}: {column.kind}" for column in inputs) or "none"
            raise DataError(
                f"{self.name} has no column of {reads or 'input'} left ({held}); name one with {self.input_flag}"
            )
        if len(same) == 1:
            return same[0].name
        called = {column.name.lower().strip(): column.name for column in reversed(same)}
        for name in KINDS[reads or same[0].kind].input_names:
            if name in called:
                return called[name]
        lengths = {
            one.name: sum(len(str(cell)) for cell in self.cells[one.name].drawn) for one in same
        }
        first, second, *_ = sorted(lengths, key=lambda name: -lengths[name])
        if reads == "text" and lengths[first] >= 2 * lengths[second]:
            return first
        both = ", ".join(map(repr, lengths))
        raise DataError(
            f"{self.name}: the columns {both} fit equally as input; name one with {self.input_flag}"
        )

    def _steps(self, own: Sequence[str]) -> Sequence[str]:
        """The columns that are one series; empty: the input is one column, or all."""
        given = self.given.input
        if isinstance(given, list):
            if not given or len(set(given)) < len(given):
                raise DataError(
                    f"{self.name}: --data.input is {given}; give each column of a series once"
                )
            return given
        if given is None or given in self.cells or not ("*" in given or "?" in given):
            return []
        pattern = re.compile(re.escape(given).replace(r"\*", ".*").replace(r"\?", "."))
        others = (*own, *self.given.targets)
        found = [name for name in self.names if pattern.fullmatch(name) and name not in others]
        if not found:
            raise DataError(
                f"{self.name}: no column is called as in {given!r} ({', '.join(self.names[:5])})"
            )
        return found


def _is_yes_no(cells: Iterable[Any]) -> bool:
    found = {truth(cell) for cell in cells}
    return {0.0, 1.0} <= found and None not in found
