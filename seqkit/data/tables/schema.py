"""The columns of a table: inferred once from the first rows, saved with the run, used wherever rows are read.

A table with more than one usable column is learnt from all its columns; a lone text column takes the text recipe; the
target is the named column, else one with a well-known name, else the last of numbers or classes.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import islice, product
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from seqkit.data.formats import AUDIO, IMAGE
from seqkit.data.tables.cells import content_of, conversation, is_molecule, is_series, kind_of_content, name_of
from seqkit.data.tables.read import Rows
from seqkit.data.walk import suffix_of
from seqkit.errors import DataError, one_line, suggest
from seqkit.files import load_yaml
from seqkit.raw import Years

Kind = Literal["number", "category", "date", "text", "image", "audio", "smiles", "series", "words", "file", "unused"]
"""The content of the cells of a column. Images, sounds and files are names relative to the table, or the bytes of files. A
series is a list of numbers, or of lists of numbers; words are a list of words, or a text with spaces between them."""

KINDS: tuple[Kind, ...] = get_args(Kind)

TargetKind = Literal["classes", "numbers", "labels", "text", "tags", "none"]
"""The content of the target: a class, measurements, yes or no of each column, another text, a class for each word, or nothing."""

OF_CELLS = ("number", "category", "date")
"""Kinds of columns that are one part together, whose tokenizer is Cells; every other column is a part."""

CELLS = "cells"
"""Key of the row of numbers, categories and dates in a raw example, and name of its part."""

FILES = ("image", "audio", "file")
"""Kinds of columns that are files."""

LOOKED_AT = 2_000
"""Number of rows by which columns are inferred."""

MAX_NUMBER = 1e18
"""Largest number: the square of a larger one, as a loss takes it, is too near the end of float32 (3e38)."""

MAX_DIGITS = 15
"""Digits of whole numbers that a float64 holds; longer ones are codes."""

MAX_WORD = 60
"""Mean number of characters up to which texts that come again are categories."""

FEW_VALUES = 20
"""Different whole numbers up to which a target that is called as classes are holds classes."""

MIN_ROWS = 10
"""Rows from which on a column of different words, or one that counts, is taken for a name of the rows."""

SAID_COLUMNS = 30
"""Columns that are said in a line each; of wider tables the rest is counted."""

TARGET_NAMES = (
    "target", "label", "class", "y", "targets", "labels", "category", "sentiment", "output", "outcome", "result",
    "answer", "translation", "tgt", "tags", "ner_tags", "pos_tags", "value", "score",
)  # fmt: skip
"""Names of columns that are the target where none is named, the likeliest first."""

CLASS_NAMES = ("target", "label", "class", "y", "targets", "labels", "category", "sentiment")
"""Names under which few whole numbers are classes."""

INPUT_NAMES = {
    "text": ("text", "input", "sentence", "body", "message", "content", "document", "review", "comment", "question",
             "prompt", "messages", "conversations", "source", "src"),
    "image": ("image", "img", "picture", "photo", "path", "file", "filename", "file_name"),
    "audio": ("audio", "sound", "recording", "wav", "path", "file", "filename", "file_name"),
    "smiles": ("smiles", "canonical_smiles", "smi", "molecule", "mol"),
    "file": ("file", "path", "filename", "file_name", "recording"),
    "series": ("series", "values", "signal", "measurements", "sequence", "x"),
    "words": ("tokens", "words"),
}  # fmt: skip
"""Names of columns that are the input of a recipe that reads one, the likeliest first."""

IMAGE_NAMES = ("image", "images", "img", "picture", "photo")

SMILES_NAMES = re.compile(r"smiles|\b(smi|mol|molecule|drug|ligand|compound|structure)\b", re.IGNORECASE)

NUMBERING = ("id", "idx", "index", "row", "uuid", "key")
"""Names of columns that number the rows; they are never guessed."""

LIKE_NAMES = "as names of rows are"
"""Why a column of different words is not used."""

OF_TIME = ("year", "month", "day", "week", "hour", "minute", "time", "date", "t", "step")
"""Names of columns that count something else than rows."""

MISSING = {
    "", "nan", "-nan", "+nan", "n/a", "#n/a", "#na", "<na>", "nat", "null", "(null)", "<null>", "\\n",
}  # fmt: skip
"""Words, in lower case, that programs write where nothing is known; texts may be called so, other cells are missing."""

AMBIGUOUS = ("na", "none", "-", "?", ".", "missing")
"""Words, in lower case, that may be a value. Where one stands among numbers, it is missing in the whole table."""

TRUTHS = {"yes": 1.0, "no": 0.0, "y": 1.0, "n": 0.0, "true": 1.0, "false": 0.0, "t": 1.0, "f": 0.0, "1": 1.0, "0": 0.0}
"""Words, in lower case, for yes and no."""

DAYS = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y",
    "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y", "%d-%b-%y", "%b %d %Y", "%b %d, %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y",
)  # fmt: skip
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
DATE_FORMS = ("%Y-%m", *(day + clock for day, clock in product(DAYS, CLOCKS)))
"""How dates may be written beside ISO 8601."""

_NUMBER = re.compile(
    r"([-+]?)\s*[$€£¥₹]?\s*([-+]?)((?:[1-9]\d{0,2}(?:[,\s'\u00a0\u202f]\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*[$€£¥₹%]?"
)
"""A number as people write it: sign, currency, groups of three digits, per cent."""

_DATE = re.compile(r"(?=.{6,40}$)[^\d]{0,10}\d+[^\d].*\d.*")
"""A text that may be a date: two groups of digits or more, which saves trying all forms on a text."""

_CODE = re.compile(r"0\d+")
"""A whole number that begins with a zero, as postcodes do."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    role: what it is used as. form: of dates, their form as `strptime` takes it ("": ISO 8601); of numbers, "," where
    the decimals stand behind a comma. why: why it is not used. is_given: True: the user said what it holds.

    >>> Column("price", "number").read("$1,234.50"), Column("price", "number", form=",").read("1.234,50 €")
    (1234.5, 1234.5)
    """

    name: str
    kind: Kind
    role: Literal["input", "target", "group", "split", "unused"] = "input"
    form: str = ""
    why: str = ""
    is_given: bool = False

    def read(self, cell: Any, missing: Iterable[str] = ()) -> Any:
        """The value of a cell; None where it holds nothing. missing: words, in lower case, that say so, too.

        Numbers and dates are floats (dates in years since 1970), categories texts; texts, names of files and series are
        as they are. Raises ValueError where it is not what the column holds.
        """
        if self.kind in ("text", "words"):
            is_empty = is_blank(cell) or (isinstance(cell, str) and cell.strip().lower() in missing)
        else:
            is_empty = is_missing(cell, missing)
        return None if is_empty else _READERS[self.kind](self, cell)

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
        return word_of(cell)

    def _text(self, cell: Any) -> str:
        if not isinstance(cell, str) and (cell := conversation(given := cell)) is None:
            raise ValueError(self._wrong(given, "is no text; write it in quotes"))
        return str(cell)

    def _smiles(self, cell: Any) -> str:
        return self._text(cell).strip()

    def _series(self, cell: Any) -> list[Any]:
        if not is_series(cell):
            raise ValueError(self._wrong(cell, "is no list of numbers"))
        return list(cell)

    def _words(self, cell: Any) -> list[str]:
        found = words_of(cell)
        if not all(map(_is_word, found)):
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
    "smiles": Column._smiles, "series": Column._series, "words": Column._words, "image": Column._file,
    "audio": Column._file, "file": Column._file, "unused": lambda _, cell: cell,
}  # fmt: skip


@dataclass(frozen=True)
class Given:
    """The user's word on a table's columns; what is left open is inferred from its first rows.

    input: the one column that is read, or several of numbers that are a series, or a pattern such as `s*`; None: all.
    target: the column that is learned; several for numbers and labels. target_kind: what it holds (`TargetKind`).
    columns: kind of each column (`Kind`), or a list of the names of all columns, which is taken as `header`. forms:
    form of dates, as `strptime` takes it, and "," for numbers with a decimal comma. missing: words that say that a cell
    is empty, beside those that programs write. header: names of all columns, where the file has none.
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
        if isinstance(self.target, list) and (not self.target or len(set(self.target)) < len(self.target)):
            raise ValueError(f"target is {self.target}; give one column or several different ones, or leave it out")
        for name, kind in self.kinds.items():
            if kind not in KINDS:
                raise ValueError(f"columns says that {name!r} is {kind!r}; {suggest(str(kind), KINDS)}")
        for name, form in (self.forms or {}).items():
            if form not in ("", ",") and "%" not in form:
                raise ValueError(
                    f"forms says that {name!r} is written {form!r}; give ',' or a date's, such as %d/%m/%Y"
                )

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of columns that are known."""
        return self.columns if isinstance(self.columns, dict) else {}

    @property
    def targets(self) -> list[str]:
        """Columns of the target."""
        return [self.target] if isinstance(self.target, str) else list(self.target or ())


@dataclass(frozen=True)
class Schema:
    """The columns of a table, what they hold and what they are used as.

    target_kind: what the targets hold. missing: words, in lower case, that say that a cell is empty. name: the table,
    for messages. steps: columns of numbers that are one series; empty: the input is one column, or all. header: names
    of all columns, where the file has none.

    >>> rows = Rows({"size": ["1.5", "2", "NA"], "kind": ["a", "b", "a"]}, [("t.csv", 3)])
    >>> schema = infer(rows)
    >>> [(column.name, column.kind, column.role) for column in schema.columns], schema.missing
    ([('size', 'number', 'input'), ('kind', 'category', 'target')], ('na',))
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

    @property
    def parts(self) -> dict[str, str]:
        """Kind of each part of an example: columns, and `cells` for numbers, categories and dates together."""
        found: dict[str, str] = {column.name: column.kind for column in self.inputs if column.kind not in OF_CELLS}
        return found | ({CELLS: CELLS} if len(found) < len(self.inputs) else {})

    def settings(self) -> dict[str, Any]:
        """The schema as the settings of a data source (`Given`) that are saved with a run."""
        used = [c for c in self.columns if c.role == "unused" or (c.role == "input" and not self.steps)]
        targets = [column.name for column in self.targets]
        return {
            "target": targets[0] if len(targets) == 1 else targets or None,
            "target_kind": self.target_kind,
            "columns": {column.name: column.kind if column.role == "input" else "unused" for column in used},
            "forms": {column.name: column.form for column in (*self.columns, *self.steps) if column.form} or None,
            "missing": list(self.missing) or None,
            "header": list(self.header) or None,
        } | ({"input": [column.name for column in self.steps]} if self.steps else {})

    def lines(self) -> Iterator[str]:
        """The inferred columns, a line for each."""
        inferred = [c for c in self.columns if c.role not in ("group", "split") and (c.why or not c.is_given)]
        for column in inferred[:SAID_COLUMNS]:
            words = [repr(column.name)]
            if column.form:
                words.append("with decimal commas" if column.form == "," else f"written {column.form}")
            flag = option("columns", {column.name: "KIND"})
            if column.role == "target":
                words.append(f"target ({self.target_kind})")
                flag = "--data.target NAME --data.target_kind KIND"
            elif column.role != "unused":
                words.append(column.role)
            kind = {"unused": "column"}.get(column.kind, column.kind) if column.role != "unused" else "not used"
            why = f" ({column.why})" if column.why else ""
            yield f"{self.name}: {kind}: {', '.join(words)}{why}; to change: {flag}"
        if (more := len(inferred) - SAID_COLUMNS) > 0:
            yield f"{self.name}: and {more:,} columns more; --print_config shows all"
        for word in self.missing if inferred else ():
            yield f"{self.name}: {word.upper()} counts as an empty cell; to change: --data.missing '[]'"


# ── inference ────────────────────────────────────────────────────────────────────────────────────────────────────────


def infer(
    rows: Rows,
    given: Given | None = None,
    *,
    reads: str | None = None,
    split: str | None = None,
    group: str | None = None,
    folder: Path | None = None,
) -> Schema:
    """The schema of a table, from its first rows and what is given.

    reads: the kind of the one column that a recipe reads; "": one column of any kind; None: the recipe reads all
    columns. split, group: columns that say the split and the group of a row. folder: folder of files that the tokenizer
    reads itself; None: it reads none.
    Raises DataError where a column does not exist, or the input or target is not clear.
    """
    given = given or Given()
    if len(rows) == 0:
        no_rows = f"{rows.name} has a header ({', '.join(rows.names)}) and no rows; give it rows"
        raise DataError(rows.faults[0] if rows.faults else no_rows)
    steps = _steps(rows, given, split, group)
    named = [given.input] if isinstance(given.input, str) and not steps else list(steps)
    said = {"input": named, "target": given.targets, "columns": given.kinds, "forms": given.forms or ()}
    own = {"split": [split] if split is not None else [], "group": [group] if group is not None else []}
    for flag, names in (said | own).items():
        for name in names:
            check_column(rows, name, f"--data.{flag}")
    if both := [name for name in given.targets if name in named or given.kinds.get(name, "unused") != "unused"]:
        raise DataError(f"{rows.name}: {both[0]!r} is input and target; give another column with --data.target")
    looked_at = {name: list(islice(rows.columns[name], LOOKED_AT)) for name in rows.names}
    words = _missing(looked_at.values()) if given.missing is None else given.missing
    missing = tuple(word.strip().lower() for word in words)
    columns = {name: _column(name, cells, given, missing, folder) for name, cells in looked_at.items()}
    for name in {*own["split"], *own["group"]} - {*named, *given.kinds}:
        if name == split or columns[name].kind in (*OF_CELLS, "unused"):
            columns[name] = replace(columns[name], role="split" if name == split else "group")
    columns = _with_texts(columns, given, reads)
    columns = _with_target(rows, columns, given)
    targets = [column for column in columns.values() if column.role == "target"]
    target_kind = given.target_kind or _target_kind(rows, targets, looked_at)
    series = tuple(columns[name] for name in steps)
    schema = Schema(tuple(columns.values()), target_kind, missing, rows.name, series, tuple(given.header or ()))
    return _with_input(schema, rows, named, reads, looked_at)


def _missing(columns: Iterable[Sequence[Any]]) -> tuple[str, ...]:
    """The words of `AMBIGUOUS` that stand in a column of numbers."""
    found: dict[str, None] = {}
    for cells in columns:
        words = {cell.strip().lower() for cell in cells if isinstance(cell, str)}
        ambiguous = [word for word in AMBIGUOUS if word in words]
        rest = words - {*ambiguous, *MISSING}
        if ambiguous and rest and (all(_is_number(word, "") for word in rest) or all(_is_number(w, ",") for w in rest)):
            found.update(dict.fromkeys(ambiguous))
    return tuple(found)


def _column(name: str, cells: Sequence[Any], given: Given, missing: Sequence[str], folder: Path | None) -> Column:
    """A column, by what is given, else by its name and cells."""
    kind = given.kinds.get(name)
    form = (given.forms or {}).get(name)
    filled = [cell for cell in cells if not is_missing(cell, missing)]
    if kind is None:
        guessed, written, why = _guessed(name, filled, form, folder, has_gaps=len(filled) < len(cells))
        return Column(name, guessed, "unused" if guessed == "unused" else "input", written, why)
    if form is None:
        form = (date_form(filled) or "") if kind == "date" else _number_form(filled) or "" if kind == "number" else ""
    return Column(name, kind, "unused" if kind == "unused" else "input", form, is_given=True)  # type: ignore[arg-type]


def _guessed(
    name: str, cells: Sequence[Any], form: str | None, folder: Path | None, *, has_gaps: bool
) -> tuple[Kind, str, str]:
    """Kind and form of a column by its name and filled cells, and the reason where it is not used."""
    if not cells:
        return "unused", "", "all its cells are empty"
    if isinstance(cells[0], bytes | dict) and content_of(cells[0]) is not None:
        return kind_of_content(content_of(cells[0]) or b""), "", ""
    if all(conversation(cell) is not None for cell in cells[:100]):
        return "text", "", ""
    if any(isinstance(cell, list | dict) for cell in cells):
        if all(is_series(cell) for cell in cells):
            return "series", "", ""
        is_words = all(isinstance(cell, list) and all(map(_is_word, cell)) for cell in cells)
        return ("words", "", "") if is_words else ("unused", "", "it holds lists or objects")
    if isinstance(cells[0], date):
        return "date", "", ""
    texts = [cell for cell in cells if isinstance(cell, str)]
    if (found := _of_files(name, texts, cells, folder)) is not None:
        return found, "", ""
    if is_numbering(name):
        return "unused", "", "it has no name" if is_nameless(name) else "its name says that it numbers the rows"
    distinct = len(set(cells))
    if distinct == 1 and not has_gaps:  # beside gaps, it says which rows have it
        return "unused", "", f"every cell is {short(cells[0])}"
    is_boolean = all(isinstance(cell, bool) for cell in cells)
    if form is not None and form.startswith("%"):
        return "date", form, ""
    form = _number_form(cells) if form is None and not is_boolean else form
    if form is not None:
        return ("unused", "", "it counts the rows") if _counts(name, cells) else ("number", form, "")
    if (found_form := date_form(texts) if len(texts) == len(cells) else None) is not None:
        return "date", found_form, ""
    if texts and len(texts) == len(cells) and len(_fitting(texts)) > 1:
        flag = option("forms", {name: "%d/%m/%Y"})
        return "unused", "", f"{short(texts[0])} may be day/month or month/day; to say which: {flag}"
    length = sum(map(len, texts)) / max(len(texts), 1)
    comes_again = distinct <= max(2, len(cells) // 2) and distinct < len(cells)
    if is_boolean or (comes_again and length <= MAX_WORD):
        return "category", "", ""
    if len(texts) < len(cells):
        other = next(cell for cell in cells if not isinstance(cell, str))
        return "unused", "", f"it holds {short(other)}, which is no text"
    has_digits = all(any(map(str.isdigit, text)) for text in texts)
    is_word = all(len(text.split()) == 1 and len(text) <= MAX_WORD for text in texts)
    if is_word and distinct == len(cells) >= MIN_ROWS and not has_digits:
        return "unused", "", f"each of its {len(cells):,} words is another, {LIKE_NAMES}"
    return "text", "", ""


def _of_files(name: str, texts: Sequence[str], cells: Sequence[Any], folder: Path | None) -> Kind | None:
    """The kind of a column of molecules, or of names of files; None: it is none of these."""
    if len(texts) < len(cells):
        return None
    suffixes = {suffix_of(text) for text in texts[:100]}
    for kind, known in (("image", IMAGE), ("audio", AUDIO)):
        if suffixes <= set(known.suffixes):
            return kind  # type: ignore[return-value]
    if folder is not None and 2 * sum(_exists(folder, text) for text in texts[:100]) > len(texts[:100]):
        return "file"
    if name.lower().strip() in IMAGE_NAMES and all(len(text.split()) == 1 for text in texts[:100]):
        return "image"  # names without a suffix, which are refused where they are read
    if SMILES_NAMES.search(name) and 2 * sum(map(is_molecule, texts[:20])) > len(texts[:20]):
        return "smiles"
    return None


def _is_word(cell: Any) -> bool:
    return isinstance(cell, str) and len(cell.split()) == 1


def _exists(folder: Path, name: str) -> bool:
    with suppress(OSError, ValueError):  # a long text is no path
        return (folder / name).is_file()
    return False


def _counts(name: str, cells: Sequence[Any]) -> bool:
    """Whether a column counts its rows from 0 or 1, and is not called after a time."""
    if len(cells) < MIN_ROWS or name.lower() in OF_TIME:
        return False
    start = str(cells[0]).strip()
    return start in ("0", "1") and all(str(cell).strip() == str(i) for i, cell in enumerate(cells, start=int(start)))


def _number_form(cells: Sequence[Any]) -> str | None:
    """Empty for numbers, a comma for numbers with a decimal comma; None: some cells are none, or are codes."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    if any(_CODE.fullmatch(text.strip()) for text in texts) or any(isinstance(cell, bool) for cell in cells):
        return None
    if any(len(text) > MAX_DIGITS and text.isdigit() for text in map(str, cells)):
        return None
    return next((form for form in ("", ",") if all(_is_number(cell, form) for cell in cells)), None)


def _is_number(cell: Any, form: str) -> bool:
    return number(cell, form) is not None


def date_form(cells: Sequence[Any]) -> str | None:
    """How dates are written: "" as ISO 8601, else as `strptime` takes it; None: they are none, or several forms fit."""
    fitting = _fitting([cell for cell in cells if isinstance(cell, str)])
    return fitting[0] if len(fitting) == 1 else None


def _fitting(texts: Sequence[str]) -> list[str]:
    """The forms that fit all texts; of forms that read all of them alike, the first."""
    if not texts or _DATE.fullmatch(texts[0].strip()) is None:
        return []
    found: dict[tuple[float | None, ...], str] = {}
    for form in ("", *DATE_FORMS):
        if years(texts[0], form) is not None and None not in (read := tuple(years(text, form) for text in texts)):
            found.setdefault(read, form)
    return list(found.values())


def _with_texts(columns: dict[str, Column], given: Given, reads: str | None) -> dict[str, Column]:
    """The columns, in which names of rows and groups are read, too, where too few columns are left without them."""
    free = [name for name, column in columns.items() if column.role == "input" and name not in given.targets]
    if reads != "text" and len(free) > (not given.targets and given.target_kind != "none"):
        return columns
    texts = {
        column.name: replace(column, kind="text", role="input", why="")
        for column in columns.values()
        if column.name not in given.targets and (column.why.endswith(LIKE_NAMES) or column.role == "group")
    }
    return columns | texts


def _with_target(rows: Rows, columns: dict[str, Column], given: Given) -> dict[str, Column]:
    """The columns with those of the target, which are the named ones, one with a well-known name, or the last."""
    targets = given.targets
    open_ones = {name: c for name, c in columns.items() if name != given.input and name not in given.kinds}
    free = [name for name, column in open_ones.items() if column.role == "input"]
    if not targets and given.target_kind == "labels":
        targets = [name for name in free if _is_yes_no(rows.columns[name])]
    if not targets and given.target_kind != "none":
        known = [name for wanted in TARGET_NAMES for name in open_ones if name.lower().strip() == wanted]
        known = [name for name in known if columns[name].role in ("input", "unused")]
        kinds = ("text", "words", "category") if given.target_kind in ("text", "tags") else ("number", "category")
        last = [name for name in free if columns[name].kind in kinds]
        targets = known[:1] or last[-1:] or free[-1:]
        if not (given.input or given.kinds or {*free} - {*targets}):
            targets = []
    if not targets and given.target_kind not in (None, "none"):
        raise DataError(f"{rows.name} has no column for the target ({', '.join(rows.names)}); name one: --data.target")
    is_given = {name: replace(columns[name], role="target", why="", is_given=bool(given.targets)) for name in targets}
    return columns | is_given


def _target_kind(rows: Rows, targets: Sequence[Column], cells: Mapping[str, Sequence[Any]]) -> TargetKind:
    """The content of the targets: words and few whole numbers under a name of classes are classes, numbers measurements."""
    if not targets:
        return "none"
    if len(targets) > 1:
        if all(column.kind == "number" for column in targets):
            return "numbers"
        if all(_is_yes_no(cells[column.name]) for column in targets):
            return "labels"
        names = ", ".join(column.name for column in targets)
        raise DataError(
            f"{rows.name}: several targets ({names}) are numbers, or yes and no of each; give one column with "
            "--data.target"
        )
    (target,) = targets
    if target.kind == "words":
        return "tags"
    filled = [cell for cell in cells[target.name] if not is_blank(cell)]
    if target.kind in FILES or any(isinstance(cell, list | dict) for cell in filled):
        raise DataError(
            f"{rows.name}: {target.name} is {short(filled[0])}, which is no target; give another with --data.target, "
            "or say what it holds with --data.target_kind"
        )
    numbers = [x for cell in filled if (x := number(cell, target.form)) is not None and not math.isnan(x)]
    if target.kind == "number" or (target.kind in ("unused", "date") and len(numbers) == len(filled)):
        few = set(numbers)
        is_whole = all(x.is_integer() for x in few) and 2 * len(few) <= len(numbers)
        is_class = len(few) == 2 or (len(few) <= FEW_VALUES and target.name.lower() in CLASS_NAMES)
        return "classes" if is_whole and is_class else "numbers"
    return "text" if target.kind in ("text", "smiles") else "classes"


def _with_input(
    schema: Schema, rows: Rows, named: Sequence[str], reads: str | None, cells: Mapping[str, Sequence[Any]]
) -> Schema:
    """The schema in which only what is read is an input."""
    inputs = [column.name for column in schema.columns if column.role == "input"]
    if schema.steps:
        series = Column(f"{schema.steps[0].name} … {schema.steps[-1].name}", "series", is_given=True)
        others = [column for column in schema.columns if column not in schema.steps]
        return replace(schema, columns=(series, *(_left_out(c) if c.role == "input" else c for c in others)))
    if named:
        chosen = list(named)
    elif reads is None:
        chosen = inputs
    else:
        chosen = [_one_input(schema, rows, reads, cells)]
    if not chosen:
        why = "; ".join(f"{column.name}: {column.why}" for column in schema.columns if column.why)
        raise DataError(
            f"{rows.name}: no column is left as input ({why or ', '.join(rows.names)}); give --data.columns"
        )
    columns = []
    for column in schema.columns:
        if column.name in chosen:
            kind = _wanted(column, reads, is_tagged=schema.target_kind == "tags")
            columns.append(replace(column, kind=kind, role="input", why="", is_given=column.is_given or bool(named)))
        else:
            columns.append(_left_out(column) if column.role == "input" else column)
    if CELLS in chosen and next(column for column in columns if column.name == CELLS).kind not in OF_CELLS:
        raise DataError(f"{rows.name}: a column cannot be called {CELLS!r}; rename it")
    return replace(schema, columns=tuple(columns))


def _wanted(column: Column, reads: str | None, *, is_tagged: bool) -> Kind:
    """The kind as which a recipe reads a column: a recipe of texts reads categories and numbers as texts, too."""
    if is_tagged:
        return "words"
    if not reads or column.is_given or column.kind == reads:
        return column.kind if column.kind != "unused" else "text"
    return reads  # type: ignore[return-value]


def _left_out(column: Column) -> Column:
    return replace(column, role="unused", why="the recipe reads one column")


def _one_input(schema: Schema, rows: Rows, reads: str, cells: Mapping[str, Sequence[Any]]) -> str:
    """The one column that a recipe reads: of its kind, by name, else the longest text."""
    free = [column for column in schema.columns if column.role == "input"]
    same = [column for column in free if column.kind == reads] if reads else free
    if reads == "text":
        same = same or [column for column in free if column.kind in ("category", "words", "smiles")]
    if not same:
        held = ", ".join(f"{column.name}: {column.kind}" for column in free) or "none"
        raise DataError(f"{rows.name} has no column of {reads} left ({held}); name one with --data.input")
    names = INPUT_NAMES.get(reads or same[0].kind, ())
    known = [column for wanted in names for column in same if column.name.lower().strip() == wanted]
    if known or len(same) == 1:
        return (known or same)[0].name
    lengths = {column.name: sum(len(str(cell)) for cell in cells[column.name]) for column in same}
    first, second = sorted(lengths, key=lambda name: -lengths[name])[:2]
    if reads == "text" and lengths[first] >= 2 * lengths[second]:
        return first
    raise DataError(
        f"{rows.name}: the columns {', '.join(map(repr, lengths))} fit equally as input; name one with --data.input"
    )


def _steps(rows: Rows, given: Given, split: str | None, group: str | None) -> list[str]:
    """The columns that are one series; empty: the input is one column, or all."""
    if isinstance(given.input, list):
        if not given.input or len(set(given.input)) < len(given.input):
            raise DataError(f"{rows.name}: --data.input is {given.input}; give each column of a series once")
        return given.input
    if given.input is None or given.input in rows.names or not ("*" in given.input or "?" in given.input):
        return []
    pattern = re.compile(re.escape(given.input).replace(r"\*", ".*").replace(r"\?", "."))
    others = {split, group, *given.targets}
    found = [name for name in rows.names if pattern.fullmatch(name) and name not in others]
    if not found:
        raise DataError(f"{rows.name}: no column is called as in {given.input!r} ({', '.join(rows.names[:5])})")
    return found


# ── cells ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_blank(cell: Any) -> bool:
    """Whether a cell holds nothing: null, blank, NaN, an empty list or file."""
    if isinstance(cell, str):
        return not cell or cell.isspace()
    if isinstance(cell, float):
        return cell != cell
    if isinstance(cell, dict):
        return cell.keys() <= {"bytes", "path"} and not any(cell.values())
    return cell is None or (isinstance(cell, list | bytes) and not cell)


def is_missing(cell: Any, missing: Iterable[str] = ()) -> bool:
    """Whether a cell is blank, or a word says that nothing is known. missing: further such words, in lower case."""
    return is_blank(cell) or (isinstance(cell, str) and ((word := cell.strip().lower()) in MISSING or word in missing))


def number(cell: Any, form: str = "") -> float | None:
    """A cell as a number, NaN where a program wrote that it is missing; None: it is something else.

    form: "," where decimals stand behind a comma, and points group digits.
    """
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return float(cell)
    if not isinstance(cell, str):
        return None
    text = cell
    if form == ",":
        text = text.translate(_SWAPPED)
    try:
        found = float(text)  # which reads 1_000, a name in a table
        return None if "_" in text else found
    except ValueError:
        pass
    if cell.strip().lower() in MISSING:
        return math.nan
    match = _NUMBER.fullmatch(text.strip())
    if match is None or (match[1] and match[2]) or not any(map(str.isdigit, match[3])):
        return None
    with suppress(ValueError):
        return float(match[1] + match[2] + re.sub(r"[,\s'\u00a0\u202f]", "", match[3]))
    return None


_SWAPPED = str.maketrans(",.", ".,")


def years(cell: Any, form: str = "") -> Years | None:
    """A date in years since 1970, as ISO 8601 ("") or `form` writes it; None: it is something else."""
    if isinstance(cell, str):
        text, parsed = cell.strip(), None
        with suppress(ValueError):
            if form:
                parsed = datetime.strptime(text, form)
            elif not text.isdigit():
                parsed = datetime.fromisoformat(text)
        cell = parsed
    return Years.of(cell) if isinstance(cell, date) else None


def truth(cell: Any, missing: Iterable[str] = ()) -> float | None:
    """1 for yes, 0 for no, NaN where it is missing; None: it is something else."""
    if is_missing(cell, missing):
        return math.nan
    if isinstance(cell, bool | int | float):
        return float(cell) if cell in (0, 1) else None
    return TRUTHS.get(cell.strip().lower()) if isinstance(cell, str) else None


def _is_yes_no(cells: Sequence[Any]) -> bool:
    found = {truth(cell) for cell in islice(cells, LOOKED_AT)}
    return {0.0, 1.0} <= found and None not in found


def word_of(cell: Any) -> str:
    """A category or class as a word."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return f"{cell:.15g}"
    word = str(cell).strip()
    return word[1:-1].strip() if len(word) > 2 and word[0] == word[-1] == '"' else word


def words_of(cell: Any) -> list[Any]:
    """Words or tags of a cell: a list, or a text with spaces between them."""
    return cell.split() if isinstance(cell, str) else list(cell) if isinstance(cell, list) else [cell]


def short(value: Any) -> str:
    """A cell as an error shows it."""
    text = repr(value if not isinstance(value, bytes) else value[:40])
    return one_line(text if len(text) <= 60 else f"{text[:57]}…")


def is_numbering(column: str) -> bool:
    """Whether the name of a column says that it numbers the rows, or it has none."""
    name = column.lower().strip()
    return name in NUMBERING or name.endswith("_id") or is_nameless(name)


def is_nameless(column: str) -> bool:
    """Whether a column was named by its place, as it has no name of its own; an index often has none."""
    return column.startswith("column ")


def check_column(rows: Rows, column: str, flag: str) -> None:
    """Raise DataError where there is no such column, with the nearest one and the flag that names it."""
    if column not in rows.columns:
        raise DataError(f"{rows.name} has no column {column!r}; {suggest(column, rows.names)} ({flag})")


def option(name: str, value: str | Mapping[str, str] | Sequence[str]) -> str:
    """`--data.NAME VALUE`, to be pasted into a shell: quoted where a column's name has spaces, quotes or colons."""
    if isinstance(value, Mapping):
        value = f"{{{', '.join(f'{_in_yaml(column)}: {_in_yaml(kind)}' for column, kind in value.items())}}}"
    elif not isinstance(value, str):
        value = f"[{', '.join(map(_in_yaml, value))}]"
    return f"--data.{name} {shlex.quote(value)}"


def _in_yaml(word: str) -> str:
    """A word inside a list or mapping of YAML, in double quotes where it would be read as something else."""
    with suppress(yaml.YAMLError):
        if load_yaml(f"{{{word}: x}}") == {word: "x"} and load_yaml(f"[{word}]") == [word]:
            return word
    return json.dumps(word, ensure_ascii=False)
