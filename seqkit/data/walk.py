"""The files below a folder; no link leads out of it. No torch here."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

from seqkit.errors import DataError

PATTERN_MARKS = "*?["

SYSTEM_FOLDERS = ("__MACOSX", "@eaDir")
"""Folders of macOS archives and network storage that hold previews under the names of the files themselves."""


@dataclass(frozen=True, slots=True)
class Walked:
    """Files and folders below a folder, by names relative to it, with `/` between folders.

    files: regular files, in the order of their parts. num_hidden: number of files and folders whose names begin with a
    dot, and of `SYSTEM_FOLDERS`. skipped: number of other things that are not read, by kind.
    """

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    num_hidden: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


def walk(root: Path, *, limit: int | None = None) -> Walked:
    """All files below `root`. limit: most files to list.

    Of links, only those to a file below `root` count as the file. A folder that may not be opened is skipped.
    """
    files: list[str] = []
    folders: list[str] = []
    skipped: Counter[str] = Counter()
    num_hidden = 0
    waiting = [""]
    top = root.resolve()
    while waiting and (limit is None or len(files) < limit):
        name = waiting.pop()
        try:
            with os.scandir(root / name) as entries:
                found = sorted(entries, key=lambda entry: entry.name, reverse=True)
        except OSError:
            skipped["folder that may not be opened"] += 1
            continue
        for entry in found:
            path = f"{name}/{entry.name}" if name else entry.name
            if entry.name.startswith(".") or entry.name in SYSTEM_FOLDERS:
                num_hidden += 1
            elif (kind := _kind(entry, top)) == "file":
                files.append(path)
            elif kind == "folder":
                folders.append(path)
                waiting.append(path)
            else:
                skipped[kind] += 1
    return Walked(
        sorted(files, key=_parts)[:limit], sorted(folders, key=_parts), num_hidden, skipped
    )


def matching(path: str, *, is_needed: bool = True) -> list[str]:
    """Files that a pattern such as `notes/**/*.txt` matches; what is no pattern, or exists, is itself.

    Raises DataError where none matches. is_needed: False: the list is empty then.
    """
    if not any(mark in path for mark in PATTERN_MARKS) or exists_as(Path(path), Path.exists):
        return [path]
    # glob, as the pattern may be absolute, which Path.glob refuses
    found = sorted(file for file in glob(path, recursive=True) if Path(file).is_file())  # noqa: PTH207
    if not found and is_needed:
        raise DataError(
            f"no file matches {path}; check the pattern (it is relative to {Path.cwd()})"
        )
    return found


def suffix_of(name: str) -> str:
    """The suffix of a file's name in lower case, with the dot; nothing where it has none."""
    return os.path.splitext(name)[1].lower()  # noqa: PTH122, a path is built of each name of 100,000 otherwise


def _kind(entry: os.DirEntry[str], top: Path) -> str:
    """Kind of what a name in a folder leads to: "file", "folder", or something that is not read."""
    try:
        if entry.is_dir():  # known from the folder itself, without asking for each file
            if entry.is_symlink():
                return "link to a folder"
            return "folder"
        if entry.is_file():
            is_out = entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(top)
            return "link out of the folder" if is_out else "file"
        mode = entry.stat().st_mode
    except OSError:
        return "broken link"
    if stat.S_ISFIFO(mode):
        return "FIFO"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "device"


def _parts(name: str) -> list[str]:
    return name.split("/")


def exists_as(path: Path, test: Callable[[Path], bool]) -> bool:
    """Whether there is such a file or folder; a long text names none."""
    with suppress(OSError, ValueError):
        return test(path)
    return False
