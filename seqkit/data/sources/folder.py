"""A folder of files by class: `<path>/<class>/*` or `<path>/train/<class>/*` and `<path>/test/<class>/*`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqkit.data.source import Files, Splits, stratified
from seqkit.errors import DataError, one_line

log = logging.getLogger("seqkit")


def class_folder(
    path: str | Path, suffixes: Sequence[str], test_fraction: float, read: Callable[[Path], Any]
) -> Splits:
    """Files labelled by the folder that they are in, read on access; class names in alphabetical order.

    Folders `train` and `test` (and `valid`, if there) are the splits; else `test_fraction` of each class is test.
    Raises DataError where there is no such folder, no class, a class without files, or a test class unseen in training.
    """
    root = Path(path)
    if not root.is_dir():
        raise DataError(
            f"{root} is not a folder; give one that holds a folder of {_list(suffixes)} files for each class"
        )
    if (root / "train").is_dir() and (root / "test").is_dir():
        names, train = _read(root / "train", suffixes)
        others = {name: _read(root / name, suffixes, names)[1] for name in ("test", "valid") if (root / name).is_dir()}
        _tell_unread(root, len(train) + sum(map(len, others.values())), suffixes)
        files = {name: Files(*_columns(rows), read) for name, rows in (others | {"train": train}).items()}
        return Splits(files["train"], files["test"], files.get("valid"), names)
    names, rows = _read(root, suffixes)
    _tell_unread(root, len(rows), suffixes)
    train_indices, test_indices = stratified([label for _, label in rows], test_fraction, seed=0)
    train, test = ([rows[i] for i in indices] for indices in (train_indices, test_indices))
    return Splits(Files(*_columns(train), read), Files(*_columns(test), read), None, names)


def _read(
    root: Path, suffixes: Sequence[str], names: list[str] | None = None
) -> tuple[list[str], list[tuple[Path, int]]]:
    folders = sorted(f for f in root.iterdir() if f.is_dir() and not f.name.startswith("."))
    if not folders:
        raise DataError(
            f"{root} holds no folders; put the {_list(suffixes)} files of each class into a folder of its own"
        )
    found = [folder.name for folder in folders]
    if undecodable := [name for name in found if any("\ud800" <= letter <= "\udfff" for letter in name)]:
        raise DataError(f"{root} has a class folder whose name is not UTF-8, {one_line(undecodable[0])}; rename it")
    if names is None:
        names = found
    if unseen := sorted(set(found) - set(names)):
        raise DataError(
            f"{root} has class {unseen[0]!r}, which the training split does not have; it has: {', '.join(names)}"
        )
    rows = []
    for folder in folders:
        files = sorted(f for f in folder.iterdir() if f.suffix.lower() in suffixes and not f.name.startswith("."))
        if not files:
            raise DataError(f"{folder} holds no {_list(suffixes)} files; add some or take the folder out")
        rows += [(file, names.index(folder.name)) for file in files]
    return names, rows


def _tell_unread(root: Path, num_read: int, suffixes: Sequence[str]) -> None:
    """Log how many files are in the folder that are no samples: of other formats, or outside the class folders."""
    found = (file for file in root.rglob("*") if not any(part.startswith(".") for part in file.relative_to(root).parts))
    if unread := sum(file.is_file() for file in found) - num_read:
        log.warning("%s: %d files are not read; only %s files in a class folder are", root, unread, _list(suffixes))


def _columns(rows: list[tuple[Path, int]]) -> tuple[list[Path], list[int]]:
    return [file for file, _ in rows], [label for _, label in rows]


def _list(suffixes: Sequence[str]) -> str:
    return ", ".join(s.removeprefix(".").upper() for s in suffixes)
