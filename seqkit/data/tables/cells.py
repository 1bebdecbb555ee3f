"""The content of a single cell of a table: numbers, dates, words, files, molecules, conversations, series."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import normalize

from seqkit.errors import DataError, one_line
from seqkit.raw import Years

SOUNDS = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"\xff\xfb")
"""First bytes of files of sound."""

MESSAGE_KEYS = (("role", "content"), ("from", "value"))
"""Keys of a message of a conversation: who says it, and what."""

MISSING = {
    "", "nan", "-nan", "+nan", "n/a", "#n/a", "#na", "<na>", "nat", "null", "(null)", "<null>", "\\n",
    *(day + clock for day in ("0000-00-00", "00.00.0000", "00/00/0000", "9999-12-31", "31.12.9999", "31/12/9999",
    "12/31/9999") for clock in ("", " 00:00:00")),
}  # fmt: skip
"""Words, in lower case, that programs write where nothing is known; texts may be called so, other cells are missing."""

AMBIGUOUS = ("na", "none", "-", "?", ".", "missing")
"""Words, in lower case, that may be a value. Where one stands among numbers, it is missing in the whole table."""

_YES = "yes y true t 1 ja j wahr oui vrai sí si sì verdadero vero sim verdadeiro"
_NO = "no n false f 0 nein falsch non faux falso não nao"

TRUTHS = {**dict.fromkeys(_YES.split(), 1.0), **dict.fromkeys(_NO.split(), 0.0)}
"""Words, in lower case and NFC, for yes and no: in English, German, French, Spanish, Italian and Portuguese."""

_NUMBER = re.compile(
    r"([-+]?)\s*[$€£¥₹]?\s*([-+]?)((?:[1-9]\d{0,2}(?:[,\s'\u00a0\u202f]\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?)"
    r"\s*([kKM]?)\s*[$€£¥₹%]?\s*(-?)"
)
"""A number as people write it: sign, currency, groups of three digits, thousands or millions, per cent, sign behind."""

_THOUSANDS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}

_CLOCK = re.compile(
    r"(?:(\d+) days?,? )?(?:(\d{1,3}):)?(\d{1,3}):([0-5]\d(?:\.\d+)?)(?:\s*([ap])\.?m\.?)?",
    re.IGNORECASE,
)
"""A time of day, or a duration: minutes and seconds, hours before them, days."""

_QUARTER = re.compile(r"(?:(\d{4})[-\s/]?)?(?:Q([1-4])|([1-4])Q)(?:[-\s/]?(\d{4}))?", re.IGNORECASE)
"""A quarter of a year: 2020Q1, Q1 2020."""

COMPACT_DATE = "%Y%m%d"


SERIES_WORDS = 8
"""Numbers without brackets from which on a text is a list of them; a phone number has fewer groups."""

CODE = re.compile(r"0\d+")
"""A whole number that begins with a zero, as postcodes do."""

EXPONENT = re.compile(r"\d+E\d+")
"""A code of digits around an E, as of flats and wells; programs write numbers as 1.5E2 or 1e+02."""


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
    return is_blank(cell) or (
        isinstance(cell, str) and ((word := cell.strip().lower()) in MISSING or word in missing)
    )


def number(cell: Any, form: str = "") -> float | None:
    """A cell as a number, NaN where a program wrote that it is missing; None: it is something else.

    form: "," where decimals stand behind a comma, and points group digits; "CHF #", "# kg" or "#,# kg" where a unit
    stands beside the number, #. A clock's time is in its smallest unit; numbers in parentheses are negative.
    """
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        try:
            return float(cell)
        except OverflowError:
            return math.copysign(math.inf, cell > 0 or -1)
    if not isinstance(cell, str):
        return None
    text = cell.replace("\u2212", "-")
    if "#" in form:
        before, _, after = form.replace("#,#", "#").partition("#")
        text = text.strip().removeprefix(before).removesuffix(after)
    if "," in form:
        text = text.translate(_SWAPPED)
    try:
        found = float(text)
    except ValueError:
        pass
    else:
        return None if "_" in text else found  # 1_000 is a name in a table
    if cell.strip().lower() in MISSING:
        return math.nan
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = f"-{text[1:-1]}"
    match = _NUMBER.fullmatch(text)
    if match is None:
        return _clock(text)
    sign = match[1] + match[2] + match[5]
    if len(sign) > 1 or not any(map(str.isdigit, match[3])):
        return None
    with suppress(ValueError):
        digits = re.sub(r"[,\s'\u00a0\u202f]", "", match[3])
        return float(sign + digits) * _THOUSANDS[match[4]]
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


def _clock(text: str) -> float | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, first, second, last, half = match.groups()
    if first is not None and int(second) > 59:
        return None
    found = int(second) * 60 + float(last)
    day = 24 * 60
    if first is not None:
        found += int(first) * 3600
        day *= 60
    if half:
        found = found % (day / 2) + (day / 2) * (half in "pP")
    return found + int(days or 0) * day


_SWAPPED = str.maketrans(",.", ".,")


def years(cell: Any, form: str = "") -> Years | None:
    """A date in years since 1970, as ISO 8601 or a quarter ("") or `form` writes it; None: it is something else."""
    if isinstance(cell, date):
        return Years.of(cell)
    if form == COMPACT_DATE and isinstance(cell, int):
        cell = str(cell)
    if not isinstance(cell, str):
        return None
    text = cell.strip()
    with suppress(ValueError):
        if form:
            return Years.of(datetime.strptime(text, form))
        if not text.isdigit():
            return Years.of(datetime.fromisoformat(text))
    match = _QUARTER.fullmatch(text)
    if not form and match is not None and bool(match[1]) != bool(match[4]):
        return Years.of(date(int(match[1] or match[4]), 3 * int(match[2] or match[3]) - 2, 1))
    return None


def truth(cell: Any, missing: Iterable[str] = ()) -> float | None:
    """1 for yes, 0 for no, NaN where it is missing; None: it is something else."""
    if is_missing(cell, missing):
        return math.nan
    if isinstance(cell, bool | int | float) and cell in (0, 1):
        return float(cell)
    if isinstance(cell, str):
        return TRUTHS.get(normalize("NFC", cell.strip().lower()))
    return None


def word_of(cell: Any) -> str:
    """A category or class as a word."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return f"{cell:.15g}"
    word = str(cell).strip()
    if len(word) > 2 and word[0] == word[-1] == '"':
        return word[1:-1].strip()
    return word


def is_word(cell: Any) -> bool:
    """Whether a cell is a text without spaces inside."""
    return isinstance(cell, str) and len(cell.split()) == 1


def words_of(cell: Any) -> list[Any]:
    """Words or tags of a cell: a list, or a text with spaces between them."""
    if isinstance(cell, str):
        return cell.split()
    if isinstance(cell, list):
        return list(cell)
    return [cell]


def short(value: Any) -> str:
    """A cell as an error shows it."""
    if isinstance(value, bytes):
        value = value[:40]
    text = repr(value)
    if len(text) > 60:
        text = f"{text[:57]}…"
    return one_line(text)


def content_of(cell: Any) -> bytes | None:
    """Bytes of the file in a cell, as they are or under the key `bytes`; None: the cell holds none."""
    if isinstance(cell, dict):
        cell = cell.get("bytes")
    return cell if isinstance(cell, bytes) else None


def name_of(cell: Any) -> Any:
    """The cell itself, or what stands under the key `path` where it has no bytes: the name of a file."""
    if isinstance(cell, dict) and cell.keys() <= {"bytes", "path"}:
        return cell.get("path")
    return cell


def read_content(content: bytes, read: Callable[[Path], Any], column: str) -> Any:
    """The bytes of a file, read by a reader of files. Raises DataError as that, with the column in place of a path."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        file.write_bytes(content)
        try:
            return read(file)
        except DataError as error:
            raise DataError(str(error).replace(str(file), f"the file in {column}")) from None


def numbers_of(text: str) -> list[float] | None:
    """The numbers of a list that is written as a text: in brackets, or eight or more with spaces or commas between.

    None: it is something else.
    """
    inside = text.strip()
    is_bracketed = inside.startswith("[") and inside.endswith("]")
    if is_bracketed:
        inside = inside[1:-1]
    words = inside.replace(",", " ").split()
    if not words or (len(words) < SERIES_WORDS and not is_bracketed):
        return None
    with suppress(ValueError):
        return [float(word) for word in words]
    return None


def is_series(cell: Any) -> bool:
    """Whether a cell is a list of numbers, or of lists of numbers."""
    if not isinstance(cell, list):
        return False
    steps = cell
    if all(isinstance(row, list) for row in cell):
        steps = [x for row in cell for x in row]
    is_number = [isinstance(x, int | float) and not isinstance(x, bool) for x in steps]
    return bool(steps) and all(is_number)


def conversation(cell: Any) -> str | None:
    """A list of messages, each with `role` and `content`, as a text: a line `role: content` for each.

    Also messages with `from` and `value`. None: the cell is something else.
    """
    if not isinstance(cell, list):
        return None
    lines = []
    for message in cell:
        if not isinstance(message, dict):
            return None
        keys = next((keys for keys in MESSAGE_KEYS if {*keys} <= message.keys()), None)
        if keys is None or not all(isinstance(message[key], str) for key in keys):
            return None
        lines.append(f"{message[keys[0]]}: {message[keys[1]]}")
    return "\n".join(lines) or None


def canonical(smiles: str) -> str:
    """The canonical SMILES of a molecule, the same for every way to write it; the text itself where rdkit reads none.

    Without rdkit, too, it is the text: nothing else reads molecules then.
    """
    return _canonical(smiles) or smiles


def is_molecule(text: str) -> bool:
    """Whether rdkit reads a text as SMILES. Without rdkit nothing is one."""
    return bool(_canonical(text))


def _canonical(smiles: str) -> str | None:
    with suppress(ImportError, UnicodeError, RuntimeError, ValueError):
        from rdkit import Chem, rdBase

        with rdBase.BlockLogs():
            molecule = Chem.MolFromSmiles(smiles.strip())
            if molecule is None:
                return None
            return str(Chem.MolToSmiles(molecule))
    return None
