"""Kind of a column, inferred from its name and cells; each rule is one sentence."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

from seqkit.data.formats import IMAGE, OF_CLASSES
from seqkit.data.kinds import IMAGE_NAMES
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
    years,
)  # fmt: skip
from seqkit.data.tables.schema import (
    Column,
    Given,
    Role,
    option,
)
from seqkit.data.walk import exists_as, suffix_of
from seqkit.errors import DataError

LOOKED_AT = 2_000
"""Rows, drawn over the whole table, by which the kind of a column is inferred."""

MAX_DIGITS = 15
"""Digits of whole numbers that a float64 holds; longer ones are codes."""

MAX_WORD = 60
"""Mean number of characters up to which texts that come again are categories."""

SMILES_NAMES = re.compile(
    r"smiles|\b(smi|mol|molecule|drug|ligand|compound|structure)\b", re.IGNORECASE
)

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

_MEANT = re.compile(r"[a-df-zA-DF-Z:(]|\d\s*-")
"""Marks of a number only as people write it: a unit, a clock's colon, a minus behind it or parentheses."""

_ZONE = re.compile(r"[T ]\d\S*[Z+-]")
"""A time with its distance from UTC, as ISO 8601 has it."""

_SIGN = re.compile(r"[$€£¥₹%]")
"""Signs that a number has beside it, and is read without."""

_GROUPS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+")
"""A whole number whose digits points group."""


# ── cells ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Cells:
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
            self.drawn = _drawn(self.filled)
        else:
            self.drawn = [cell for cell in _drawn(self._cells) if not is_missing(cell, missing)]
            if not self.drawn and self.first is not None:
                self.drawn = [self.first]
        self.has_gaps = self.counts.total() < len(self._cells)
        self.marked = [
            cell for cell in self.counts if isinstance(cell, str) and ("." in cell or "," in cell)
        ]

    @property
    def filled(self) -> list[Any]:
        """Filled cells of the whole table in its order; none where cells may be lists or files."""
        return [cell for cell in self._cells if cell in self.counts] if self.all else []

    @property
    def mostly_differ(self) -> bool:
        """Whether most cells of the table stand there once, as the numbers of its rows do."""
        return 2 * len(self.counts) > self.counts.total()


def _drawn(cells: Sequence[Any]) -> list[Any]:
    if len(cells) <= LOOKED_AT:
        return [*cells]
    return [cells[i] for i in sorted(random.Random(0).sample(range(len(cells)), LOOKED_AT))]  # noqa: S311


def words_for_missing(columns: Iterable[Cells]) -> list[str]:
    """The words of `AMBIGUOUS` that stand in a column of numbers."""
    found: dict[str, None] = {}
    for column in columns:
        texts = [cell.strip().lower() for cell in column.all if isinstance(cell, str)]
        words = [word for word in AMBIGUOUS if word in texts]
        if not words:
            continue
        column.fill(AMBIGUOUS)
        if column.drawn and any(all_fit(column.drawn, form) for form in _forms_by(column.drawn)):
            found |= dict.fromkeys(words)
    return list(found)


def all_fit(cells: Iterable[Any], form: str) -> bool:
    """Whether each cell is a number in this form."""
    return all(number(cell, form) is not None for cell in cells)


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def column_of(name: str, cells: Cells, given: Given, folder: Path | None) -> Column:
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
        form = number_form(cells) or ""
    return Column(name, kind, role, form, is_given=True)


def _guessed(name: str, column: Cells, folder: Path | None) -> Column:
    """A column by its name and filled cells; the first rule that holds is taken."""

    def unused(why: str, flag: str = "") -> Column:
        return Column(name, "unused", "unused", "", why, flag)

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
        return unused("it has no name", option("columns", {name: "category"}))
    if len(column.counts) == 1 and not column.has_gaps:  # beside gaps, it says which rows have it
        return unused(f"every cell is {short(cells[0])}", option("columns", {name: "category"}))
    if is_texts and all(numbers_of(text) is not None for text in texts):
        return Column(name, "series")
    if (form := number_form(column)) is not None:
        if _date_forms(cells) == [COMPACT_DATE]:
            return Column(name, "date", form=COMPACT_DATE)
        return Column(name, "number", form=form, why=_as_read(column, form))
    forms = _date_forms(cells, column.counts) if is_texts else []
    if len(forms) == 1:
        return Column(name, "date", form=forms[0], why=_without_zone(column))
    if forms:
        return unused(_two_forms(name, texts))
    if is_texts and (other := _date_of_another_form(texts)) is not None:
        return unused(
            f"it holds dates of several forms, {short(texts[0])} and {short(other)}; write all in one"
        )
    distinct = len(set(cells))
    comes_again = distinct <= max(2, len(cells) // 2) and distinct < len(cells)
    if comes_again and sum(map(len, texts)) <= MAX_WORD * len(cells):
        return Column(name, "category", "input", "", *_odd_cells(name, column))
    if is_texts:
        return Column(name, "text", "input", "", *_odd_cells(name, column))
    other = next(cell for cell in cells if not isinstance(cell, str))
    return unused(f"it holds {short(other)}, which is no text")


def _two_forms(name: str, cells: Sequence[Any]) -> str:
    return f"{short(cells[0])} may be day/month or month/day; to say which: {option('forms', {name: '%d/%m/%Y'})}"


def _as_read(cells: Cells, form: str) -> str:
    """Says how a number is read that may be no number, such as "3M" or "25:20", or has another sign than others have.

    Empty: none is written so.
    """
    of_sign: dict[str, Any] = {}
    for cell in cells.counts:
        of_sign.setdefault("".join(_SIGN.findall(str(cell))), cell)
    odd = [cell for cell in cells.drawn if isinstance(cell, str) and _MEANT.search(cell)][:1]
    if len(of_sign) > 1:
        odd = [*of_sign.values()][:3]
    return ", ".join(f"{short(cell)} is read as {number(cell, form):.15g}" for cell in odd)


def _without_zone(cells: Cells) -> str:
    """Says how a time without a time zone is read beside others that have one; empty: all have one, or none has."""
    local = [cell for cell in cells.counts if not _ZONE.search(str(cell))]
    if len(local) in (0, len(cells.counts)):
        return ""
    return f"{short(local[0])} has no time zone, others have; it counts as UTC"


def _odd_cells(name: str, cells: Cells) -> tuple[str, str]:
    """Says which few cells keep a column from holding numbers or dates, with the flag that leaves their rows out.

    Both are empty where more than a tenth of the cells do, or none does.
    """
    dates = [("date", form) for form in _date_forms(_dates_of(cells.drawn), cells.counts)[:1]]
    for kind, form in [("number", ""), ("number", ","), *dates]:
        read = {"number": number, "date": years}[kind]
        odd = [cell for cell in cells.drawn if read(cell, form) is None]
        odd = [cell for cell in odd if not is_missing(cell, AMBIGUOUS)]
        if not odd or 10 * len(odd) > len(cells.drawn):
            continue
        num = sum(count for cell, count in cells.counts.items() if read(cell, form) is None)
        others = f"{num:,} of {cells.counts.total():,} cells"
        why = f"{kind}s but for {short(odd[0])} and others like it: {others}"
        way = option("forms", {name: form}) if form else option("columns", {name: kind})
        return why, f"{way} --data.skip_bad {num}"
    return "", ""


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


def number_form(cells: Cells) -> str | None:
    """Empty for numbers, a comma for decimal commas, or with a unit; None: some cells are none, or are codes."""
    texts = [str(cell).strip() for cell in cells.drawn]
    is_code = not any("." in text for text in texts) and any(map(EXPONENT.fullmatch, texts))
    if is_code or any(CODE.fullmatch(text) or _is_long(text) for text in texts):
        return None
    forms = [form for form in _forms_by(cells.drawn) if all_fit(cells.drawn, form)]
    if len(forms) < 2:
        return forms[0] if forms else None
    points = [cell for cell in cells.marked if "." in cell]
    num_points = sum(cells.counts[cell] for cell in points)
    if 2 < num_points < cells.counts.total() and all(_GROUPS.fullmatch(x.strip()) for x in points):
        return ","  # 1.200 beside 999 has a thousand
    return next((form for form in forms if all_fit(cells.marked, form)), forms[0])


def settled(columns: Iterable[Column], cells: Mapping[str, Cells]) -> Iterator[Column]:
    """Columns in which 1.234 or 1,234 is read as the decimals of others say; where none does, they say how it is."""
    signs = set()
    unclear = []
    for column in columns:
        marked = cells[column.name].marked
        if column.kind != "number" or not marked:
            continue
        if column.is_given or column.form == "," or not all_fit(marked, ","):
            signs.add(column.form)
        else:
            unclear.append(column)
    for column in unclear:
        cell = next((cell for cell in cells[column.name].marked if "," in cell), None)
        if signs == {","}:
            yield replace(column, form=",")
        elif cell is not None and signs != {""}:
            way = option("forms", {column.name: ","})
            read = column.why or f"{short(cell)} is read as {number(cell):g}"
            yield replace(column, why=f"{read}; if a comma is a decimal sign: {way}")


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
