"""`--out`: an output never replaces an input; with `--force` it replaces a file that seqkit wrote, and nothing else."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path

from seqkit.errors import UsageError
from seqkit.files import read_regular

VECTORS = {"names.npy", "vectors.npy", "failed.npy", "errors.npy"}
"""Arrays of an .npz file of `seqkit embed`."""

BEGINNINGS = (
    rb"name,prediction,error[,\n]",
    rb'\{"name": "(?:[^"\\]|\\.)*", "(?:prediction|error)": ',
    rb'<!doctype html>.*<meta name="generator" content="seqkit">',
    rb"\x89PNG\r\n.*tEXtSoftware\0seqkit",
)
"""Beginnings of the CSV and JSON Lines of `seqkit predict`, of pages, and of pictures."""


def check_kind(out: Path, *, is_file: bool) -> None:
    """Raise UsageError if `out` is a link that leads nowhere, or a folder and not a file, or the other way round."""
    if out.is_symlink() and not out.exists():
        raise UsageError(
            f"--out {out} is a link to {out.readlink()}, which does not exist; remove the link, or give another --out"
        )
    if out.exists() and out.is_dir() == is_file:
        raise UsageError(f"--out {out} is a {'folder; give a file' if is_file else 'file; give a folder'}")


def check_file(
    out: Path | None, inputs: Sequence[str | Path] = (), *, force: bool = False, makes_folder: bool = False
) -> None:
    """Raise UsageError if the file cannot be written there, or if it would replace an input or a file of the user's.

    inputs: files, folders and patterns that the command reads. force: True: an earlier output of seqkit is replaced.
    makes_folder: True: the command makes the folder of the file if it is missing.
    """
    if out is None:
        return
    check_kind(out, is_file=True)
    if not (makes_folder or out.absolute().parent.is_dir()):
        raise UsageError(f"--out {out} is in a folder that does not exist; make {out.absolute().parent}")
    if not os.path.lexists(out):
        return
    if _is_input(out, inputs):
        raise UsageError(f"--out {out} is an input of this command; give another file")
    if not force:
        again = "; to replace it, add --force" if is_output(out) else ""
        raise UsageError(f"--out {out} exists already; give another file{again}")
    if not is_output(out):
        raise UsageError(f"--out {out} is not recognised as an output of seqkit, so --force does not replace it either")


def check_folder(out: Path | None, inputs: Sequence[str | Path] = (), *, force: bool = False) -> None:
    """Raise UsageError if `out` is no folder, or if it holds something that a command's pictures could replace.

    inputs: as in `check_file`. force: True: the folder may hold pictures and pages, if seqkit wrote them all.
    """
    if out is None or not os.path.lexists(out):
        return
    check_kind(out, is_file=False)
    if not force and any(out.iterdir()):
        raise UsageError(f"--out {out} exists already and is not empty; give another folder, or add --force")
    for path in sorted(out.iterdir()):
        if path.suffix in (".png", ".html") and (_is_input(path, inputs) or not is_output(path)):
            raise UsageError(
                f"--out {out} holds {path.name}, which is an input or which seqkit did not write; give another folder"
            )


@contextmanager
def written(out: Path, *, force: bool = False) -> Iterator[Path]:
    """Gives the path of a temporary file beside `out`, which gets the name `out` when the context ends without error.

    Raises UsageError if somebody has created `out` in the meantime and `force` is False.
    """
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    with part.open("x"):  # a new file, never one that a link leads to
        pass
    try:
        yield part
        if not force and os.path.lexists(out):
            raise UsageError(f"--out {out} was created by another program in the meantime; give another file")
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def is_output(path: Path) -> bool:
    """Whether a file is empty, or begins as what `predict`, `embed` and the pages and pictures of seqkit write."""
    try:
        head = read_regular(path, 4096)
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                return set(archive.namelist()) == VECTORS
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            return parquet.read_schema(path).names == ["name", "vector", "error"]
    except (ValueError, OSError, zipfile.BadZipFile):  # pyarrow's errors are ValueErrors and OSErrors
        return False
    return not head or any(re.match(beginning, head, re.DOTALL) for beginning in BEGINNINGS)


def _is_input(out: Path, inputs: Sequence[str | Path]) -> bool:
    """Whether `out` is one of the inputs, or is in one that is a folder; links and other spellings count."""
    real = out.resolve()
    if "-" in inputs and os.path.samestat(os.fstat(0), out.stat()):  # standard input
        return True
    for given in map(str, inputs):
        for found in (given, *glob(given, recursive=True)):  # noqa: PTH207 - absolute patterns
            with suppress(OSError, ValueError):  # a text or a SMILES, which is no path
                if Path(found).samefile(out) or real.is_relative_to(Path(found).resolve(strict=True)):
                    return True
    return False
