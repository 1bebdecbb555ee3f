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
from seqkit.data.notes import listed
from seqkit.data.splits import SPLIT_NAMES, SPLIT_WORDS
from seqkit.data.tables.cells import (
    number,
    short,
    truth,
)  # fmt: skip
from seqkit.data.tables.columns import Cells, column_of, settled, words_for_missing
from seqkit.data.tables.row_numbers import (
    OF_IDS,
    grows,
    in_blocks,
    is_measured,
    is_ranked,
    numbers_rows,
)
from seqkit.data.tables.rows import Rows
from seqkit.data.tables.schema import (
    CELLS,
    Column,
    Given,
    Schema,
    no_column,
    objective_option,
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

IDENTIFIES = ("number", "category", "text")
"""Kinds of columns that may number the rows."""

ONE_COLUMN = "the recipe reads one column"
"""Why the others are not used."""

OTHER: dict[TargetKind, TargetKind] = {"classes": "numbers", "numbers": "classes"}
"""Meanings that few whole numbers may have, too."""

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
        self._leave_out_ids()
        if split is None:
            self._offer_splits()
        for column in settled(self.columns.values(), self.cells):
            self.columns[column.name] = column
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
            self._change(name, role="target", why=why, flag="", is_given=bool(given.targets))
        target_kind = given.target_kind or self._target_kind()
        self._leave_out_growing(target_kind)
        self._tell_target(target_kind)
        self._take_input(target_kind)
        columns = [
            replace(column, flag=column.flag or self._flag(column, target_kind))
            for column in self.columns.values()
        ]
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

    def _leave_out(self, column: Column, why: str, way: str = "") -> None:
        way = way or option("columns", {column.name: column.kind})
        self._change(column.name, kind="unused", role="unused", why=why, flag=way)

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

    def _guessed(self, *kinds: str) -> list[Column]:
        """Inputs of these kinds of which the user has said nothing."""
        said = (*self.given.targets, *self.named, *self.given.kinds)
        inputs = self._of_role("input")
        return [one for one in inputs if one.kind in kinds and one.name not in said]

    def _leave_out_ids(self) -> None:
        """Leave out columns that number the rows; equal steps before one measured number alone are its argument."""
        inputs = self._of_role("input")
        found = [
            column.name
            for column in inputs
            if not column.is_given
            and column.name not in self.given.targets
            and column.kind in IDENTIFIES
            and numbers_rows(column.name, self.cells[column.name])
        ]
        others = [column.kind for column in inputs if column.name not in found]
        for name in found:
            if others != ["number"] or OF_IDS.fullmatch(name.strip()):
                self._leave_out(self.columns[name], "it numbers the rows")

    def _offer_splits(self) -> None:
        """Leave out columns that name the split of each row, with the option that follows them."""
        for column in self._guessed("category"):
            cells = self.cells[column.name]
            splits = {SPLIT_NAMES.get(str(cell).strip().lower()) for cell in cells.counts}
            if {"train", "test"} <= splits <= {*SPLIT_WORDS} and not cells.has_gaps:
                self._leave_out(column, "it names splits", option("split", column.name))

    def _leave_out_growing(self, target_kind: TargetKind) -> None:
        """Leave out columns that grow from row to row of a file sorted by its target, where other inputs are left.

        A number may grow with what is measured or with time, so then codes alone are left out.
        """
        by = [one.name for one in self._of_role("target") if self._is_sorted_by(one, target_kind)]
        found = []
        for one in self._guessed(*IDENTIFIES, "date") if by else ():
            cells = self.cells[one.name]
            is_code = target_kind != "numbers" or not is_measured(one, cells)
            if is_code and grows(one, cells):
                found.append(one)
        if len(found) < len(self._of_role("input")):
            for one in found:
                self._leave_out(
                    one, f"it grows or falls along the file, which is sorted by {by[0]}"
                )

    def _is_sorted_by(self, target: Column, target_kind: TargetKind) -> bool:
        cells = self.cells[target.name].filled
        if target_kind == "numbers":
            values = [number(cell, target.form) for cell in cells]
            return is_ranked([value for value in values if value is not None])
        return target_kind in ("classes", "labels") and in_blocks(cells)

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
            targets = [name for name in free if self._is_yes_no(self.columns[name])]
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
        """Kind of the targets, by their cells. Raises DataError where they are no targets, or of several kinds."""
        targets = self._of_role("target")
        if not targets:
            return "none"
        if len(targets) > 1:
            if all(map(self._is_yes_no, targets)):
                return "labels"
            if all(column.kind == "number" for column in targets):
                return "numbers"
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
        return self._kind_as_target(target)

    def _kind_as_target(self, target: Column) -> TargetKind:
        """Kind of one target: words and few whole numbers under a name of classes are classes, numbers measured."""
        if target.kind in ("text", "smiles"):
            return "text"
        num = self._num_wholes(target)
        most = FEW_VALUES if target.name.lower() in CLASS_NAMES else 2
        if num is None or 2 <= num <= most:
            return "classes"
        return "numbers"

    def _num_wholes(self, column: Column) -> int | None:
        """How many whole numbers come again in a column; 0: most differ, or some have decimals; None: it has words."""
        counts = self.cells[column.name].counts
        values = {number(cell, column.form) for cell in counts}
        if column.kind == "category" or (column.kind != "number" and None in values):
            return None
        found = [x for x in values if x is not None and not math.isnan(x)]
        if all(x.is_integer() for x in found) and 2 * len(found) <= counts.total():
            return len(found)
        return 0

    def _is_yes_no(self, column: Column) -> bool:
        found = {truth(cell) for cell in self.cells[column.name].counts}
        return {0.0, 1.0} <= found and None not in found

    def _tell_target(self, target_kind: TargetKind) -> None:
        """Say where cells are of another kind than is learned, and which columns hold yes and no as the target does.

        These are not used beside texts, molecules or files alone: there they are further targets, as assays are.
        """
        targets = self._of_role("target")
        inputs = self._of_role("input")
        is_open = any(not one.is_given and one.name not in self.steps for one in inputs)
        is_of_cells = all(one.kind in OF_CELLS for one in targets)
        if target_kind not in OTHER or not is_open or not is_of_cells:
            return
        flag = ""
        whys = [one.why for one in targets if one.why]
        own = self._target_kind()
        if own != target_kind:
            whys.append(f"its cells are {own}")
            flag = objective_option(own)
        peers = []
        if len(targets) == 1 and self._is_yes_no(targets[0]):
            free = [one for one in inputs if not one.is_given and one.name not in self.named]
            peers = [one for one in free if self._is_yes_no(one)]
        if peers:
            use = "are inputs"
            others = {one.kind for one in inputs if one not in peers}
            if others and (self.reads is not None or not others & {*OF_CELLS}):
                use = "are not used"
                for one in peers:
                    self._leave_out(one, "yes or no, as the target")
            whys.append(f"{listed([one.name for one in peers], 3)} hold yes and no, too, and {use}")
            whys.append(f"to learn all, without --data.target: {objective_option('labels')}")
        for one in targets:
            self._change(one.name, why="; ".join(whys), flag=flag)

    # ── how to change it ─────────────────────────────────────────────────────────────────────────────────────────────

    def _flag(self, column: Column, target_kind: TargetKind) -> str:
        """The option that changes what a column is, which can be taken as it stands; empty: there is none."""
        name = column.name
        if column.role == "target":
            return self._flag_of_target(column, target_kind)
        if column.role == "unused":
            return option("input", name) if column.kind == self.reads else ""
        instead = KINDS[column.kind].instead
        is_one_word = isinstance(self.cells[name].first, str | float | int)
        if self.reads == "" or not is_one_word or target_kind not in OTHER:
            instead = "unused"
        if instead == "unused" and len(self._of_role("input")) < 2:
            return ""
        return option("columns", {name: instead})

    def _flag_of_target(self, target: Column, target_kind: TargetKind) -> str:
        """The option by which few whole numbers are learned as the other kind, or another column as what it is."""
        if 2 < (self._num_wholes(target) or 0) <= FEW_VALUES and target_kind in OTHER:
            return objective_option(OTHER[target_kind])
        free = [one for one in self._of_role("unused") if one.why == ONE_COLUMN]
        for column in reversed(free if self.reads else self._of_role("input")):
            own = column.kind in OF_CELLS and self._kind_as_target(column)
            if own == target_kind:
                return option("target", column.name)
            if own and self.reads is None and target_kind in OTHER:
                return f"{option('target', column.name)} {objective_option(own)}"
        return ""

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
                self._change(column.name, role="unused", why=ONE_COLUMN)
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
