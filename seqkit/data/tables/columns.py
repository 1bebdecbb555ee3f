"""Chooses the input and target columns of a table, and what they hold: as given, or guessed from names and values."""

from __future__ import annotations

import json
import math
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import yaml

from seqkit.data.formats import AUDIO, IMAGE
from seqkit.data.tables.file_cells import content_of, kind_of_content, name_of
from seqkit.data.tables.files import Rows, with_point
from seqkit.data.tables.molecules import is_molecule
from seqkit.errors import DataError, one_line, suggest
from seqkit.files import load_yaml

Kind = Literal["text", "image", "audio", "smiles", "series", "file"]
"""Content of the input column. Images, sounds and files that the tokenizer reads itself (`Tokenizer.read`) are named
relative to the table's folder; of images and sounds it may hold the bytes. A series is a list of numbers, or of lists
of numbers. A text may be a conversation, a list of messages."""

OF_FILES = ("image", "audio", "file")
"""Kinds of input that are names of files."""

TargetKind = Literal["classes", "numbers", "labels", "text", "tags", "none"]
"""Content of the target columns: a class, measurements, yes or no, another text, a class for each word, or nothing."""

INPUT_NAMES = {
    "text": "text input inputs sentence sentences body message content document review comment question tweet prompt "
    "messages conversations conversation chat",
    "image": "image images img path file filename file_name filepath photo picture",
    "audio": "audio sound path file filename file_name filepath clip recording wav",
    "smiles": "smiles canonical_smiles isomeric_smiles molecule mol structure",
    "series": "series values signal measurements sequence features x",
    "file": "path file filename file_name filepath recording measurement",
    "pairs": "source src input inputs from question",
    "tags": "tokens words text sentence",
}
TARGET_NAMES = {
    "classes": "label labels target targets class category sentiment y output outcome result ergebnis klasse",
    "numbers": "target targets label labels y value score output",
    "text": "target tgt output outputs to translation answer",
    "labels": "label labels target targets",
    "tags": "tags ner_tags pos_tags pos ner labels tag",
}
TARGET_NAMES["any"] = f"{TARGET_NAMES['classes']} value score"

NUMBERING = ("id", "idx", "index", "row", "uuid", "key")
"""Names of columns that number the rows; they are never guessed."""

LEARN_ALL = "--model.objective MultiLabel"
MESSAGE_KEYS = (("role", "content"), ("from", "value"))
"""Keys of a message of a conversation: who says it, and what."""

FEW_VALUES = 20
"""Different words up to which a column looks like classes, where columns of numbers and other words may be meant, too.
"""

LOOKED_AT = 2_000
"""Number of rows by which columns are guessed."""

MISSING = {
    "nan", "-nan", "+nan", "nan(ind)", "-nan(ind)", "1.#qnan", "-1.#qnan", "1.#ind", "-1.#ind", "n/a", "#n/a",
    "#n/a n/a", "#na", "<na>", "nat", "null", "(null)", "<null>", "[null]", r"\n",
}  # fmt: skip
"""Words, in lower case, that programs write where nothing is known: those of pandas.read_csv, C, SQL and Excel."""

AMBIGUOUS = {"na", "none", "-", "?"}
"""Words, in lower case, that may name a class or say that it is missing: they are classes, and a line says so. No
number is called so: among numbers they are missing."""

YES_NO: dict[str, tuple[tuple[str, str], ...]] = {
    "English": (("yes", "no"), ("y", "n"), ("true", "false")),
    "German": (("ja", "nein"), ("j", "n")),
    "French": (("oui", "non"),),
    "Spanish": (("sí", "no"), ("si", "no")),
    "Italian": (("sì", "no"), ("si", "no")),
    "Portuguese": (("sim", "não"), ("sim", "nao")),
}
"""For a language, its words for the two values of a label, in lower case. A column's words are of one language."""

TRUTHS = {word: float(i == 0) for pairs in YES_NO.values() for pair in pairs for i, word in enumerate(pair)}

YES_NO_WORDS = ", ".join(dict.fromkeys("/".join(pair) for pairs in YES_NO.values() for pair in pairs))
"""The words for the two values of a label, for messages."""

QUOTES = "\"'`\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a"
"""Quotation marks, in which spreadsheets and people put names."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table. targets: columns of the target, several for numbers and labels; empty: nothing to learn.
    kind: "row": the input is the row, and `input` what a row must have. steps: the columns of a series that is spread
    over several, of which `input` is the name; empty: the input is one column."""

    input: str
    targets: list[str]
    kind: Kind | Literal["row"]
    target_kind: TargetKind
    steps: tuple[str, ...] = ()

    @property
    def inputs(self) -> str | list[str]:
        """The input as data sources take it: a column, or those of a series."""
        return list(self.steps) or self.input

    @property
    def target(self) -> str | list[str] | None:
        """The target as data sources take it: a column, several, or None."""
        return self.targets[0] if len(self.targets) == 1 else self.targets or None


@dataclass(frozen=True)
class Profile:
    """First values of a column. filled, distinct: their number. length: mean length of texts. numbers: share of
    numbers among the cells that hold something. lists: share of lists. is_binary: it holds zeros and ones alone.
    is_yes_no: it holds yes and no, in the words of one language. words: mean number of words of a text."""

    filled: int
    distinct: int
    length: float
    numbers: float
    lists: float
    is_binary: bool
    is_yes_no: bool
    words: float

    @property
    def repeats(self) -> bool:
        """Whether values are repeated, as classes are."""
        return self.distinct <= max(2, self.filled // 2) and self.lists == 0


def is_missing(value: Any) -> bool:
    """Whether a cell is blank, or a word for it."""
    return is_blank(value) or (isinstance(value, str) and value.strip().lower() in MISSING)


def is_blank(value: Any) -> bool:
    """Whether a cell holds nothing: null, blank, NaN, an empty list or file. Of texts nothing else is missing."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, dict):
        return value.keys() <= {"bytes", "path"} and not any(value.values())
    return value is None or (isinstance(value, list | bytes) and not value)


def truth(value: Any) -> float | None:
    """1 for yes, 0 for no, NaN where it is missing; None: it is something else."""
    if isinstance(value, bool):
        return float(value)
    if is_missing(value):
        return math.nan
    if isinstance(value, str) and (word := _word(value)) in TRUTHS:
        return TRUTHS[word]
    found = number(value)
    return found if found in (0.0, 1.0) or (found is not None and math.isnan(found)) else None


def languages(value: Any) -> set[str]:
    """The languages in which a word says yes or no; all of them for true, false, numbers, and what is missing."""
    word = _word(value) if isinstance(value, str) else ""
    of_one = word in TRUTHS and word not in ("true", "false")
    return {name for name, pairs in YES_NO.items() if not of_one or any(word in pair for pair in pairs)}


def _word(text: str) -> str:
    """A word in one Unicode form, without case and the spaces around it."""
    return unicodedata.normalize("NFC", text.strip().lower())


def number(value: Any, decimal: str = ".") -> float | None:
    """A cell as a number, NaN where it says that it is missing; None: it is something else. decimal: as of `Rows`."""
    if isinstance(value, bool) or value is None:
        return None if value is not None else math.nan
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        return None
    word = value.strip()
    if is_missing(word) or word.lower() in AMBIGUOUS:
        return math.nan
    text = with_point(word, decimal)
    try:
        # float() reads 1_000, which is a name in a table
        return float(text) if text is not None and "_" not in text else None
    except ValueError:
        return None


def exact_number(text: str) -> int | float | None:
    """A finite number, an integer with all its digits; None: the text is something else, or missing."""
    value = number(text)
    if value is None or not math.isfinite(value):
        return None
    try:
        return int(text)
    except ValueError:
        return value


def folded(name: str) -> str | float:
    """A class name as it looks: without case, spaces, quotes around it, invisible characters; a number as its value."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    text = "".join(c for c in text if not c.isspace() and unicodedata.category(c) not in ("Cc", "Cf"))
    text = text.strip(QUOTES) or text
    value = exact_number(text)
    return text if value is None else value


def lookalike(name: str, names: Iterable[str]) -> str:
    """A remark on that of `names` that looks like `name`; empty: none does."""
    found = next((one for one in names if folded(one) == folded(name)), None)
    return "" if found is None else f" (it has {found!a}, and this is {name!a})"


def settle(
    rows: Rows,
    *,
    input: str | None = None,
    target: str | Sequence[str] | None = None,
    kind: Kind | None = None,
    target_kind: TargetKind | None = None,
    split: str | None = None,
    group: str | None = None,
    files_in: Path | None = None,
) -> tuple[Columns, str]:
    """The columns of a table, and a sentence on what was guessed; it is empty where nothing was.

    split: column that is not guessed. group: column that may be the input, if it would be guessed were it no group, and
    not the target. files_in: folder of the files that the
    input may name, since the tokenizer reads them itself; None: it does not.
    Raises DataError where a column does not exist, or several fit equally, with their names and the flag that decides.
    """
    name = rows.name
    targets = [target] if isinstance(target, str) else list(target or ())
    named = [("input", input), *(("target", column) for column in targets), ("split", split), ("group", group)]
    for flag, column in named:
        if column is not None:
            check_column(rows, column, f"--data.{flag}")
    if len(rows) == 0:
        raise DataError(f"{name} has a header ({', '.join(rows.names)}) and no rows; give it rows")
    if input is not None and input in targets:
        raise DataError(f"{name}: {input!r} is both input and target; give another column with --data.target")
    known = {"input": input, "target": targets or target_kind == "none", "target_kind": target_kind, "kind": kind}
    guessed = [key for key, value in known.items() if not value]
    profiles = {column: profile_of(rows, column) for column in rows.names} if guessed else {}
    free = {
        column: profile for column, profile in profiles.items()
        if column not in dict(named).values() and column not in targets and profile.filled and not is_numbering(column)
    }  # fmt: skip
    needs_rest = not targets and target_kind != "none"
    if input is None and group in profiles and group not in (split, *targets) and profiles[group].filled:
        with suppress(DataError):  # several fit, the group among them: it is none of them
            with_group = {column: profiles[column] for column in rows.names if column in free or column == group}
            found = _input(rows, kind, target_kind, with_group, needs_rest=needs_rest, files_in=files_in)
            input, kind = (found[0], found[1]) if found[0] == group else (input, kind)
    if input is None:
        input, kind = _input(rows, kind, target_kind, free, needs_rest=needs_rest, files_in=files_in)
    elif kind is None:
        kind = "series" if input in rows.steps else kind_of(rows, [input])
        kind = "file" if _files_among(rows, [input], files_in) else kind
    free.pop(input, None)
    targets, target_kind = settle_target(rows, targets, target_kind, free, profiles)
    steps = tuple(rows.steps.get(input, ()))
    if steps and kind != "series":
        raise DataError(
            f"{name}: several input columns are a series of numbers, not {kind}; read them with --tokenizer Series, or "
            "name one column with --data.input"
        )
    columns = Columns(input, targets, kind, target_kind, steps)
    if not guessed:
        return columns, ""
    what = f"{name}: the input is column {input!r} ({kind}), "
    what += f"the target {' and '.join(map(repr, targets))} ({target_kind})" if targets else "without a target"
    flags = " ".join(f"--data.{key}" for key in guessed if key != "kind")
    return columns, what + (f"; to choose: {flags}" if flags else "")


def settle_target(
    rows: Rows,
    targets: list[str],
    target_kind: TargetKind | None,
    free: Mapping[str, Profile],
    profiles: Mapping[str, Profile],
) -> tuple[list[str], TargetKind]:
    """The columns of the target and what they hold. free: profiles of the columns of which one may be guessed.

    Raises DataError where several fit equally, or they cannot be learned.
    """
    if not targets and target_kind == "labels":
        targets = [column for column, profile in free.items() if profile.is_yes_no]
    if not targets and target_kind != "none":
        targets = [_target(rows.name, target_kind, free, rows.names)]
    if target_kind is None:
        target_kind = _target_kind(rows, {column: profiles[column] for column in targets})
    if len(targets) > 1 and target_kind not in ("numbers", "labels"):
        yes_no = [column for column in targets if profile_of(rows, column).is_yes_no]
        advice = f", or learn yes and no of each: {LEARN_ALL}" if yes_no == targets else ""
        raise DataError(
            f"{rows.name}: several targets ({', '.join(targets)}) are for numbers, and these are {target_kind}; "
            f"give one column with --data.target{advice}"
        )
    targets = [] if target_kind == "none" else targets
    _check_first_line(rows, targets)
    return targets, target_kind


def check_column(rows: Rows, column: str, flag: str) -> None:
    """Raise DataError where there is no such column, with the nearest one and the flag that names it."""
    if column not in rows.names:
        raise DataError(f"{rows.name} has no column {column!r}; {suggest(column, rows.names)} ({flag})")


def option(name: str, value: str | Mapping[str, str] | Sequence[str]) -> str:
    """`--data.NAME VALUE`, to be pasted into a shell: quoted where a column's name has spaces, quotes or colons."""
    if isinstance(value, Mapping):
        value = f"{{{', '.join(f'{_in_yaml(column)}: {kind}' for column, kind in value.items())}}}"
    elif not isinstance(value, str):
        value = f"[{', '.join(map(_in_yaml, value))}]"
    return f"--data.{name} {shlex.quote(value)}"


def _in_yaml(word: str) -> str:
    """A word inside a list or mapping of YAML, in double quotes where it would be read as something else."""
    with suppress(yaml.YAMLError):
        if load_yaml(f"{{{word}: x}}") == {word: "x"} and load_yaml(f"[{word}]") == [word]:
            return word
    return json.dumps(word, ensure_ascii=False)


def is_nameless(column: str) -> bool:
    """Whether a CSV file has no name for the column, as pandas writes the index."""
    return column.startswith("column ")


def is_pattern(column: str) -> bool:
    """Whether the name of a column may stand for several: it has a star or a question mark."""
    return "*" in column or "?" in column


def is_numbering(column: str) -> bool:
    """Whether the name of a column says that it numbers the rows."""
    return column.lower() in NUMBERING or column.lower().endswith("_id") or is_nameless(column)


def profile_of(rows: Rows, column: str) -> Profile:
    """Profile of the first values of a column."""
    values = [value for value in islice(rows.column(column), LOOKED_AT) if not is_missing(value)]
    parsed = [
        x for x in (number(value, rows.decimal) for value in values) if x is None or not math.isnan(x)
    ]  # what says "missing" is neither
    numbers = [x for x in parsed if x is not None]
    truths = {truth(value) for value in values}
    is_yes_no = truths == {0.0, 1.0} and bool(set(YES_NO).intersection(*map(languages, values)))
    distinct = {_plain(value) for value in values}
    count = max(len(values), 1)
    num_words = [len(value.split()) for value in values if isinstance(value, str)]
    return Profile(
        filled=len(values),
        distinct=len(distinct),
        length=sum(len(value) for value in values if isinstance(value, str)) / count,
        numbers=len(numbers) / max(len(parsed), 1),
        lists=sum(isinstance(value, list) for value in values) / count,
        is_binary=set(numbers) == {0.0, 1.0} and len(numbers) == len(parsed),
        is_yes_no=is_yes_no,
        words=sum(num_words) / max(len(num_words), 1),
    )


def _plain(value: Any) -> Any:
    """A value that may be in a set: a cell, the bytes of its file, or how it is written."""
    content = content_of(value)
    return content if content is not None else value if isinstance(value, str | int | float) else repr(value)


def kind_of(rows: Rows, candidates: Sequence[str]) -> Kind:
    """Kind of the first candidate whose name or values say one; else text."""
    for column in candidates:
        if column.lower() in ("smiles", "canonical_smiles", "isomeric_smiles"):
            return "smiles"
        cells = [value for value in islice(rows.column(column), 100) if not is_missing(value)]
        contents = [content for cell in cells if (content := content_of(cell)) is not None]
        if cells and len(contents) == len(cells):
            return kind_of_content(contents[0])
        if cells and all(is_series(cell) for cell in cells):
            return "series"
        names = [str(name_of(cell)) for cell in cells]
        for kind, known in (("image", IMAGE), ("audio", AUDIO)):
            if names and all(Path(name).suffix.lower() in known.suffixes for name in names):
                return kind  # type: ignore[return-value]
    return "text"


def is_series(cell: Any) -> bool:
    """Whether a cell is a list of numbers, or of lists of numbers."""
    rows = cell if isinstance(cell, list) else []
    steps = [x for row in rows for x in (row if isinstance(row, list) else [row])]
    return bool(steps) and all(isinstance(x, int | float) and not isinstance(x, bool) for x in steps)


def conversation(cell: Any) -> str | None:
    """A list of messages, each with `role` and `content`, as a text: a line `role: content` for each.

    Also messages with `from` and `value`. None: the cell is something else.
    """
    if not isinstance(cell, list):
        return None
    lines = []
    for message in cell:
        keys = next((keys for keys in MESSAGE_KEYS if isinstance(message, dict) and {*keys} <= message.keys()), None)
        if keys is None or not all(isinstance(message[key], str) for key in keys):
            return None
        lines.append(f"{message[keys[0]]}: {message[keys[1]]}")
    return "\n".join(lines) or None


def _files_among(rows: Rows, columns: Iterable[str], folder: Path | None) -> list[str]:
    """The columns that name files in the folder."""
    return [column for column in columns if folder is not None and _names_files(rows, column, folder)]


def _names_files(rows: Rows, column: str, folder: Path) -> bool:
    """Whether most of the first cells are names of files in the folder."""
    cells = [value for value in islice(rows.column(column), 100) if not is_missing(value)]
    found = 0
    for cell in cells:
        with suppress(OSError, ValueError, TypeError):  # a long text is no path
            found += (folder / cell).is_file()
    return 2 * found > len(cells)


def _named(free: Iterable[str], names: str) -> list[str]:
    return [column for column in free if column.lower().strip() in names.split()]


def _input(
    rows: Rows,
    kind: Kind | None,
    target_kind: str | None,
    free: dict[str, Profile],
    *,
    needs_rest: bool,
    files_in: Path | None,
) -> tuple[str, Kind]:
    """The input column and its kind. free: profiles of the columns of which one may be guessed."""
    of_files = _files_among(rows, free, files_in)
    if kind is None:
        kind = "file" if of_files else kind_of(rows, list(free))
    if kind in OF_FILES and len(of_files) == 1:
        return of_files[0], kind
    return _named_or_longest(rows, kind, target_kind, free, needs_rest=needs_rest), kind


def _named_or_longest(
    rows: Rows, kind: Kind, target_kind: str | None, free: dict[str, Profile], *, needs_rest: bool
) -> str:
    """The input column, by its name, else the longest text. needs_rest: the target is still to be found."""
    name = rows.name
    group = {"text": "pairs", "tags": "tags"}.get(target_kind or "", kind) if kind == "text" else kind
    texts = [column for column, profile in free.items() if profile.numbers < 1]
    if group == "pairs" and (len(free) == 2 or not texts):
        texts = list(free)  # a text of digits is a text, too
    if target_kind == "tags":
        texts = [column for column in texts if free[column].lists] or texts
    targets = _named(texts, TARGET_NAMES[target_kind or "any"]) if needs_rest else []
    pool = _named(texts, INPUT_NAMES[group])
    pool = pool or (_of_molecules(rows, texts) if kind == "smiles" else [])
    pool = pool or [column for column in texts if column not in targets] or texts
    if not pool:
        raise DataError(
            f"{name} has no column of {kind} left ({', '.join(free) or 'none'}); name one with --data.input"
        )
    if group == "pairs" and len(free) == 2:
        return pool[0] if len(pool) == 1 else next(iter(free))
    if kind == "smiles" and len(pool) > 1:
        pool = [column for column in pool if column.lower() == "smiles"] or pool
    first, *others = sorted(pool, key=lambda column: -free[column].length)
    may_be_longest = kind == "text" and group != "pairs"
    if others and not (may_be_longest and free[first].length >= 2 * free[others[0]].length):
        raise DataError(f"{name}: {_all([first, *others])} fit equally as input; name one with --data.input")
    return first


def _of_molecules(rows: Rows, columns: Iterable[str]) -> list[str]:
    """The columns that hold molecules: by names with `smiles` in them, else by rdkit on the first cells."""
    columns = list(columns)
    if named := [column for column in columns if "smiles" in column.lower()]:
        return named
    found = []
    for column in columns:
        cells = [value for value in islice(rows.column(column), 100) if not is_missing(value)][:20]
        if cells and 2 * sum(isinstance(cell, str) and is_molecule(cell) for cell in cells) > len(cells):
            found.append(column)
    return found


def _target(name: str, target_kind: str | None, free: Mapping[str, Profile], names: list[str]) -> str:
    fits = {
        "classes": lambda profile: profile.repeats,
        "numbers": lambda profile: profile.numbers > 0.5,
        "labels": lambda profile: profile.is_yes_no,
        "text": lambda profile: profile.numbers < 1,
        "tags": lambda profile: profile.numbers < 1,
    }.get(target_kind or "", lambda profile: profile.repeats or profile.numbers > 0.5)
    if not free:
        raise DataError(
            f"{name} has the columns {', '.join(names)}, and none is left for the target; name one with --data.target"
        )
    pool = _named(free, TARGET_NAMES[target_kind or "any"])
    pool = pool or [column for column, profile in free.items() if fits(profile)] or list(free)[: len(free) == 1]
    if not pool:
        wants = f"holds yes and no ({YES_NO_WORDS}, 1/0)" if target_kind == "labels" else "looks like a target"
        raise DataError(f"{name}: none of {_all(list(free))} {wants}; name one with --data.target")
    if len(pool) > 1:
        may_be_number = target_kind not in (None, "classes")
        few = [column for column in pool if _looks_like_classes(free[column]) and not may_be_number]
        likely = few if len(few) > 1 else pool  # of one alone, whether its classes are meant is as open as before
        others = len(pool) - len(likely)
        more = f" ({others} more {'hold' if others > 1 else 'holds'} numbers or many values)" if others else ""
        yes_no = [column for column in pool if free[column].is_yes_no]
        some = "each:" if yes_no == pool else f"several: {option('target', yes_no)}"
        advice = f", or learn yes and no of {some} {LEARN_ALL}" if len(yes_no) > 1 else ""
        raise DataError(f"{name}: {_all(likely)} fit equally as target{more}; name one with --data.target{advice}")
    return pool[0]


def _looks_like_classes(profile: Profile) -> bool:
    """Whether a column holds few words that are repeated, or yes and no."""
    return profile.is_yes_no or (profile.numbers < 1 and profile.repeats and profile.distinct <= FEW_VALUES)


def _all(columns: Sequence[str]) -> str:
    shown = [repr(column) for column in columns[:8]]
    return f"the columns {', '.join(shown)}{', …' if len(columns) > 8 else ''}"


def _target_kind(rows: Rows, targets: Mapping[str, Profile]) -> TargetKind:
    """Words are classes, numbers are measurements; a column of zeros and ones holds classes.

    Raises DataError where a column holds both.
    """
    for column in targets:
        check_decimals(rows, column, "--data.target_kind classes")
    profiles = list(targets.values())
    if len(profiles) == 1 and profiles[0].is_binary:
        return "classes"
    if profiles[0].lists:
        return "tags"
    if all(profile.numbers == 1 for profile in profiles):
        return "numbers"
    for column, profile in targets.items():
        if 0.5 < profile.numbers < 1:
            cells = enumerate(rows.column(column))
            index, value = next(
                (i, cell) for i, cell in cells if not is_missing(cell) and number(cell, rows.decimal) is None
            )
            raise DataError(
                f"{rows.place(index)}: {column} is {one_line(repr(value))}, and most of its cells are numbers; "
                "correct it, or say what they are: --data.target_kind numbers (then it is refused) or classes"
            )
    return "classes"


def decimal_hint(value: Any, decimal: str) -> str:
    """Words before other advice, where a cell is a number with a decimal comma; empty: it is none."""
    is_number = decimal == "." and isinstance(value, str) and number(value, decimal) is None
    return "give --data.decimal , for decimal commas, " if is_number and number(value, ",") is not None else ""


def check_decimals(rows: Rows, column: str, otherwise: str) -> None:
    """Raise DataError where a column holds numbers with a decimal comma, and the table is read with points, or the
    other way round: they would be taken for classes.

    otherwise: the flag that says so."""
    cells = [(i, value) for i, value in enumerate(islice(rows.column(column), LOOKED_AT)) if not is_missing(value)]
    own, other, name = (".", ",", "comma") if rows.decimal == "." else (",", ".", "point")
    wrong = [(i, value) for i, value in cells if isinstance(value, str) and number(value, own) is None]
    if wrong and all(number(value, own) is not None or number(value, other) is not None for _, value in cells):
        row, value = wrong[0]
        write = "point" if own == "." else "comma"
        raise DataError(
            f"{rows.place(row)}: {column} is {one_line(repr(value))}, a number with a decimal {name}; give "
            f"--data.decimal {other} if all numbers of the table have it, or write a {write}, or say that these are "
            f"classes: {otherwise}"
        )


def _check_first_line(rows: Rows, columns: Sequence[str]) -> None:
    """Raise DataError where the header looks like a row: a table without one would lose its first row silently."""
    for column in columns:
        values = {str(value).strip() for value in islice(rows.column(column), LOOKED_AT)}
        if column in values or (number(column) is not None and "." in column):
            names = ", ".join(f"column{i}" for i in range(1, len(rows.names) + 1))
            raise DataError(
                f"{rows.name}, line 1 looks like a row, not like a header: {column!r} is a value; name the columns "
                f"with --data.columns '[{names}]'"
            )
