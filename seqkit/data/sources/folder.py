"""A folder of files by class: `<path>/<class>/*`, or `<path>/train/<class>/*` and `<path>/test/<class>/*`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, Dataset

from seqkit.data.encoding import num_workers
from seqkit.data.source import Files, Splits, stratified
from seqkit.data.sources.table import SPLIT_NAMES
from seqkit.data.walk import Walked, suffix_of, walk
from seqkit.errors import DataError, one_line
from seqkit.progress import track

ClassNames = Literal["last", "first", "none"]
"""The folder whose name is the class of a file: the one that the file is in, the one at the top, or none of them."""

log = logging.getLogger("seqkit")

_WORDS = {"train": "training", "valid": "validation", "test": "test"}
_PARALLEL = 1000  # so many files are worth the start of worker processes


@dataclass(frozen=True)
class FileKind:
    """What a data source makes of its files.

    suffixes: lower case, with the dot. read: one file; raises DataError. header: what a file declares, cheaply; raises
    DataError. told: what is worth saying of all headers, in words. plural: such as "images".
    """

    suffixes: tuple[str, ...]
    read: Callable[[Path], Any]
    header: Callable[[Path], Any]
    told: Callable[[Sequence[Any]], str]
    plural: str


@dataclass(frozen=True)
class _Split:
    """Files of a split, relative to the folder of the data, and the class of each; None: it has none.

    inside: the folders of each file, from the folder of the split on. num_found: files before any was left out.
    """

    files: list[str]
    classes: list[str | None]
    inside: list[list[str]]
    num_found: int

    @property
    def depth(self) -> int:
        """Most folders that a file is in."""
        return max(map(len, self.inside), default=0)

    def without_classes(self) -> _Split:
        """All files, and no class."""
        return self.chosen(range(len(self.files)), [None] * len(self.files))

    def labelled(self, classes: ClassNames, skipped: Counter[str]) -> _Split:
        """With the classes that folders name; files in none of them are counted and left out, or have none all."""
        if not self.depth:
            return self.without_classes()
        place = -1 if classes == "last" else 0
        kept = [i for i, folders in enumerate(self.inside) if folders]
        skipped["in no class folder"] += len(self.files) - len(kept)
        return self.chosen(kept, [folders[place] if folders else None for folders in self.inside])

    def chosen(self, indices: Sequence[int], classes: Sequence[str | None] | None = None) -> _Split:
        """Some of the files."""
        classes = self.classes if classes is None else classes
        files, inside = [self.files[i] for i in indices], [self.inside[i] for i in indices]
        return _Split(files, [classes[i] for i in indices], inside, self.num_found)


def class_folder(
    path: str | Path, kind: FileKind, *, test_fraction: float = 0.2, classes: ClassNames = "last", skip_bad: int = 0
) -> Splits:
    """Files labelled by a folder that they are in, read on access; class names in alphabetical order.

    Folders `train` and `test` or `val` are the splits (of these two alone, `val` is test; other names: `SPLIT_NAMES`);
    else `test_fraction` of each class is test. Files in no folder have no class, and are read where no file has one.
    skip_bad: at most so many files that cannot be read are left out; for that, each is read once beforehand. 0: their
    headers are looked at.
    Logs what is read, how it is split, and what is not read, by reason and suffix.
    Raises DataError where there is no such folder, no file of the kind, a class without files, a test class unseen in
    training, a file that cannot be read beyond `skip_bad`, or one file alone in every class.
    """
    root = Path(path)
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; give one that holds a folder of {_list(kind)} files for each class")
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction is {test_fraction}; give a number between 0 and 1, such as 0.2")
    below = walk(root)
    skipped = below.skipped + Counter({"hidden": below.num_hidden})
    fitting = [name for name in below.files if suffix_of(name) in kind.suffixes]
    skipped.update(
        suffix_of(name) or "without a suffix" for name in below.files if suffix_of(name) not in kind.suffixes
    )
    if not fitting:
        found = _counted(skipped)
        raise DataError(f"{root} holds no {_list(kind)} files{found and f' (but {found})'}; give a folder of them")
    folders = _split_folders(below)
    splits = {split: _members(root / folder, folder, fitting, kind) for split, folder in folders.items()}
    if classes == "none":
        splits = {name: split.without_classes() for name, split in splits.items()}
    else:
        splits = {name: split.labelled(classes, skipped) for name, split in splits.items()}
        for split, folder in folders.items():
            _check_class_folders(root, folder, splits[split], below, classes, kind)
    skipped["outside the folders of the splits"] += len(fitting) - sum(split.num_found for split in splits.values())
    if "valid" in splits and "test" not in splits:
        splits["test"] = splits.pop("valid")
    checked, headers = _readable(root, splits, kind, skip_bad)
    names = _class_names(root, checked)
    if "test" in checked:
        parts, rule = checked, f"split by the folders {', '.join(sorted(folders.values()))}"
    else:
        parts, rule = _divided(root, checked["train"], names, test_fraction)
    if names and classes == "last" and any(split.depth > 1 for split in splits.values()):
        rule += "; the class is the folder that a file is in (the one at the top: --data.classes first)"
    _tell(root, kind, parts, names, f"{rule}; {kind.told(headers)}", skipped)
    numbers: dict[str | None, int | None] = {name: i for i, name in enumerate(names)}
    made = {
        split: Files([root / name for name in part.files], [numbers.get(one) for one in part.classes], kind.read)
        for split, part in parts.items()
    }
    return Splits(made["train"], made["test"], made.get("valid"), names or None, rule)


# ── which files ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _split_folders(below: Walked) -> dict[str, str]:
    """The folder of each split, relative; `train` alone is "" where the data is not split by folders.

    A folder `train` that has no other split beside it is a class, as a car and a bus may be, unless it is the only
    folder and holds others.
    """
    top = [name for name in below.folders if "/" not in name]
    named: dict[str, str] = {}
    for name in top:
        if split := SPLIT_NAMES.get(name.lower()):
            if split in named:
                raise DataError(f"folders {named[split]} and {name} are both the {_WORDS[split]} split; join them")
            named[split] = name
    if "train" not in named:
        return {"train": ""}
    holds_folders = any(name.startswith(f"{named['train']}/") for name in below.folders)
    return named if len(named) > 1 or (len(top) == 1 and holds_folders) else {"train": ""}


def _members(place: Path, folder: str, fitting: Sequence[str], kind: FileKind) -> _Split:
    """The files of a split, by the folder it has. Raises DataError where there are none."""
    start = f"{folder}/" if folder else ""
    files = [name for name in fitting if name.startswith(start)]
    if not files:
        raise DataError(f"{place} holds no {_list(kind)} files; add some or take the folder out")
    inside = [name[len(start) :].split("/")[:-1] for name in files]
    return _Split(files, [None] * len(files), inside, len(files))


def _check_class_folders(
    root: Path, folder: str, split: _Split, below: Walked, classes: ClassNames, kind: FileKind
) -> None:
    """Raise DataError for a folder that would be a class, and holds no file of the kind."""
    if not split.depth:
        return
    start = f"{folder}/" if folder else ""
    parents = {one.rpartition("/")[0] for one in below.folders}
    used = {f"{start}{'/'.join(parts[:i])}" for parts in split.inside for i in range(1, len(parts) + 1)}
    empty = [
        name
        for name in below.folders
        if name.startswith(start) and name not in used
        if (name not in parents if classes == "last" else "/" not in name[len(start) :])
    ]
    if empty:
        more = f" ({len(empty) - 1} more folders hold none either)" if len(empty) > 1 else ""
        raise DataError(f"{root / empty[0]} holds no {_list(kind)} files{more}; add some or take the folder out")


# ── files that cannot be read ────────────────────────────────────────────────────────────────────────────────────────


class _Trials(Dataset[Any]):
    """Each file's header, or why it cannot be read."""

    def __init__(self, files: Sequence[Path], kind: FileKind, whole: bool):
        self.files, self.kind, self.whole = files, kind, whole

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        try:
            header = self.kind.header(self.files[index])
            if self.whole:
                self.kind.read(self.files[index])
        except DataError as error:
            return str(error)
        return header


def _readable(
    root: Path, splits: dict[str, _Split], kind: FileKind, skip_bad: int
) -> tuple[dict[str, _Split], list[Any]]:
    """The splits without files that cannot be read, and the headers of the others.

    Raises DataError where more than `skip_bad` of them cannot.
    """
    if skip_bad < 0:
        raise ValueError(f"skip_bad is {skip_bad}; give the most files that may be left out, 0 or more")
    files = [root / name for split in splits.values() for name in split.files]
    trials = _Trials(files, kind, whole=skip_bad > 0)
    results = list(track(_tried(trials), f"checking {kind.plural}", len(files)))
    reasons = [result for result in results if isinstance(result, str)]
    if len(reasons) > skip_bad:
        raise DataError(
            f"{reasons[0]} ({len(reasons):,} of {len(files):,} files cannot be read; --data.skip_bad {len(reasons)} "
            "leaves them out)"
        )
    if reasons:
        log.warning(
            "%s: %d of %d files cannot be read and are left out; the first: %s",
            root, len(reasons), len(files), one_line(reasons[0]),
        )  # fmt: skip
    kept, at = {}, 0
    for name, split in splits.items():
        kept[name] = split.chosen([i for i in range(len(split.files)) if not isinstance(results[at + i], str)])
        at += len(split.files)
        if not kept[name].files:
            raise DataError(f"{root}: no file of the {_WORDS[name]} split can be read; replace them")
    return kept, [result for result in results if not isinstance(result, str)]


def _tried(trials: _Trials) -> Iterator[Any]:
    """Results in their order: of headers in this process, of whole files in several."""
    if not trials.whole or len(trials) < _PARALLEL:
        yield from (trials[i] for i in range(len(trials)))
        return
    own = torch.Generator()  # torch draws a seed for workers: not from dropout's numbers
    for batch in DataLoader(trials, batch_size=16, num_workers=num_workers(), collate_fn=_as_is, generator=own):
        yield from batch


def _as_is(batch: Any) -> Any:
    return batch


# ── classes and splits ───────────────────────────────────────────────────────────────────────────────────────────────


def _class_names(root: Path, splits: dict[str, _Split]) -> list[str]:
    """The classes of training. Raises DataError where another split has more, or a name is not UTF-8."""
    known = {one for one in splits["train"].classes if one is not None}
    names = sorted(known)
    if undecodable := [name for name in names if any("\ud800" <= letter <= "\udfff" for letter in name)]:
        raise DataError(f"{root} has a class folder whose name is not UTF-8, {one_line(undecodable[0])}; rename it")
    for split in splits.values():
        for file, one in zip(split.files, split.classes):
            if (one is None) != (not names):
                raise DataError(f"{root / file} is in {'no' if one is None else 'a'} class folder, unlike training")
            if one is not None and one not in known:
                more = ", …" if len(names) > 20 else ""
                raise DataError(
                    f"{root} has class {one_line(one)!r}, which the training split does not have; it has: "
                    f"{one_line(', '.join(names[:20]))}{more}"
                )
    folded = Counter(name.casefold() for name in names)
    if alike := [name for name in names if folded[name.casefold()] > 1]:
        log.warning("%s: classes differ by capital letters alone: %s; they count as different", root, _few(alike))
    return names


def _divided(root: Path, split: _Split, names: Sequence[str], fraction: float) -> tuple[dict[str, _Split], str]:
    """Training and test, and the rule in words. Raises DataError where nothing would be left for test."""
    numbers: dict[str | None, int] = {name: i for i, name in enumerate(names)}
    train, test = stratified([numbers.get(one) for one in split.classes], fraction, seed=0)
    counts = Counter(split.classes)
    single = [one for one, count in counts.items() if count == 1 and one is not None]
    if not test:
        one_each = f"each of its {len(names)} classes has one file" if names else "it has one file"
        raise DataError(
            f"{root}: {one_each}, and training and test need one each; add files, or make folders train and test"
        )
    if single:
        log.warning(
            "%s: %d of %d classes have one file alone, which stays in training (%s)",
            root, len(single), len(names), _few(single),
        )  # fmt: skip
    parts = {"train": split.chosen(train), "test": split.chosen(test)}
    return parts, f"{fraction:.0%} {'of each class ' if names else ''}are test, SHA-256 with seed 0"


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _tell(
    root: Path, kind: FileKind, parts: dict[str, _Split], names: Sequence[str], rule: str, skipped: Counter[str]
) -> None:
    sizes = ", ".join(f"{len(part.files):,} {_WORDS[split]}" for split, part in parts.items())
    of = f"of {len(names)} {'class' if len(names) == 1 else 'classes'}" if names else "without classes"
    log.warning("%s: %s %s %s; %s", root, sizes, kind.plural, of, rule)
    if not names:
        tables = [file.name for file in sorted(root.iterdir()) if file.suffix.lower() in (".csv", ".tsv", ".jsonl")]
        if len(tables) == 1:
            log.warning("%s: for the classes in %s give --data %s", root, tables[0], root / tables[0])
    if found := _counted(skipped):
        log.warning("%s: not read are %s", root, found)


def _counted(skipped: Counter[str]) -> str:
    """How many there are of each kind, in words; nothing where there are none."""
    found = [f"{count:,} {one_line(what)}" for what, count in skipped.most_common() if count]
    return ", ".join(found[:8]) + (f", and {len(found) - 8} more kinds" if len(found) > 8 else "")


def _few(names: Sequence[str]) -> str:
    return ", ".join(one_line(name) for name in sorted(names)[:5]) + (", …" if len(names) > 5 else "")


def _list(kind: FileKind) -> str:
    return ", ".join(suffix.removeprefix(".").upper() for suffix in kind.suffixes)
