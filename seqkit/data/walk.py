"""The files below a folder: links are followed, and no folder is read twice. No torch here."""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

from seqkit.errors import DataError

SYSTEM_FOLDERS = ("__MACOSX", "@eaDir")
"""Folders of macOS archives and network storage that hold previews under the names of the files themselves."""


@dataclass(frozen=True, slots=True)
class Walked:
    """Files and folders below a folder, by names relative to it, with `/` between folders.

    files: regular files, in the order of their parts. num_hidden: number of files and folders whose names begin with a
    dot, and of `SYSTEM_FOLDERS`. skipped: number of other things that are no file, by kind.
    """

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    num_hidden: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


def walk(root: Path, *, limit: int | None = None, hidden: bool = False) -> Walked:
    """All files below `root`. limit: most files to list. hidden: True: hidden files, too.

    A folder to which several ways lead counts once, where it is and not where a link shows it. A folder that may not be
    opened is counted as skipped.
    """
    files: list[str] = []
    folders: list[str] = []
    skipped: Counter[str] = Counter()
    num_hidden, waiting = 0, [""]
    links: list[str] = []
    seen: set[tuple[int, int]] = set()
    while waiting or links:
        name = waiting.pop() if waiting else links.pop()
        folder = root / name
        try:
            state = folder.stat()
            if (state.st_dev, state.st_ino) in seen:
                skipped["link to a folder that is read already"] += 1
                continue
            seen.add((state.st_dev, state.st_ino))
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name, reverse=True)
        except OSError:
            skipped["folder that may not be opened"] += 1
            found = []
        if name:
            folders.append(name)
        for entry in found:
            if not hidden and (entry.name.startswith(".") or entry.name in SYSTEM_FOLDERS):
                num_hidden += 1
                continue
            kind, path = _kind(entry), f"{name}/{entry.name}" if name else entry.name
            if kind == "folder":
                (links if entry.is_symlink() else waiting).append(path)
            elif kind == "file":
                files.append(path)
            else:
                skipped[kind] += 1
        if limit is not None and len(files) >= limit:
            break
    return Walked(sorted(files[:limit], key=_parts), sorted(folders, key=_parts), num_hidden, skipped)


def matching(path: str) -> list[str]:
    """Files that a pattern such as `notes/**/*.txt` matches; what is no pattern, or exists, is itself.

    Raises DataError where none matches.
    """
    if not any(mark in path for mark in "*?[") or Path(path).exists():
        return [path]
    # glob, as the pattern may be absolute, which Path.glob refuses
    found = sorted(file for file in glob(path, recursive=True) if Path(file).is_file())  # noqa: PTH207
    if not found:
        raise DataError(f"no file matches {path}; check the pattern (it is relative to {Path.cwd()})")
    return found


def suffix_of(name: str) -> str:
    """The suffix of a file's name in lower case, with the dot; nothing where it has none."""
    return os.path.splitext(name)[1].lower()  # noqa: PTH122, a path is built of each name of 100,000 otherwise


def _kind(entry: os.DirEntry[str]) -> str:
    """The kind of file that a name in a folder leads to."""
    try:
        if entry.is_file():  # known from the folder itself, without asking for each file
            return "file"
        if entry.is_dir():
            return "folder"
        mode = entry.stat().st_mode
    except OSError:
        return "broken link"
    return "FIFO" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"


def _parts(name: str) -> list[str]:
    return name.split("/")
