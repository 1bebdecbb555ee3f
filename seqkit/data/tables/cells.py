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

from seqkit.errors import DataError, one_line
from seqkit.raw import Years

SOUNDS = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"\xff\xfb")
"""First bytes of files of sound."""

MESSAGE_KEYS = (("role", "content"), ("from", "value"))
"""Keys of a message of a conversation: who says it, and what."""

MISSING = {
    "", "nan", "-nan", "+nan", "n/a", "#n/a", "#na", "<na>", "nat", "null", "(null)", "<null>", "\\n",
}  # fmt: skip
"""Words, in lower case, that programs write where nothing is known; texts may be called so, other cells are missing."""

AMBIGUOUS = ("na", "none", "-", "?", ".", "missing")
"""Words, in lower case, that may be a value. Where one stands among numbers, it is missing in the whole table."""

TRUTHS = {
    "yes": 1.0,
    "no": 0.0,
    "y": 1.0,
    "n": 0.0,
    "true": 1.0,
    "false": 0.0,
    "t": 1.0,
    "f": 0.0,
    "1": 1.0,
    "0": 0.0,
}
"""Words, in lower case, for yes and no."""

_NUMBER = re.compile(
    r"([-+]?)\s*[$€£¥₹]?\s*([-+]?)((?:[1-9]\d{0,2}(?:[,\s'\u00a0\u202f]\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*[$€£¥₹%]?"
)
"""A number as people write it: sign, currency, groups of three digits, per cent."""


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

    form: "," where decimals stand behind a comma, and points group digits.
    """
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        if abs(cell) < 1e300 or cell != cell:
            return float(cell)
        return math.inf * (1 if cell > 0 else -1)
    if not isinstance(cell, str):
        return None
    text = cell.translate(_SWAPPED) if form == "," else cell
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
        text = cell.strip()
        parsed = None
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
    if isinstance(cell, str):
        return TRUTHS.get(cell.strip().lower())
    return None


def word_of(cell: Any) -> str:
    """A category or class as a word."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
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
    text = repr(value if not isinstance(value, bytes) else value[:40])
    return one_line(text if len(text) <= 60 else f"{text[:57]}…")


def content_of(cell: Any) -> bytes | None:
    """Bytes of the file in a cell, as they are or under the key `bytes`; None: the cell holds none."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    return content if isinstance(content, bytes) else None


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


def is_series(cell: Any) -> bool:
    """Whether a cell is a list of numbers, or of lists of numbers."""
    rows = cell if isinstance(cell, list) else []
    if all(isinstance(row, list) for row in rows):
        steps = [x for row in rows for x in row]
    else:
        steps = rows
    return bool(steps) and all(
        isinstance(x, int | float) and not isinstance(x, bool) for x in steps
    )


def conversation(cell: Any) -> str | None:
    """A list of messages, each with `role` and `content`, as a text: a line `role: content` for each.

    Also messages with `from` and `value`. None: the cell is something else.
    """
    if not isinstance(cell, list):
        return None
    lines = []
    for message in cell:
        keys = next(
            (
                keys
                for keys in MESSAGE_KEYS
                if isinstance(message, dict) and {*keys} <= message.keys()
            ),
            None,
        )
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
