"""The content of a single cell of a table beside texts and numbers: files, molecules, conversations, series."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from seqkit.errors import DataError

SOUNDS = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"\xff\xfb")
"""First bytes of files of sound."""

MESSAGE_KEYS = (("role", "content"), ("from", "value"))
"""Keys of a message of a conversation: who says it, and what."""


def content_of(cell: Any) -> bytes | None:
    """Bytes of the file in a cell, as they are or under the key `bytes`; None: the cell holds none."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    return content if isinstance(content, bytes) else None


def name_of(cell: Any) -> Any:
    """The cell itself, or what stands under the key `path` where it has no bytes: the name of a file."""
    return cell.get("path") if isinstance(cell, dict) and cell.keys() <= {"bytes", "path"} else cell


def kind_of_content(content: bytes) -> Literal["image", "audio"]:
    """Kind of a file by its first bytes: audio, else image."""
    return "audio" if content.startswith(SOUNDS) else "image"


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
            return None if molecule is None else str(Chem.MolToSmiles(molecule))
    return None
