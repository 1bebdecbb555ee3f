"""Tables of mixed columns: what each column holds, and rows as raw examples of several parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from seqkit.data.formats import AUDIO, IMAGE, FileFormat
from seqkit.data.tables.columns import (
    LOOKED_AT,
    Columns,
    Profile,
    TargetKind,
    check_column,
    check_decimals,
    decimal_hint,
    is_blank,
    is_missing,
    is_numbering,
    kind_of,
    number,
    option,
    profile_of,
    settle_target,
)
from seqkit.data.tables.file_cells import content_of, kind_of_content, read_content
from seqkit.data.tables.files import Rows
from seqkit.data.tables.usable_rows import MAX_NUMBER, UsableRows, check_cell, check_file
from seqkit.errors import DataError, attempt, one_line, suggest
from seqkit.raw import Years

MixedKind = Literal["text", "image", "audio", "smiles", "number", "category", "date", "unused"]
"""Content of a column; images and sounds are file names relative to the table's folder, or the files' bytes."""

KINDS: tuple[MixedKind, ...] = get_args(MixedKind)

OF_CELLS = ("number", "category", "date")
"""Kinds of columns that are one part together, whose tokenizer is Cells; every other column is a part."""

FILES: dict[str, FileFormat] = {"image": IMAGE, "audio": AUDIO}
"""Format of the files of each kind."""

CELLS = "cells"
"""Key of the row of numbers and categories in a raw example, and name of its part."""

MIN_ROWS = 10
"""Rows from which on a column of different words or consecutive numbers is taken for identifiers."""

MAX_WORD = 60
"""Mean number of characters up to which repeated texts are categories."""

SEVERAL_WORDS = 3
"""Mean number of words from which on repeated texts are texts: as a category, a note that training lacks is lost."""

DATE_FORMS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")
"""How dates may be written beside ISO 8601, where one of these forms alone fits all of a column."""

DATES = "2022-02-21, 21.02.2022, and 21/02/2022 where days above 12 tell day and month apart"
"""The dates that are read, for messages."""


def settle_mixed(
    rows: Rows,
    given: Mapping[str, str],
    *,
    target: str | Sequence[str] | None = None,
    target_kind: TargetKind | None = None,
    split: str | None = None,
    group: str | None = None,
    has_cells: bool = True,
    has_text: bool = True,
) -> tuple[dict[str, str], Columns, str]:
    """Kind of each input column, target, and a line with all guesses; it is empty where nothing was guessed.

    given: kinds that are known. split: column that is no input. group: column that is an input if it is given, or holds
    images, sounds, molecules or long texts; else it is none, such as the name of a patient. has_cells: False: nothing
    reads categories, so short texts that are repeated are texts. has_text: False: nothing reads texts, so texts that
    are repeated are categories.
    Raises DataError where a column does not exist, holds numbers and words, or no column is left as input.
    """
    if len(rows) == 0:
        raise DataError(f"{rows.name} has a header ({', '.join(rows.names)}) and no rows; give it rows")
    targets = [target] if isinstance(target, str) else list(target or ())
    named = [*(("target", name) for name in targets), *(("columns", name) for name in given)]
    for flag, column in [*named, ("split", split), ("group", group)]:
        if column is not None:
            check_column(rows, column, f"--data.{flag}")
    taken = {split, group} - {None}
    if group is not None and group != split and (given.get(group) or _may_be_part(rows, group)):
        taken.remove(group)
    if both := [name for name in targets if given.get(name, "unused") != "unused"]:
        raise DataError(f"{rows.name}: {both[0]!r} is a target, and an input by --data.columns; leave it out of one")
    media = {name: kind for name in rows.names if (kind := given.get(name) or _kind_of_bytes(rows, name))}
    guessed_target = not targets and target_kind != "none"
    looked_at = [name for name in rows.names if name in targets or (name not in media and name not in taken)]
    profiles = {name: profile_of(rows, name) for name in looked_at}
    is_input = {name for name in profiles if guessed_target and kind_of(rows, [name]) != "text"}
    is_input.add(group or "")
    free = {name: x for name, x in profiles.items() if x.filled and not is_numbering(name) and name not in is_input}
    targets, target_kind = settle_target(rows, targets, target_kind, free, profiles)
    kinds: dict[str, str] = {}
    guesses: dict[str, list[str]] = {}
    for name in rows.names:
        if name in targets or name in taken:
            continue
        kinds[name], why = (media[name], "") if name in media else _guess(rows, name, has_cells, has_text)
        if name not in given:
            guesses.setdefault(kinds[name], []).append(f"{name!r}{why and f' ({why})'}")
    if not any(kind != "unused" for kind in kinds.values()):
        raise DataError(f"{rows.name}: no column is left as input ({', '.join(rows.names)}); give --data.columns")
    if CELLS in kinds and kinds[CELLS] not in (*OF_CELLS, "unused"):
        raise DataError(f"{rows.name}: a column of {kinds[CELLS]} cannot be called {CELLS!r}; rename it")
    said = [f"target: {' and '.join(map(repr, targets))} ({target_kind})"] if guessed_target else []
    said += [f"{kind}: {', '.join(guesses[kind])}" for kind in KINDS if kind in guesses]
    said += ["to choose: --data.target NAME --data.columns '{NAME: KIND}'"] if said else []
    line = f"{rows.name}: {'; '.join(said)}" if said else ""
    return kinds, Columns("filled cell", targets, "row", target_kind), line


def part_columns(table: UsableRows) -> dict[str, str]:
    """Kinds of the columns of a mixed table that are a part each, but for short texts that come again."""
    kinds = table.inputs.kinds if isinstance(table.inputs, MixedCells) else {}
    parts = {name: kind for name, kind in kinds.items() if kind not in OF_CELLS}
    texts = [name for name, kind in parts.items() if kind == "text"]
    repeated = {name for name in texts if _come_again(profile_of(table.rows, name))}
    return {name: kind for name, kind in parts.items() if name not in repeated}


def check_kind(column: str, kind: Any) -> None:
    """Raise ValueError for a word that is no kind of column."""
    if kind not in KINDS:
        raise ValueError(f"columns says that {column!r} is {kind!r}; {suggest(str(kind), KINDS)}")


def _may_be_part(rows: Rows, column: str) -> bool:
    """Whether a column holds images, sounds, molecules or long texts, rather than names of groups."""
    if _kind_of_bytes(rows, column) or kind_of(rows, [column]) in ("image", "audio", "smiles"):
        return True
    profile = profile_of(rows, column)
    return profile.numbers < 1 and profile.length > MAX_WORD


def _kind_of_bytes(rows: Rows, column: str) -> str:
    """Kind of a column that holds the bytes of files; empty: it does not."""
    first = next((cell for cell in islice(rows.column(column), LOOKED_AT) if not is_missing(cell)), None)
    content = content_of(first)
    return "" if content is None else kind_of_content(content)


def _guess(rows: Rows, column: str, has_cells: bool, has_text: bool) -> tuple[str, str]:
    """Kind of a column by its name and values, and the reason where that is not plain.

    Raises DataError for a column of numbers and words.
    """
    cells = [cell for cell in islice(rows.column(column), LOOKED_AT) if not is_missing(cell)]
    profile = profile_of(rows, column)
    known = kind_of(rows, [column]) if cells else "text"
    if not cells:
        return "unused", "all its cells are empty"
    if any(isinstance(cell, list | dict) for cell in cells):
        return "unused", "it holds lists"
    if profile.distinct == 1:
        return "unused", f"every filled cell is {_short(cells[0])}"
    if known != "text":
        return known, ""
    if is_numbering(column):
        return "unused", "its name says that it numbers the rows"
    if profile.numbers == 1:
        numbers = [x for cell in cells if (x := number(cell, rows.decimal)) is not None and math.isfinite(x)]
        whole = len(numbers) >= MIN_ROWS and all(x.is_integer() for x in numbers)
        counts = whole and len(set(numbers)) == len(numbers) == max(numbers) - min(numbers) + 1
        return ("unused", "it counts the rows") if counts else ("number", "")
    check_decimals(rows, column, option("columns", {column: "category"}))
    if profile.numbers > 0.5:
        every = enumerate(rows.column(column))
        place, cell = next(
            (i, cell) for i, cell in every if not is_missing(cell) and number(cell, rows.decimal) is None
        )
        raise DataError(
            f"{rows.place(place)}: {column} is {_short(cell)}, and most of its cells are numbers; correct it, or say "
            f"what they are: {option('columns', {column: 'category'})} (or unused)"
        )
    form = date_form(cells)
    if all(_years(cell, form) is not None for cell in cells):
        return "date", ""
    if all(_years(cell, "%d/%m/%Y") is not None for cell in cells):
        return "unused", f"{_short(cells[0])} may be day/month or month/day; write dates as 2022-02-21"
    if _come_again(profile) and (profile.words < SEVERAL_WORDS or not has_text):
        return ("category", "") if has_cells else ("text", "the recipe reads no categories")
    is_word = all(isinstance(cell, str) and len(cell.split()) == 1 and len(cell) <= MAX_WORD for cell in cells)
    if is_word and profile.distinct == len(cells) >= MIN_ROWS:
        return "unused", f"each of its {len(cells):,} words is another, as names of rows are"
    return "text", ""


def _come_again(profile: Profile) -> bool:
    """Whether a column holds short texts that are repeated."""
    return profile.repeats and profile.length <= MAX_WORD


def date_form(cells: Iterable[Any]) -> str | None:
    """The one of `DATE_FORMS` that fits all of the first cells that are not as ISO 8601; None: none, or several do."""
    others = [cell for cell in cells if isinstance(cell, str) and not is_missing(cell) and _years(cell) is None]
    fitting = [form for form in DATE_FORMS if others and all(_years(cell, form) is not None for cell in others)]
    return fitting[0] if len(fitting) == 1 else None


def _years(cell: Any, form: str | None = None) -> Years | None:
    """A date, as ISO 8601 or `form` writes it, in years since 1970; None: it is something else."""
    if isinstance(cell, str) and not (text := cell.strip()).isdigit():
        with suppress(ValueError):
            cell = datetime.fromisoformat(text)
        if form is not None and not isinstance(cell, date):
            day, _, clock = text.partition(" ")
            with suppress(ValueError):
                cell = datetime.combine(datetime.strptime(day, form), time.fromisoformat(clock or "00:00"))
    return Years.of(cell) if isinstance(cell, date) else None


class MixedCells(Sequence[dict[str, Any]]):
    """Filled cells of each row by column, and the raw examples of several parts that they are.

    kinds: kind of each input column; one that the table lacks has no cells. folder: folder of the files that cells
    name. tokenizer: the run's `Join`, by whose parts files are read and examples tried; None: as images of three
    channels. skip_bad: True: a cell that is not what its column holds, or names a file that cannot be read, counts as
    empty; each is read once for that. are_new: True: the rows are to be predicted, so errors name no option of
    training. faults: the reason for each such cell.
    All dates of a column are read in one form, which its first cells tell (`date_form`).
    """

    def __init__(
        self,
        rows: Rows,
        kinds: Mapping[str, str],
        folder: Path,
        *,
        tokenizer: Any = None,
        skip_bad: bool = False,
        are_new: bool = False,
    ):
        self.rows, self.folder, self.are_new = rows, folder, are_new
        self.kinds = {name: kind for name, kind in kinds.items() if kind != "unused" and name in rows.names}
        self._columns = {name: rows.column(name) for name in self.kinds}
        dates = [name for name, kind in self.kinds.items() if kind == "date"]
        self._forms = {name: date_form(islice(self._columns[name], LOOKED_AT)) for name in dates}
        reads: Mapping[str, str] = getattr(tokenizer, "reads", {})
        parts: Mapping[str, Any] = getattr(tokenizer, "parts", {})
        self._tokenizers = {reads.get(part, part): one for part, one in parts.items()}
        self._bad: set[tuple[int, str]] = set()
        self.faults: list[str] = []
        for i, cells in enumerate(self) if skip_bad else ():
            for name, cell in cells.items():
                try:
                    self._try(name, cell)
                except (ValueError, OSError) as error:
                    self._bad.add((i, name))
                    self.faults.append(f"{rows.place(i)}: {error}")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: Any) -> Any:
        return self._filled(row, [column[row] for column in self._columns.values()])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not self._columns:
            return iter([{}] * len(self))
        return (self._filled(row, cells) for row, cells in enumerate(zip(*self._columns.values())))

    def cell(self, row: int, name: str) -> Any:
        """The cell of a row in one column; None where it is empty, or the table lacks the column."""
        column = self._columns.get(name)
        found = None if column is None else column[row]
        is_filled = (
            column is not None
            and not _is_empty(self.kinds[name], found, self.rows.decimal)
            and (row, name) not in self._bad
        )
        return found if is_filled else None

    def is_absent(self, cells: Mapping[str, Any]) -> bool:
        """Whether a row has no input: no cell is filled."""
        return not cells

    def check(self, cells: Mapping[str, Any]) -> None:
        """Raise ValueError where a cell is not what its column holds, or names no file."""
        for name, cell in cells.items():
            kind = self.kinds[name]
            if kind in OF_CELLS:
                self._cell(name, cell)
            elif kind not in FILES or isinstance(cell, str):
                check_cell(name, cell, are_words=False)
                if kind in FILES:
                    advice = "leave the cell empty" if self.are_new else "let it count as empty: --data.skip_bad true"
                    check_file(self.folder, cell, f"{advice}; the column is {name}")
            elif content_of(cell) is None:
                raise ValueError(f"{name} is {_short(cell)}, which is no file's name or content; correct it")

    def raw(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """The raw example of a row: a part for each column of texts, files or molecules, and one of all other cells.

        Raises DataError where a file cannot be read.
        """
        parts = {name: self._part(name, cell) for name, cell in cells.items() if self.kinds[name] not in OF_CELLS}
        row = {name: self._cell(name, cell) for name, cell in cells.items() if self.kinds[name] in OF_CELLS}
        return parts | ({CELLS: row} if row else {})

    def _filled(self, row: int, cells: Sequence[Any]) -> dict[str, Any]:
        return {
            name: cell
            for (name, kind), cell in zip(self.kinds.items(), cells)
            if not _is_empty(kind, cell, self.rows.decimal) and (row, name) not in self._bad
        }

    def _try(self, name: str, cell: Any) -> None:
        """Read a cell and, where its tokenizer need not be fitted first, encode it. Raises ValueError or OSError."""
        self.check({name: cell})
        tokenizer = self._tokenizers.get(name)
        raw = self.raw({name: cell})
        if tokenizer is not None and not hasattr(tokenizer, "fit"):
            attempt(tokenizer, "encode", raw[name])

    def _part(self, name: str, cell: Any) -> Any:
        kind = self.kinds[name]
        if kind not in FILES:
            return cell.strip() if kind == "smiles" else cell
        tokenizer, content = self._tokenizers.get(name), content_of(cell)
        if content is None:
            return FILES[kind].read_for(self.folder / cell, tokenizer)
        return read_content(content, lambda file: FILES[kind].read_for(file, tokenizer), name)

    def _cell(self, name: str, cell: Any) -> float | str:
        """A number, a date as one, or a category. Raises ValueError where it is none."""
        kind = self.kinds[name]
        if kind == "category":
            if isinstance(cell, str | bool):
                return str(cell).lower() if isinstance(cell, bool) else cell.strip()
            if isinstance(cell, int | float):
                return f"{cell:.15g}"
            raise ValueError(f"{name} is {_short(cell)}, which is no category; {self._otherwise(name)}")
        found = number(cell, self.rows.decimal) if kind == "number" else _years(cell, self._forms[name])
        if found is None or abs(found) > MAX_NUMBER:
            known = f" that is read ({DATES})" if kind == "date" else ""
            what = f"beyond {MAX_NUMBER:g}" if found is not None else f"no {kind}{known}"
            hint = decimal_hint(cell, self.rows.decimal) if kind == "number" and not self.are_new else ""
            raise ValueError(f"{name} is {_short(cell)}, which is {what}; {hint}{self._otherwise(name)}")
        return found

    def _otherwise(self, name: str) -> str:
        if self.are_new:
            return "correct it, or leave the cell empty"
        other = option("columns", {name: "category"})
        return f"correct it, let it count as empty (--data.skip_bad true), or say what the column is: {other}"


def _is_empty(kind: str, cell: Any, decimal: str) -> bool:
    if kind == "text":
        return is_blank(cell)
    found = number(cell, decimal) if kind == "number" else None
    return is_missing(cell) or (found is not None and math.isnan(found))


def _short(value: Any) -> str:
    text = repr(value)
    return one_line(text if len(text) <= 60 else f"{text[:57]}…")
