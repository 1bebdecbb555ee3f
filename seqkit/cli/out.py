"""`--out`: an output never replaces an input; with `--force` it replaces what seqkit wrote, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path

from seqkit.errors import UsageError
from seqkit.files import read_regular

OURS = re.compile(
    rb"name[,\t](?:[^\n]*[,\t])?error[,\t\n]|"
    rb'\{"name": [^\n]*"error": |'
    rb'<!doctype html>.*<meta name="generator" content="seqkit">|'
    rb"\x89PNG\r\n.*tEXtSoftware\0seqkit",
    re.DOTALL,
)
"""Beginnings of seqkit's files: a table has `name` as its first column, and `error`; pages and pictures say it."""


def check_file(
    out: Path | None,
    inputs: Sequence[str | Path] = (),
    *,
    force: bool = False,
    makes_folder: bool = False,
) -> None:
    """Raise UsageError if the file cannot be written there, or if it would replace an input or a file of the user's.

    inputs: files, folders and patterns that the command reads. force: True: an earlier output of seqkit is replaced.
    makes_folder: True: the command makes the folder of the file if it is missing.
    """
    if out is None:
        return
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder; give a file")
    parent = out.absolute().parent
    if not (makes_folder or parent.is_dir()):
        advice = "give another file" if parent.exists() else f"make {parent}"
        raise UsageError(f"--out {out} is in no folder; {advice}")
    if not os.path.lexists(out):
        return
    if _is_input(out, inputs):
        raise UsageError(f"--out {out} is an input of this command; give another file")
    if not is_output(out):
        why = ", and seqkit did not write it"
    elif not force:
        why = "; to replace it, add --force"
    else:
        return
    raise UsageError(f"--out {out} exists already{why}; or give another file")


def check_folder(out: Path, inputs: Sequence[str | Path] = (), *, force: bool = False) -> None:
    """Raise UsageError if `out` is a file, or if it holds pages or pictures that a command may not replace.

    inputs, force: as in `check_file`.
    """
    if (out.exists() and not out.is_dir()) or out.suffix in (".html", ".png"):
        raise UsageError(f"--out {out} names a file; give a folder")
    for path in sorted([*out.glob("*.png"), *out.glob("*.html")]):
        check_file(path, inputs, force=force)


@contextmanager
def written(out: Path) -> Iterator[Path]:
    """Gives the path of a temporary file beside `out`, which replaces `out` if the context ends without error."""
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    with part.open("x"):  # a new file, never one that a link leads to
        pass
    try:
        yield part
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def is_output(path: Path) -> bool:
    """Whether a file is empty, or begins as seqkit's tables, pages and pictures do."""
    try:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            names = parquet.read_schema(path).names
            return names[:1] == ["name"] and "error" in names
        head = read_regular(path, 4096)
    except (ValueError, OSError):  # pyarrow's errors are ValueErrors and OSErrors
        return False
    return not head or OURS.match(head) is not None


def _is_input(out: Path, inputs: Sequence[str | Path]) -> bool:
    """Whether `out` is one of the inputs, or is in one that is a folder; links and other spellings count."""
    for given in map(str, inputs):
        for found in (given, *glob(given, recursive=True)):  # noqa: PTH207 - absolute patterns
            with suppress(OSError, ValueError):  # a text or a SMILES, which is no path
                if Path(found).samefile(out) or out.resolve().is_relative_to(
                    Path(found).resolve(strict=True)
                ):
                    return True
    return False
