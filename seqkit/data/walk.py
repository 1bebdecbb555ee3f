"""The files below a folder: links are followed, and no folder is read twice. No torch here."""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

SYSTEM_FOLDERS = ("__MACOSX", "@eaDir")
"""Of archives made on macOS and of network storage: they hold previews under the names of the files themselves."""


@dataclass(frozen=True, slots=True)
class Walked:
    """What is below a folder, by names relative to it, with `/` between folders.

    files: regular files, in the order of their parts. folders: all of them. num_hidden: files and folders whose names
    begin with a dot, and `SYSTEM_FOLDERS`. skipped: what else is no file, by kind.
    """

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    num_hidden: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


def walk(root: Path, *, limit: int | None = None, hidden: bool = False) -> Walked:
    """All files below `root`. limit: at most so many are listed. hidden: True: those with a dot in front, too.

    A folder to which several ways lead counts once, where it is and not where a link shows it. What may not be opened
    is counted as skipped.
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


def suffix_of(name: str) -> str:
    """The suffix of a file's name in lower case, with the dot; nothing where it has none."""
    return os.path.splitext(name)[1].lower()  # noqa: PTH122, a path is built of each name of 100,000 otherwise


def _kind(entry: os.DirEntry[str]) -> str:
    """What a name in a folder leads to."""
    try:
        if entry.is_file():  # told by the folder itself, without asking for each file
            return "file"
        if entry.is_dir():
            return "folder"
        mode = entry.stat().st_mode
    except OSError:
        return "broken link"
    return next((name for name, is_one in _KINDS if is_one(mode)), "device")


_KINDS = (("FIFO", stat.S_ISFIFO), ("socket", stat.S_ISSOCK))


def _parts(name: str) -> list[str]:
    return name.split("/")
