"""The schema of a table, inferred from its cells; each rule is one sentence.

A table with more than one usable column is learnt from all its columns; a lone text column takes the text recipe; the
target is the named column, else one with a well-known name, else the last of numbers or classes.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from seqkit.data.formats import IMAGE, OF_CLASSES
from seqkit.data.kinds import FILES, IMAGE_NAMES, KINDS, OF_CELLS, TargetKind
from seqkit.data.tables.cells import (
    AMBIGUOUS,
    CODE,
    COMPACT_DATE,
    EXPONENT,
    SOUNDS,
    content_of,
    conversation,
    is_blank,
    is_missing,
    is_molecule,
    is_series,
    is_word,
    number,
    numbers_of,
    short,
    truth,
    years,
)  # fmt: skip
from seqkit.data.tables.rows import Rows
from seqkit.data.tables.schema import (
    CELLS,
    Column,
    Given,
    Role,
    Schema,
    no_column,
    option,
    series_of,
)
from seqkit.data.walk import exists_as, suffix_of
from seqkit.errors import DataError

LOOKED_AT = 2_000
"""Rows, drawn over the whole table, by which the kind of a column is inferred."""

MAX_DIGITS = 15
"""Digits of whole numbers that a float64 holds; longer ones are codes."""

MAX_WORD = 60
"""Mean number of characters up to which texts that come again are categories."""

FEW_VALUES = 20
"""Different whole numbers up to which a target that is called as classes are holds classes."""

MIN_ROWS = 10
"""Rows from which on whole numbers of equal steps are taken for numbers of the rows."""

CLASS_NAMES = ("target", "label", "class", "y", "targets", "labels", "category", "sentiment")
"""Names of targets under which few whole numbers are classes."""

TARGET_NAMES = (
    *CLASS_NAMES, "output", "outcome", "result", "answer", "translation", "tgt", "tags", "ner_tags", "pos_tags",
    "value", "score",
)  # fmt: skip
"""Names of columns that are the target where none is named, the likeliest first."""

SMILES_NAMES = re.compile(
    r"smiles|\b(smi|mol|molecule|drug|ligand|compound|structure)\b", re.IGNORECASE
)

OF_IDS = re.compile(
    r"(?i:(.*[_ .-])?(id|uuid|guid)|idx|index|row|row ?names?|key|unnamed: \d+)|.*[a-z](Id|ID)"
)
"""Names of columns that number rows, or things; where most cells differ, they number the rows and are not used."""

OF_GROUPS = re.compile(
    r"(?i:(.*[_ .-])?(id|patient|subject|person|participant|donor|animal|speaker|author|user|customer|client|member"
    r"|household|family|group|session|device|machine|sensor|station|site|school|hospital|batch|plate)s?)"
    r"|.*[a-z](Id|ID)"
)
"""Names of columns that say which rows are of one thing, where their cells come again."""

IDENTIFIES = ("number", "category", "text")
"""Kinds of columns that may number the rows."""

OF_TIME = ("year", "month", "day", "week", "hour", "minute", "time", "date", "t", "step")
"""Names of columns that count something else than rows."""

OF_YEARS = ("year", "date", "time", "timestamp")
"""Names of columns that say when a row is from."""

DAYS = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y",
    "%d-%m-%Y", "%m-%d-%Y", "%a, %d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d %Y", "%b %d, %Y", "%B %d, %Y", "%d %b %Y",
    "%d %B %Y",
)  # fmt: skip
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S %z", " %I:%M %p", " %I:%M:%S %p")
MONTHS = ("%Y-%m", "%m/%Y", "%b-%y", "%b-%Y", "%b %Y", "%B %Y")
DATE_FORMS = ("", *MONTHS, *(day + clock for day, clock in product(DAYS, CLOCKS)))
"""How dates may be written; "" is ISO 8601."""

_DATE = re.compile(r"(?=.{6,40}$)(?:[^\d]{0,10}\d+[^\d].*\d.*|[^\W\d]{3,9}[-\s]\d{2,4})")
"""A text that may be a date: two groups of digits or more, or a month and a year; saves trying all forms on a text."""

_COMPACT = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")
"""A date without marks, such as 20200131."""

_UNIT = re.compile(
    r"((?:[A-Z]{3}\s|[A-Z]{0,3}[^\w\s.,'()+-]\s?)?)[-+\u2212]?\(?\d(?:[\d.,'\s]*\d)?\)?-?((?!th\b)(?:\s?[^\d\s.,'()+:/-][^\d,:]{0,9})?)"
)
"""A number and the unit before or behind it."""

_WHOLE = re.compile(r"(\d{1,18})(\.0*)?")

_GROUPS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+")
"""A whole number whose digits points group."""


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


# ── cells ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Cells:
    """The cells of a column.

    all: how often each stands in the whole table; empty where cells may be lists or files. After `fill`, counts: the
    same of filled ones; drawn: filled ones of at most `LOOKED_AT` rows, drawn over the whole table; marked: texts in
    the table with a point or a comma.
    """

    def __init__(self, cells: Sequence[Any]):
        self._cells = cells
        self.first = next((cell for cell in cells if not is_blank(cell)), None)
        self.all: Counter[Any] = Counter()
        if not isinstance(self.first, list | dict | bytes):
            with suppress(TypeError):  # lists are not counted
                self.all = Counter(cells)

    def fill(self, missing: Sequence[str]) -> None:
        """Leave out empty cells. missing: words that say so, too."""
        self.counts = Counter(
            {cell: count for cell, count in self.all.items() if not is_missing(cell, missing)}
        )
        if self.all:
            self.drawn = _drawn([cell for cell in self._cells if cell in self.counts])
        else:
            self.drawn = [cell for cell in _drawn(self._cells) if not is_missing(cell, missing)]
            if not self.drawn and self.first is not None:
                self.drawn = [self.first]
        self.has_gaps = self.counts.total() < len(self._cells)
        self.marked = [
            cell for cell in self.counts if isinstance(cell, str) and ("." in cell or "," in cell)
        ]

    @property
    def mostly_differ(self) -> bool:
        """Whether most cells of the table stand there once, as the numbers of its rows do."""
        return 2 * len(self.counts) > self.counts.total()


def _drawn(cells: Sequence[Any]) -> list[Any]:
    if len(cells) <= LOOKED_AT:
        return [*cells]
    return [cells[i] for i in sorted(random.Random(0).sample(range(len(cells)), LOOKED_AT))]  # noqa: S311


def _missing(columns: Iterable[_Cells]) -> list[str]:
    """The words of `AMBIGUOUS` that stand in a column of numbers."""
    found: dict[str, None] = {}
    for column in columns:
        texts = [cell.strip().lower() for cell in column.all if isinstance(cell, str)]
        words = [word for word in AMBIGUOUS if word in texts]
        if not words:
            continue
        column.fill(AMBIGUOUS)
        if column.drawn and any(_fit(column.drawn, form) for form in _forms_by(column.drawn)):
            found |= dict.fromkeys(words)
    return list(found)


def _fit(cells: Iterable[Any], form: str) -> bool:
    return all(number(cell, form) is not None for cell in cells)


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _column(name: str, cells: _Cells, given: Given, folder: Path | None) -> Column:
    """A column, by what is given, else by its name and cells. A form says that it holds dates or numbers."""
    form = (given.forms or {}).get(name, "")
    kind = given.kinds.get(name)
    if kind is None and form:
        kind = "date" if "%" in form else "number"
    if kind is None:
        return _guessed(name, cells, folder)
    role: Role = "unused" if kind == "unused" else "input"
    if kind == "date" and not form:
        forms = _date_forms(_dates_of(cells.drawn), cells.counts)
        if len(forms) > 1:
            raise DataError(f"{name}: {_two_forms(name, cells.drawn)}")
        form = "".join(forms)
    elif kind == "number" and not form:
        form = _number_form(cells) or ""
    return Column(name, kind, role, form, is_given=True)


def _guessed(name: str, column: _Cells, folder: Path | None) -> Column:
    """A column by its name and filled cells; the first rule that holds is taken."""

    def unused(why: str) -> Column:
        return Column(name, "unused", "unused", why=why)

    cells = column.drawn
    if not cells:
        return unused("all its cells are empty")
    if (content := content_of(cells[0])) is not None:
        return Column(name, "audio" if content.startswith(SOUNDS) else "image")
    if all(conversation(cell) is not None for cell in cells[:100]):
        return Column(name, "text")
    if any(isinstance(cell, list | dict) for cell in cells):
        if all(map(is_series, cells)):
            return Column(name, "series")
        if any(None in cell for cell in cells if isinstance(cell, list)):
            return unused("some of its lists hold null; fill these in, or leave the rows out")
        is_words = all(isinstance(cell, list) and all(map(is_word, cell)) for cell in cells)
        if is_words:
            return Column(name, "words")
        return unused("it holds lists or objects")
    if isinstance(cells[0], date):
        return Column(name, "date")
    texts = [cell for cell in cells if isinstance(cell, str)]
    is_texts = len(texts) == len(cells)
    if is_texts and (kind := _kind_of_names(name, texts, folder)) is not None:
        return Column(name, kind)
    if re.fullmatch(r"column \d+", name):  # it is called by its place
        return unused("it has no name")
    if len(column.counts) == 1 and not column.has_gaps:  # beside gaps, it says which rows have it
        return unused(f"every cell is {short(cells[0])}")
    if is_texts and all(numbers_of(text) is not None for text in texts):
        return Column(name, "series")
    if (form := _number_form(column)) is not None:
        if _date_forms(cells) == [COMPACT_DATE]:
            return Column(name, "date", form=COMPACT_DATE)
        return Column(name, "number", form=form)
    forms = _date_forms(cells, column.counts) if is_texts else []
    if len(forms) == 1:
        return Column(name, "date", form=forms[0])
    if forms:
        return unused(_two_forms(name, texts))
    if is_texts and (other := _date_of_another_form(texts)) is not None:
        return unused(
            f"it holds dates of several forms, {short(texts[0])} and {short(other)}; write all in one"
        )
    distinct = len(set(cells))
    comes_again = distinct <= max(2, len(cells) // 2) and distinct < len(cells)
    if comes_again and sum(map(len, texts)) <= MAX_WORD * len(cells):
        return Column(name, "category", why=_odd_cells(cells))
    if is_texts:
        return Column(name, "text", why=_odd_cells(cells))
    other = next(cell for cell in cells if not isinstance(cell, str))
    return unused(f"it holds {short(other)}, which is no text")


def _two_forms(name: str, cells: Sequence[Any]) -> str:
    return f"{short(cells[0])} may be day/month or month/day; to say which: {option('forms', {name: '%d/%m/%Y'})}"


def _odd_cells(cells: Sequence[Any]) -> str:
    """Says which few cells keep a column from holding numbers or dates; empty: more than a tenth do, or none does."""
    what = "numbers"
    odd = [cell for cell in cells if not _fits_number(cell, "") and not _fits_number(cell, ",")]
    if 10 * len(odd) > len(cells):
        what = "dates"
        dates = set(_dates_of(cells))
        odd = [cell for cell in cells if cell not in dates]
    if not odd or len(odd) == len(cells):
        return ""
    return (
        f"{what} but for {short(odd[0])} and others like it: {len(odd):,} of {len(cells):,} cells"
    )


def _dates_of(cells: Sequence[Any]) -> list[Any]:
    """The cells that the commonest form of dates fits; all, or none, where that is fewer than nine tenths."""
    if _date_forms(cells):
        return list(cells)
    some = [cell for cell in cells[:100] if isinstance(cell, str) and _DATE.fullmatch(cell.strip())]
    fits = Counter(form for cell in some for form in DATE_FORMS if years(cell, form) is not None)
    if not fits:
        return []
    best = max(fits, key=lambda form: fits[form])
    found = [cell for cell in cells if years(cell, best) is not None]
    return found if 10 * len(found) >= 9 * len(cells) else []


def _fits_number(cell: Any, form: str) -> bool:
    return is_missing(cell, AMBIGUOUS) or number(cell, form) is not None


def _kind_of_names(name: str, texts: Sequence[str], folder: Path | None) -> str | None:
    """The kind of a column of molecules, or of names of files; None: it is none of these."""
    first = texts[:100]
    suffixes = {suffix_of(text) for text in first}
    for known in (IMAGE, *OF_CLASSES):
        if suffixes <= set(known.suffixes):
            return known.kind
    if folder is not None and 2 * sum(
        exists_as(folder / text, Path.is_file) for text in first
    ) > len(first):
        return "file"
    if name.lower().strip() in IMAGE_NAMES and all(map(is_word, first)):
        return "image"  # names without a suffix, which are refused where they are read
    if SMILES_NAMES.search(name) and 2 * sum(map(is_molecule, texts[:20])) > len(texts[:20]):
        return "smiles"
    return None


def _numbers_rows(name: str, cells: _Cells) -> bool:
    """Whether a column numbers the rows: by its name where most cells differ, else by whole numbers of equal steps.

    Such numbers stand in any order, each once, or each twice as in joined files, under no name of a time.
    """
    if not cells.mostly_differ and {*cells.counts.values()} != {2}:
        return False
    is_id = OF_IDS.fullmatch(name.strip()) is not None
    wholes = [_whole(cell) for cell in cells.counts]
    if None in wholes:
        return is_id and not any(isinstance(cell, float) for cell in cells.drawn)
    if is_id or cells.counts.total() < MIN_ROWS or name.lower().strip() in OF_TIME:
        return is_id
    steps = {b - a for a, b in pairwise(sorted(wholes))}  # type: ignore[type-var, operator]
    return len(steps) == 1 and len({*cells.counts.values()}) == 1


def _whole(cell: Any) -> int | None:
    """A cell as a whole number, zeros before it or behind a point included; None: it is something else."""
    if isinstance(cell, str):
        match = _WHOLE.fullmatch(cell.strip())
        return match and int(match[1])
    if isinstance(cell, int | float) and not isinstance(cell, bool) and cell % 1 == 0:
        return int(cell)
    return None


def _number_form(cells: _Cells) -> str | None:
    """Empty for numbers, a comma for decimal commas, or with a unit; None: some cells are none, or are codes."""
    texts = [str(cell).strip() for cell in cells.drawn]
    is_code = not any("." in text for text in texts) and any(map(EXPONENT.fullmatch, texts))
    if is_code or any(CODE.fullmatch(text) or _is_long(text) for text in texts):
        return None
    forms = [form for form in _forms_by(cells.drawn) if _fit(cells.drawn, form)]
    if len(forms) < 2:
        return forms[0] if forms else None
    points = [cell for cell in cells.marked if "." in cell]
    num_points = sum(cells.counts[cell] for cell in points)
    if 2 < num_points < cells.counts.total() and all(_GROUPS.fullmatch(x.strip()) for x in points):
        return ","  # 1.200 beside 999 has a thousand
    return next((form for form in forms if _fit(cells.marked, form)), forms[0])


def _is_long(text: str) -> bool:
    return len(text) > MAX_DIGITS and text.isdigit()


def _forms_by(cells: Sequence[Any]) -> list[str]:
    """The forms of numbers that may fit: those of a unit only where it stands in all cells."""
    forms = ["", ","]
    match = None
    if cells and isinstance(cells[0], str):
        match = _UNIT.fullmatch(cells[0].strip())
    if match is None or not (match[1] or match[2]):
        return forms
    before, after = match.groups()
    texts = [str(cell).strip() for cell in cells]
    if all(text.startswith(before) and text.endswith(after) for text in texts):
        forms += [f"{before}#{after}", f"{before}#,#{after}"]
    return forms


def _date_forms(cells: Sequence[Any], others: Iterable[Any] = ()) -> list[str]:
    """The forms of `DATE_FORMS` that fit the cells; of forms that read all of them alike, the first.

    others: cells of the whole table, of which one may settle what is the day.
    """
    if cells and all(_COMPACT.fullmatch(str(cell)) and years(cell, COMPACT_DATE) for cell in cells):
        return [COMPACT_DATE]
    if not cells or not isinstance(cells[0], str) or _DATE.fullmatch(cells[0].strip()) is None:
        return []
    found: dict[tuple[float | None, ...], str] = {}
    for form in DATE_FORMS:
        if years(cells[0], form) is not None and None not in (
            read := tuple(years(cell, form) for cell in cells)
        ):
            found.setdefault(read, form)
    forms = list(found.values())
    if len(forms) > 1:
        fitting = [form for form in forms if all(years(cell, form) is not None for cell in others)]
        return fitting or forms
    return forms


def _date_of_another_form(cells: Sequence[str]) -> str | None:
    """The first cell that no form of the cells before it fits, if every cell is a date; None: there is none."""
    if _DATE.fullmatch(cells[0].strip()) is None:
        return None
    fits = [{form for form in DATE_FORMS if years(cell, form) is not None} for cell in cells]
    if not all(fits):
        return None
    common = set(DATE_FORMS)
    return next((cell for cell, forms in zip(cells, fits) if not (common := common & forms)), None)


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
        self.cells = {name: _Cells(rows.columns[name]) for name in rows.names}

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
            missing = _missing(self.cells.values())
        missing = [word.strip().lower() for word in missing]
        for cells in self.cells.values():
            cells.fill(missing)
        self.columns = {
            name: _column(name, cells, given, folder) for name, cells in self.cells.items()
        }
        for name, column in self.columns.items():
            is_open = not column.is_given and name not in given.targets
            if is_open and column.kind in IDENTIFIES and _numbers_rows(name, self.cells[name]):
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
            if column.is_given or column.form == "," or not _fit(marked, ","):
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
