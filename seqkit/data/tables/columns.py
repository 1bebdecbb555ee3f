"""Which columns of a table are input and target, and what they hold: as told, or guessed from names and values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from seqkit.data.formats import AUDIO, IMAGE
from seqkit.data.tables.files import Rows
from seqkit.errors import DataError, one_line, suggest

Kind = Literal["text", "image", "audio", "smiles"]
"""What the input column holds; images and sounds are files, named relative to the table's folder."""

TargetKind = Literal["classes", "numbers", "text", "tags", "none"]
"""What the target column holds: a class, measurements, another text, a class for each word, or nothing to learn."""

INPUT_NAMES = {
    "text": "text input inputs sentence sentences body message content document review comment question tweet prompt",
    "image": "image images img path file filename file_name filepath photo picture",
    "audio": "audio sound path file filename file_name filepath clip recording wav",
    "smiles": "smiles canonical_smiles isomeric_smiles molecule mol structure",
    "pairs": "source src input inputs from question",
    "tags": "tokens words text sentence",
}
TARGET_NAMES = {
    "classes": "label labels target targets class category sentiment y output",
    "numbers": "target targets label labels y value score output",
    "text": "target tgt output outputs to translation answer",
    "tags": "tags ner_tags pos_tags pos ner labels tag",
}
TARGET_NAMES["any"] = f"{TARGET_NAMES['classes']} value score"

NUMBERING = ("id", "idx", "index", "row", "uuid", "key")
"""Names of columns that number the rows; they are never guessed."""

LOOKED_AT = 2_000
"""Rows by which columns are guessed."""

MISSING_NUMBERS = {"na", "n/a", "nan", "null", "none", "-", "?"}
"""What tables write, in lower case, where a number is missing."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table. targets: of the target, several only for numbers; empty: there is nothing to learn."""

    input: str
    targets: list[str]
    kind: Kind
    target_kind: TargetKind


@dataclass(frozen=True)
class Profile:
    """A column by its first values. length: mean of its texts. numbers: share of filled cells that are numbers."""

    name: str
    filled: int
    distinct: int
    length: float
    numbers: float
    lists: float
    is_binary: bool

    @property
    def repeats(self) -> bool:
        """Whether its values come again, as classes do."""
        return self.distinct <= max(2, self.filled // 2) and self.lists == 0


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: null, blank, NaN, an empty list."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, list) and not value)


def number(value: Any) -> float | None:
    """A cell as a number, NaN where it says that it is missing; None: it is something else."""
    if isinstance(value, bool) or value is None:
        return None if value is not None else math.nan
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        return None
    word = value.strip()
    if not word or word.lower() in MISSING_NUMBERS:
        return math.nan
    try:
        # float() knows more than tables mean: underscores, and digits of other scripts
        return float(word) if "_" not in word else None
    except ValueError:
        return None


def settle(
    rows: Rows,
    name: str,
    *,
    input: str | None = None,
    target: str | Sequence[str] | None = None,
    kind: Kind | None = None,
    target_kind: TargetKind | None = None,
    reserved: Sequence[str] = (),
) -> tuple[Columns, str]:
    """The columns, and a sentence that says what was guessed, empty where nothing was.

    name: of the table, for messages. reserved: columns that have another meaning, such as the split.
    Raises DataError where a column does not exist, or several fit equally, with their names and the flag that decides.
    """
    given = [target] if isinstance(target, str) else list(target or ())
    for column, flag in [(input, "input"), *((column, "target") for column in given)]:
        if column is not None:
            check_column(rows, name, column, flag)
    if len(rows) == 0:
        raise DataError(f"{name} has a header ({', '.join(rows.names)}) and no rows; give it rows")
    if input is not None and input in given:
        raise DataError(f"{name}: {input!r} is both input and target; give another column with --data.target")
    profiles = {column: _profile(rows, column) for column in rows.names}
    free = {
        column: profile for column, profile in profiles.items()
        if column not in (*reserved, *given, input) and profile.filled and not _is_numbering(column)
    }  # fmt: skip
    guessed: list[str] = []
    if kind is None:
        kind = _kind_of(rows, list(free) if input is None else [input])
        guessed.append("kind")
    if input is None:
        input = _input(name, kind, target_kind, free, needs_rest=not given and target_kind != "none")
        guessed.append("input")
    free.pop(input, None)
    if not given and target_kind != "none":
        given = [_target(name, target_kind, free, list(rows.names))]
        guessed.append("target")
    if target_kind is None:
        target_kind = _target_kind(rows, [profiles[column] for column in given])
        guessed.append("target_kind")
    if len(given) > 1 and target_kind != "numbers":
        raise DataError(
            f"{name}: several targets ({', '.join(given)}) are for numbers, and these are {target_kind}; "
            "give one column with --data.target"
        )
    if target_kind == "none":
        given = []
    _check_first_line(rows, name, [input, *given])
    columns = Columns(input, given, kind, target_kind)
    if not guessed:
        return columns, ""
    what = f"the input is column {input!r} ({kind})"
    what += f", the target {' and '.join(map(repr, given))} ({target_kind})" if given else ", without a target"
    flags = " ".join(f"--data.{key}" for key in guessed if key != "kind")
    return columns, f"{name}: {what}" + (f"; to choose: {flags}" if flags else "")


def check_column(rows: Rows, name: str, column: str, flag: str) -> None:
    """Raise DataError where there is no such column, with the nearest, and `--data.` flag."""
    if column not in rows.names:
        raise DataError(f"{name} has no column {column!r}; {suggest(column, rows.names)} (--data.{flag})")


def _is_numbering(column: str) -> bool:
    return column.lower() in NUMBERING or column.lower().endswith("_id") or column.startswith("column ")


def _profile(rows: Rows, column: str) -> Profile:
    values = [value for value in islice(rows.column(column), LOOKED_AT) if not is_missing(value)]
    numbers = [value for value in map(number, values) if value is not None]
    known = {value if isinstance(value, str | int | float) else repr(value) for value in values}
    count = max(len(values), 1)
    length = sum(len(value) if isinstance(value, str) else 0 for value in values) / count
    return Profile(
        column, len(values), len(known), length, len(numbers) / count,
        sum(isinstance(value, list) for value in values) / count, set(numbers) == {0.0, 1.0} and len(numbers) == count,
    )  # fmt: skip


def _kind_of(rows: Rows, candidates: Sequence[str]) -> Kind:
    for column in candidates:
        if column.lower() in ("smiles", "canonical_smiles", "isomeric_smiles"):
            return "smiles"
        cells = [str(value) for value in islice(rows.column(column), 100) if not is_missing(value)]
        for kind, known in (("image", IMAGE), ("audio", AUDIO)):
            if cells and all(Path(cell).suffix.lower() in known.suffixes for cell in cells):
                return kind  # type: ignore[return-value]
    return "text"


def _named(free: Iterable[str], names: str) -> list[str]:
    return [column for column in free if column.lower().strip() in names.split()]


def _input(name: str, kind: Kind, target_kind: str | None, free: dict[str, Profile], *, needs_rest: bool) -> str:
    group = {"text": "pairs", "tags": "tags"}.get(target_kind or "", kind) if kind == "text" else kind
    texts = [column for column, profile in free.items() if profile.numbers < 1]
    if group == "pairs" and (len(free) == 2 or not texts):
        texts = list(free)  # a text of digits is a text, too
    if target_kind == "tags" and any(free[column].lists for column in texts):
        texts = [column for column in texts if free[column].lists]
    pool = _named(texts, INPUT_NAMES[group]) or _without_target(texts, target_kind, needs_rest)
    if not pool:
        raise DataError(
            f"{name} has no column of {kind} left ({', '.join(free) or 'none'}); name one with --data.input"
        )
    if group == "pairs" and len(free) == 2:
        return pool[0] if len(pool) == 1 else next(iter(free))
    if kind == "smiles" and len(pool) > 1:
        pool = [column for column in pool if column.lower() == "smiles"] or pool
    by_length = sorted(pool, key=lambda column: -free[column].length)
    if len(by_length) > 1 and not (
        kind == "text" and group != "pairs" and free[by_length[0]].length >= 2 * free[by_length[1]].length
    ):
        raise DataError(f"{name}: {_all(by_length)} fit equally as input; name one with --data.input {by_length[0]!r}")
    return by_length[0]


def _without_target(texts: list[str], target_kind: str | None, needs_rest: bool) -> list[str]:
    """The columns that are not called as a target is, where one of them is."""
    if not needs_rest:
        return texts
    targets = _named(texts, TARGET_NAMES[target_kind or "any"])
    return [column for column in texts if column not in targets] or texts


def _target(name: str, target_kind: str | None, free: dict[str, Profile], names: list[str]) -> str:
    fits = {
        "classes": lambda profile: profile.repeats,
        "numbers": lambda profile: profile.numbers > 0.5,
        "text": lambda profile: profile.numbers < 1,
        "tags": lambda profile: profile.numbers < 1,
    }.get(target_kind or "", lambda profile: profile.repeats or profile.numbers > 0.5)
    if not free:
        raise DataError(
            f"{name} has the columns {', '.join(names)}, and none is left for the target; name one with --data.target"
        )
    pool = _named(free, TARGET_NAMES[target_kind or "any"])
    pool = pool or [column for column, profile in free.items() if fits(profile)]
    pool = pool or (list(free) if len(free) == 1 else [])
    if not pool:
        raise DataError(f"{name}: none of {_all(list(free))} looks like a target; name one with --data.target")
    if len(pool) > 1:
        raise DataError(f"{name}: {_all(pool)} fit equally as target; name one with --data.target {pool[0]!r}")
    return pool[0]


def _all(columns: Sequence[str]) -> str:
    shown = [repr(column) for column in columns[:8]]
    return f"the columns {', '.join(shown)}{', …' if len(columns) > 8 else ''}"


def _target_kind(rows: Rows, targets: Sequence[Profile]) -> TargetKind:
    """Words are classes, numbers are measurements; where all are 0 or 1, they are classes.

    Raises DataError where a column holds both.
    """
    for profile in targets:
        _check_decimal_commas(rows, profile.name)
    first = targets[0]
    if all(profile.is_binary for profile in targets) and len(targets) == 1:
        return "classes"
    if first.lists:
        return "tags"
    if all(profile.numbers == 1 for profile in targets):
        return "numbers"
    for profile in targets:
        if 0.5 < profile.numbers < 1:
            index, value = next(
                (i, value)
                for i, value in enumerate(rows.column(profile.name))
                if not is_missing(value) and number(value) is None
            )
            raise DataError(
                f"{rows.place(index)}: {profile.name} is {one_line(repr(value))}, and most of its cells are numbers; "
                "correct it, or say what they are: --data.target_kind numbers (then it is refused) or classes"
            )
    return "classes"


def _check_decimal_commas(rows: Rows, column: str) -> None:
    """Raise DataError where a column holds numbers that are written 1,5: they would be taken for classes."""
    first: tuple[int, Any] | None = None
    for i, value in enumerate(islice(rows.column(column), LOOKED_AT)):
        if is_missing(value):
            continue
        if not isinstance(value, str) or not re.fullmatch(r"\s*[-+]?\d+(,\d+)?\s*", value):
            return
        if "," in value and first is None:
            first = (i, value)
    if first is not None:
        raise DataError(
            f"{rows.place(first[0])}: {column} is {one_line(repr(first[1]))}, a number with a decimal comma; write a "
            "point, or say that these are classes: --data.target_kind classes"
        )


def _check_first_line(rows: Rows, name: str, columns: Sequence[str]) -> None:
    """Raise DataError where the header looks like a row: a table without one would lose its first row silently."""
    for column in columns[1:]:
        values = set()
        for value in islice(rows.column(column), LOOKED_AT):
            values.add(str(value).strip())
        if column in values or (number(column) is not None and "." in column):
            raise DataError(
                f"{name}, line 1 looks like a row, not like a header: {column!r} is a value; name the columns with "
                f"--data.columns '[{', '.join(f'column{i}' for i in range(1, len(rows.names) + 1))}]'"
            )
