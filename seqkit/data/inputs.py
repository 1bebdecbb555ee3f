"""Raw examples that are named on the command line: a file, or the text or SMILES string itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqkit.data.formats import format_of, readable_suffixes
from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer


def read_inputs(given: str, tokenizer: Tokenizer) -> Iterator[tuple[str, Any]]:
    """(name, raw example) for each example in `given`: a file (`FORMATS`), or a text or SMILES string itself.

    Images are read with as many channels as the tokenizer has. A .smi file holds one SMILES (and maybe a name) a line.
    Raises DataError where a file is missing, or has another format.
    """
    path = Path(given)
    kind = format_of(path)
    if not _is_file(path):
        if not given or (kind is not None and kind.reader is not None) or _is_folder(path):
            what = "nothing" if not given else "a folder here" if _is_folder(path) else "no file"
            raise DataError(f"{given!r} is {what}; give a file, or the text or SMILES itself")
        yield given, given
        return
    if kind is None or kind.reader is None:
        raise DataError(
            f"{given} ends in {path.suffix.lower() or 'nothing'}; raw files end in {', '.join(readable_suffixes())}"
        )
    # an image tokenizer's `channels` is a number; one of audio has words for them
    options = {name: value for name in kind.options if isinstance(value := getattr(tokenizer, name, None), int)}
    raw = kind.read(path, **options)
    if kind.many:
        yield from ((str(one), one) for one in raw)
    else:
        yield given, raw


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a long text is no path
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False
