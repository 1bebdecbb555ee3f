"""Cells that hold a file: its name relative to the table, its bytes, or both as Hugging Face's `datasets` has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from seqkit.errors import DataError

SOUNDS = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"\xff\xfb")
"""First bytes of files of sound."""


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
