"""The schema of a table, inferred from its first rows; each rule is one sentence.

A table with more than one usable column is learnt from all its columns; a lone text column takes the text recipe; the
target is the named column, else one with a well-known name, else the last of numbers or classes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import islice, product
from pathlib import Path
from typing import Any

from seqkit.data.formats import IMAGE, OF_CLASSES
from seqkit.data.kinds import FILES, IMAGE_NAMES, KINDS, OF_CELLS, TargetKind
from seqkit.data.tables.cells import (
    AMBIGUOUS,
    MISSING,
    SOUNDS,
    content_of,
    conversation,
    is_blank,
    is_missing,
    is_molecule,
    is_series,
    is_word,
    number,
    short,
    truth,
    years,
)  # fmt: skip
from seqkit.data.tables.rows import Rows
from seqkit.data.tables.schema import (
    CELLS,
    Column,
    Given,
    Schema,
    check_column,
    option,
    series_of,
)  # fmt: skip
from seqkit.data.walk import exists_as, suffix_of
from seqkit.errors import DataError

LOOKED_AT = 2_000
"""Number of rows by which columns are inferred."""

MAX_DIGITS = 15
"""Digits of whole numbers that a float64 holds; longer ones are codes."""

MAX_WORD = 60
"""Mean number of characters up to which texts that come again are categories."""

FEW_VALUES = 20
"""Different whole numbers up to which a target that is called as classes are holds classes."""

MIN_ROWS = 10
"""Rows from which on a column that counts is taken for a number of the rows."""

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

NUMBERING = ("id", "idx", "index", "row", "uuid", "key")
"""Names of columns that number the rows, as those that end in `_id` do; they are not used."""

OF_TIME = ("year", "month", "day", "week", "hour", "minute", "time", "date", "t", "step")
"""Names of columns that count something else than rows."""

DAYS = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y",
    "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y", "%d-%b-%y", "%b %d %Y", "%b %d, %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y",
)  # fmt: skip
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
DATE_FORMS = ("", "%Y-%m", *(day + clock for day, clock in product(DAYS, CLOCKS)))
"""How dates may be written; "" is ISO 8601."""

_DATE = re.compile(r"(?=.{6,40}$)[^\d]{0,10}\d+[^\d].*\d.*")
"""A text that may be a date: two groups of digits or more, which saves trying all forms on a text."""

_GROUPS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+")
"""A whole number whose digits points group."""

_CODE = re.compile(r"0\d+")
"""A whole number that begins with a zero, as postcodes do."""


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
    """The schema of a table, from its first rows and what is given.

    reads: the kind of the one column that a recipe reads; "": one column of any kind; None: the recipe reads all
    columns. split, group: columns that say the split and the group of a row. folder: folder of files that the tokenizer
    reads itself; None: it reads none. input_flag: option that names the input, for messages.
    Raises DataError where a column does not exist, or the input or target is not clear.

    >>> schema = infer(Rows({"size": ["1.5", "2", "NA"], "kind": ["a", "b", "a"]}, [("t.csv", 3)]))
    >>> [(column.name, column.kind, column.role) for column in schema.columns], schema.missing
    ([('size', 'number', 'input'), ('kind', 'category', 'target')], ('na',))
    """
    given = given or Given()
    if len(rows) == 0:
        raise DataError(
            [
                *rows.faults,
                f"{rows.name} has a header ({', '.join(rows.names)}) and no rows; add some",
            ][0]
        )
    own = {name for name in (split, group) if name is not None}
    steps = _steps(rows, given, own)
    named = steps or ([given.input] if isinstance(given.input, str) else [])
    said = {
        "input": named,
        "target": given.targets,
        "columns": given.kinds,
        "forms": given.forms or (),
    }
    for flag, names in (said | {"split": own & {split}, "group": own & {group}}).items():
        for name in names:
            check_column(rows, name, f"--data.{flag}")
    if any(name in own for name in given.targets):
        raise DataError(
            f"{rows.name}: {given.targets[0]!r} is the target, and names split or group; give another column"
        )
    if both := [
        name
        for name in given.targets
        if name in named or given.kinds.get(name, "unused") != "unused"
    ]:
        raise DataError(
            f"{rows.name}: {both[0]!r} is input and target; give another column with --data.target"
        )
    cells = {name: list(islice(rows.columns[name], LOOKED_AT)) for name in rows.names}
    words = _missing(cells.values()) if given.missing is None else given.missing
    missing = tuple(word.strip().lower() for word in words)
    columns = {
        name: _column(name, looked_at, given, missing, folder) for name, looked_at in cells.items()
    }
    if any(column.form == "," for column in columns.values()):  # 1.234 beside 0,5 has a thousand
        for name, column in columns.items():
            has_points = column.kind == "number" and any("." in str(cell) for cell in cells[name])
            if (
                has_points
                and not column.is_given
                and all(_fits_number(cell, ",") for cell in cells[name])
            ):
                columns[name] = replace(column, form=",")
    for name in own - {*named, *given.kinds}:
        if name == split or columns[name].kind in (*OF_CELLS, "unused"):
            columns[name] = replace(columns[name], role="split" if name == split else "group")
    for name in _targets(rows, columns, given, named):
        columns[name] = replace(columns[name], role="target", why="", is_given=bool(given.targets))
    targets = [column for column in columns.values() if column.role == "target"]
    target_kind = given.target_kind or _target_kind(rows, targets, cells)
    series = tuple(replace(columns[name], kind="number") for name in steps)
    schema = Schema(
        tuple(columns.values()), target_kind, missing, rows.name, series, tuple(given.header or ())
    )
    return _with_input(schema, rows, named, reads, cells, input_flag)


def _missing(columns: Iterable[Sequence[Any]]) -> list[str]:
    """The words of `AMBIGUOUS` that stand in a column of numbers."""
    found: dict[str, None] = {}
    for cells in columns:
        words = {cell.strip().lower() for cell in cells if isinstance(cell, str)}
        others = [cell for cell in cells if not isinstance(cell, str) and not is_blank(cell)]
        rest = [*(words - {*AMBIGUOUS, *MISSING}), *others]
        if rest and any(all(number(cell, form) is not None for cell in rest) for form in ("", ",")):
            found |= dict.fromkeys(word for word in AMBIGUOUS if word in words)
    return list(found)


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _column(
    name: str, cells: Sequence[Any], given: Given, missing: Sequence[str], folder: Path | None
) -> Column:
    """A column, by what is given, else by its name and cells. A form says that it holds dates or numbers."""
    filled = [cell for cell in cells if not is_missing(cell, missing)]
    form = (given.forms or {}).get(name, "")
    kind = given.kinds.get(name) or ("date" if "%" in form else "number" if form else None)
    if kind is None:
        return _guessed(name, filled, folder, has_gaps=len(filled) < len(cells))
    if kind == "date" and not form:
        forms = _date_forms(filled)
        if len(forms) > 1:
            raise DataError(f"{name}: {_two_forms(name, filled)}")
        form = forms[0] if forms else ""
    elif kind == "number":
        form = form or _number_form(filled) or ""
    return Column(name, kind, "unused" if kind == "unused" else "input", form, is_given=True)  # type: ignore[arg-type]


def _guessed(name: str, cells: Sequence[Any], folder: Path | None, *, has_gaps: bool) -> Column:
    """A column by its name and filled cells; the first rule that holds is taken."""

    def unused(why: str) -> Column:
        return Column(name, "unused", "unused", why=why)

    if not cells:
        return unused("all its cells are empty")
    if (content := content_of(cells[0])) is not None:
        return Column(name, "audio" if content.startswith(SOUNDS) else "image")
    if all(conversation(cell) is not None for cell in cells[:100]):
        return Column(name, "text")
    if any(isinstance(cell, list | dict) for cell in cells):
        if all(map(is_series, cells)):
            return Column(name, "series")
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
    if (called := name.lower().strip()) in NUMBERING or called.endswith("_id"):
        return unused("its name says that it numbers the rows")
    distinct = len(set(cells))
    if distinct == 1 and not has_gaps:  # beside gaps, it says which rows have it
        return unused(f"every cell is {short(cells[0])}")
    if (form := _number_form(cells)) is not None:
        if _counts(name, cells):
            return unused("it counts the rows")
        return Column(name, "number", form=form)
    forms = _date_forms(texts) if is_texts else []
    if len(forms) == 1:
        return Column(name, "date", form=forms[0])
    if forms:
        return unused(_two_forms(name, texts))
    if is_texts and (other := _date_of_another_form(texts)) is not None:
        return unused(
            f"it holds dates of several forms, {short(texts[0])} and {short(other)}; write all in one"
        )
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
    """Says which few cells keep a column from holding numbers; empty: more than a tenth do, or none does."""
    odd = [cell for cell in cells if not _fits_number(cell, "") and not _fits_number(cell, ",")]
    if 10 * len(odd) > len(cells) or not odd:
        return ""
    return (
        f"numbers but for {short(odd[0])} and others like it: {len(odd):,} of {len(cells):,} cells"
    )


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


def _counts(name: str, cells: Sequence[Any]) -> bool:
    """Whether a column counts its rows from 0 or 1, and is not called after a time."""
    start = str(cells[0]).strip()
    if len(cells) < MIN_ROWS or name.lower() in OF_TIME or start not in ("0", "1"):
        return False
    return all(str(cell).strip() == str(i) for i, cell in enumerate(cells, start=int(start)))


def _number_form(cells: Sequence[Any]) -> str | None:
    """Empty for numbers, a comma for numbers with a decimal comma; None: some cells are none, or are codes."""
    for text in (str(cell).strip() for cell in cells):
        if _CODE.fullmatch(text) or (len(text) > MAX_DIGITS and text.isdigit()):
            return None
    forms = [form for form in ("", ",") if all(number(cell, form) is not None for cell in cells)]
    points = [cell.strip() for cell in cells if isinstance(cell, str) and "." in cell]
    if 2 < len(points) < len(cells) and all(map(_GROUPS.fullmatch, points)):
        forms.reverse()  # 1.200 beside 999 has a thousand
    return forms[0] if forms else None


def _date_forms(cells: Sequence[Any]) -> list[str]:
    """The forms of `DATE_FORMS` that fit all cells; of forms that read all of them alike, the first."""
    if not cells or not isinstance(cells[0], str) or _DATE.fullmatch(cells[0].strip()) is None:
        return []
    found: dict[tuple[float | None, ...], str] = {}
    for form in DATE_FORMS:
        if years(cells[0], form) is not None and None not in (
            read := tuple(years(cell, form) for cell in cells)
        ):
            found.setdefault(read, form)
    return list(found.values())


def _date_of_another_form(cells: Sequence[str]) -> str | None:
    """The first cell that no form of the cells before it fits, if every cell is a date; None: there is none."""
    if _DATE.fullmatch(cells[0].strip()) is None:
        return None
    fits = [{form for form in DATE_FORMS if years(cell, form) is not None} for cell in cells]
    if not all(fits):
        return None
    common = set(DATE_FORMS)
    return next((cell for cell, forms in zip(cells, fits) if not (common := common & forms)), None)


# ── target ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _targets(
    rows: Rows, columns: Mapping[str, Column], given: Given, named: Sequence[str]
) -> list[str]:
    """The columns of the target: the named ones, one with a well-known name, or the last of numbers or classes."""
    if given.targets or given.target_kind == "none":
        return given.targets
    open_ones = [c for name, c in columns.items() if name not in named and name not in given.kinds]
    free = [column.name for column in open_ones if column.role == "input"]
    targets = []
    if given.target_kind == "labels":
        targets = [name for name in free if _is_yes_no(rows.columns[name])]
    if not targets:
        known = [
            column.name
            for wanted in TARGET_NAMES
            for column in open_ones
            if column.name.lower().strip() == wanted and column.role in ("input", "unused")
        ]
        kinds = {"number", "category"}
        if given.target_kind in ("text", "tags"):
            kinds = {"text", "words", "category"}
        last = [name for name in free if columns[name].kind in kinds]
        targets = known[:1] or last[-1:] or free[-1:]
        left = {column.name for column in open_ones if column.role in ("input", "group")} - {
            *targets
        }
        if not (named or given.kinds or left):
            targets = []
    if not targets and given.target_kind is not None:
        raise DataError(
            f"{rows.name} has no column for the target ({', '.join(rows.names)}); name one: --data.target"
        )
    return targets


def _is_yes_no(cells: Sequence[Any]) -> bool:
    found = {truth(cell) for cell in islice(cells, LOOKED_AT)}
    return {0.0, 1.0} <= found and None not in found


def _target_kind(
    rows: Rows, targets: Sequence[Column], cells: Mapping[str, Sequence[Any]]
) -> TargetKind:
    """The content of the targets: words and few whole numbers under a name of classes are classes, numbers measured."""
    if not targets:
        return "none"
    if len(targets) > 1:
        if all(column.kind == "number" for column in targets):
            return "numbers"
        if all(_is_yes_no(cells[column.name]) for column in targets):
            return "labels"
        names = ", ".join(column.name for column in targets)
        raise DataError(
            f"{rows.name}: several targets ({names}) are all numbers or all yes and no; give --data.target"
        )
    (target,) = targets
    if target.kind == "words":
        return "tags"
    filled = [cell for cell in cells[target.name] if not is_blank(cell)]
    if target.kind in FILES or any(isinstance(cell, list | dict) for cell in filled):
        what = f"{target.name} is {short(filled[0])}, which is no target"
        raise DataError(
            f"{rows.name}: {what}; give another --data.target, or what it holds: --data.target_kind"
        )
    numbers = [
        x for cell in filled if (x := number(cell, target.form)) is not None and not math.isnan(x)
    ]
    if target.kind == "number" or (
        target.kind in ("unused", "date") and len(numbers) == len(filled)
    ):
        few = set(numbers)
        is_whole = all(x.is_integer() for x in few) and 2 * len(few) <= len(numbers)
        is_class = len(few) == 2 or (len(few) <= FEW_VALUES and target.name.lower() in CLASS_NAMES)
        return "classes" if is_whole and is_class else "numbers"
    return "text" if target.kind in ("text", "smiles") else "classes"


# ── input ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _with_input(
    schema: Schema,
    rows: Rows,
    named: Sequence[str],
    reads: str | None,
    cells: Mapping[str, Sequence[Any]],
    input_flag: str,
) -> Schema:
    """The schema in which only what is read is an input: named columns, one for a recipe of one, or all."""
    inputs = [column for column in schema.columns if column.role == "input"]
    inputs = inputs or [column for column in schema.columns if column.role == "group"]
    if schema.steps:
        chosen = []
    elif named:
        chosen = list(named)
    elif reads is None:
        chosen = [column.name for column in inputs]
    else:
        chosen = [_one_input(schema, inputs, reads, cells, input_flag)]
    columns = []
    for column in schema.columns:
        if column.name in chosen:
            kind = _wanted(column, reads, is_tagged=schema.target_kind == "tags")
            why = column.why if column.role == "input" else ""
            columns.append(
                replace(
                    column,
                    kind=kind,
                    role="input",
                    why=why,
                    is_given=column.is_given or bool(named),
                )
            )
        elif column.role == "input":
            columns.append(replace(column, role="unused", why="the recipe reads one column"))
        else:
            columns.append(column)
    if schema.steps:
        columns = [
            series_of(schema.steps),
            *(column for column in columns if column.name not in named),
        ]
    elif not chosen:
        why = "; ".join(
            f"{column.name}: {column.why}" for column in columns if column.why
        ) or ", ".join(rows.names)
        raise DataError(f"{rows.name}: no column is left as input ({why}); give --data.columns")
    if schema.target_kind == "tags" and len(chosen) > 1:
        raise DataError(
            f"{rows.name}: tags need one input, not {', '.join(chosen)}; name one with --data.input"
        )
    if any(
        column.name == CELLS and column.role == "input" and column.kind not in OF_CELLS
        for column in columns
    ):
        raise DataError(f"{rows.name}: a column cannot be called {CELLS!r}; rename it")
    return replace(schema, columns=tuple(columns))


def _wanted(column: Column, reads: str | None, *, is_tagged: bool) -> str:
    """The kind as which a recipe reads a column: a recipe of texts reads categories and numbers as texts, too."""
    if is_tagged:
        return "words"
    if not reads or column.is_given:
        return column.kind if column.kind != "unused" else "text"
    return reads


def _one_input(
    schema: Schema,
    inputs: Sequence[Column],
    reads: str,
    cells: Mapping[str, Sequence[Any]],
    input_flag: str,
) -> str:
    """The one column that a recipe reads: of its kind, by name, else the longest text."""
    if reads:
        same = [column for column in inputs if column.kind == reads]
    else:
        same = list(inputs)
    if reads == "text" and not same:
        free = [column for column in schema.columns if column.role in ("input", "group")]
        same = [column for column in free if column.kind in ("category", "words", "smiles")]
    if not same:
        held = ", ".join(f"{column.name}: {column.kind}" for column in inputs) or "none"
        raise DataError(
            f"{schema.name} has no column of {reads or 'input'} left ({held}); name one with {input_flag}"
        )
    names = KINDS[reads or same[0].kind].input_names
    known = [column for wanted in names for column in same if column.name.lower().strip() == wanted]
    if known or len(same) == 1:
        return (known or same)[0].name
    lengths = {column.name: sum(len(str(cell)) for cell in cells[column.name]) for column in same}
    first, second = sorted(lengths, key=lambda name: -lengths[name])[:2]
    if reads == "text" and lengths[first] >= 2 * lengths[second]:
        return first
    both = ", ".join(map(repr, lengths))
    raise DataError(
        f"{schema.name}: the columns {both} fit equally as input; name one with {input_flag}"
    )


def _steps(rows: Rows, given: Given, own: set[str]) -> list[str]:
    """The columns that are one series; empty: the input is one column, or all."""
    if isinstance(given.input, list):
        if not given.input or len(set(given.input)) < len(given.input):
            raise DataError(
                f"{rows.name}: --data.input is {given.input}; give each column of a series once"
            )
        return given.input
    if (
        given.input is None
        or given.input in rows.names
        or not ("*" in given.input or "?" in given.input)
    ):
        return []
    pattern = re.compile(re.escape(given.input).replace(r"\*", ".*").replace(r"\?", "."))
    found = [
        name
        for name in rows.names
        if pattern.fullmatch(name) and name not in {*own, *given.targets}
    ]
    if not found:
        raise DataError(
            f"{rows.name}: no column is called as in {given.input!r} ({', '.join(rows.names[:5])})"
        )
    return found
