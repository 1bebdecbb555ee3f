"""What a user names on the command line, as raw examples: text, pixels, sound, molecules, or the words themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seqkit.contract import DataError, Tokenizer
from seqkit.data.files import AUDIO_SUFFIXES, IMAGE_SUFFIXES, read_audio, read_image, read_text

TEXT_SUFFIXES, SMILES_SUFFIXES = (".txt", ".md"), (".smi",)


def read_raws(given: str, tokenizer: Tokenizer) -> Iterator[tuple[str, Any]]:
    """(name, raw example) for each example in `given`: a file, or a text or SMILES string itself.

    Images are read with as many channels as the tokenizer has. A .smi file holds one SMILES (and maybe a name) a line.
    Raises DataError where a file is missing, or is none of these.
    """
    path = Path(given)
    suffix = path.suffix.lower()
    known = (*TEXT_SUFFIXES, *IMAGE_SUFFIXES, *AUDIO_SUFFIXES, *SMILES_SUFFIXES)
    if not _is_file(path):
        if not given or suffix in known or _is_folder(path):
            what = "nothing" if not given else "a folder here" if _is_folder(path) else "no file"
            raise DataError(f"{given!r} is {what}; give a file, or the text or SMILES itself")
        yield given, given
    elif suffix in SMILES_SUFFIXES:
        for line in read_text(path).splitlines():
            if line.strip():
                yield line.split()[0], line.split()[0]
    else:
        channels = getattr(tokenizer, "channels", None)  # of a picture; a tokenizer of sound has words for them
        readers: dict[tuple[str, ...], Callable[[], Any]] = {
            TEXT_SUFFIXES: lambda: read_text(path),
            IMAGE_SUFFIXES: lambda: read_image(path, channels if isinstance(channels, int) else 3),
            AUDIO_SUFFIXES: lambda: read_audio(path),
        }
        fitting = [read for suffixes, read in readers.items() if suffix in suffixes]
        if not fitting:
            raise DataError(f"{given} ends in {suffix or 'nothing'}; raw files end in {', '.join(known)}")
        yield given, fitting[0]()


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
