"""A folder of files by class: `<path>/<class>/*`, or `<path>/train/<class>/*` and `<path>/test/<class>/*`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch.utils.data import DataLoader, Dataset

from seqkit.data.equal_files import in_both
from seqkit.data.formats import OwnReader, own_reader
from seqkit.data.notes import Caution
from seqkit.data.sample import Samples, Splits
from seqkit.data.source import DataSource
from seqkit.data.splits import SPLIT_NAMES, stratified
from seqkit.data.walk import Walked, suffix_of, walk
from seqkit.data.workers import loader_options, num_workers
from seqkit.errors import DataError, UsageError, one_line
from seqkit.progress import track

ClassNames = Literal["last", "first", "none"]
"""The folder whose name is the class of a file: the one that the file is in, the one at the top, or none of them."""

log = logging.getLogger("seqkit")

_WORDS = {"train": "training", "valid": "validation", "test": "test"}
_PARALLEL = 1000  # from this number of files on, worker processes are worth their start


@dataclass(frozen=True)
class FileKind:
    """How a data source reads its files.

    suffixes: lower case, with the dot; empty: any. read: reads one file; raises DataError. header: reads cheaply what a
    file declares; raises DataError. describe: describes all headers in words. plural: such as "images".
    is_thorough: True: `header` reads the file to its end, and no cheaper look at it is known.
    """

    suffixes: tuple[str, ...]
    read: Callable[[Path], Any]
    header: Callable[[Path], Any]
    describe: Callable[[Sequence[Any]], str]
    plural: str
    is_thorough: bool = False

    @property
    def formats(self) -> str:
        """Such files, by their suffixes, in words."""
        return f"{', '.join(suffix.removeprefix('.').upper() for suffix in self.suffixes)} files".lstrip()

    def fits(self, name: str) -> bool:
        """Whether a file of that name is of the kind."""
        return not self.suffixes or suffix_of(name) in self.suffixes


class _File(NamedTuple):
    """A file, by its name relative to the folder of the data; the folders that it is in, from that of its split on;
    and its class, None if it has none."""

    name: str
    folders: tuple[str, ...]
    label: str | None = None


_Splits = dict[str, list[_File]]


class ClassFolder(DataSource):
    """Base class of files by class in a folder. Arguments: as of `class_folder`."""

    def __init__(
        self,
        path: str,
        *,
        test_fraction: float = 0.2,
        seed: int = 0,
        classes: ClassNames = "last",
        skip_bad: int = 0,
    ):
        self.path, self.test_fraction, self.seed = path, test_fraction, seed
        self.classes, self.skip_bad = classes, skip_bad

    def _of(self, kind: FileKind) -> Splits:
        """The files of that kind."""
        return class_folder(
            self.path,
            kind,
            test_fraction=self.test_fraction,
            seed=self.seed,
            classes=self.classes,
            skip_bad=self.skip_bad,
        )


class FileFolder(ClassFolder):
    """Your own files of any format: `<path>/<class>/*`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    They are read by the tokenizer's `read`, each once before training, so that a fault is found before it.
    classes: folder whose name is the class of a file: "last", the one that it is in; "first", the one at the top; or
    "none". path: the folder. test_fraction, seed: share of each class that is test where no folders name the splits,
    and the seed of its choice.
    skip_bad: most files to leave out because they cannot be read or, by a tokenizer without `fit`, encoded.
    """

    _read: OwnReader | None = None

    def read_for(self, tokenizer: Any) -> None:
        """Take the tokenizer's `read`. Raises UsageError where it has none."""
        self._read = own_reader(tokenizer)
        if self._read is None:
            raise UsageError(
                f"{self.path} is read by the tokenizer's read(path), which {type(tokenizer).__name__} does not have; "
                "write it, or give another --tokenizer"
            )

    def splits(self) -> Splits:
        """Files are read on access, and once now. Raises DataError for a faulty folder or file."""
        if self._read is None:
            raise ValueError("FileFolder has no tokenizer yet; call read_for(tokenizer)")
        kind = FileKind((), self._read, self._read.check, lambda _: f"read by {self._read}", "files", is_thorough=True)
        return self._of(kind)


def class_folder(
    path: str | Path,
    kind: FileKind,
    *,
    test_fraction: float = 0.2,
    seed: int = 0,
    classes: ClassNames = "last",
    skip_bad: int = 0,
) -> Splits:
    """Files labelled by a folder that they are in, read on access; class names in alphabetical order.

    Folders `train` and `test` or `val` are the splits (of these two alone, `val` is test; other names: `SPLIT_NAMES`);
    else `test_fraction` of each class is test, chosen by `seed`. Files in no folder have no class, and are
    read where no file has one.
    skip_bad: most files to leave out because they cannot be read; for that, each is read once beforehand. 0: only
    headers are looked at.
    Logs what is read, how it is split, what is not read, by reason and suffix, and files of test that are in training.
    Raises DataError where there is no such folder, no file of the kind, a class without files, a test class unseen in
    training, a file that cannot be read beyond `skip_bad`, or one file alone in every class; and for a seed, where
    folders are the splits.
    """
    root = Path(path)
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; give one that holds a folder of {kind.formats} for each class")
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction is {test_fraction}; give a number between 0 and 1, such as 0.2")
    if skip_bad < 0:
        raise ValueError(f"skip_bad is {skip_bad}; give the most files that may be left out, 0 or more")
    below = walk(root)
    skipped = below.skipped + Counter({"hidden": below.num_hidden})
    fitting = [name for name in below.files if kind.fits(name)]
    skipped.update(suffix_of(name) or "without a suffix" for name in below.files if not kind.fits(name))
    if not fitting:
        found = _counted(skipped)
        raise DataError(f"{root} holds no {kind.formats}{found and f' (but {found})'}; give a folder of them")
    folders = _split_folders(below)
    splits: _Splits = {}
    for split, folder in folders.items():
        start = f"{folder}/" if folder else ""
        inside = [name.removeprefix(start) for name in fitting if name.startswith(start)]
        if not inside:
            raise DataError(f"{root / folder} holds no {kind.formats}; add some or take the folder out")
        splits[split] = [_File(start + name, tuple(name.split("/")[:-1])) for name in inside]
    skipped["outside the folders of the splits"] += len(fitting) - sum(map(len, splits.values()))
    if classes != "none":
        for split, files in splits.items():
            if any(file.folders for file in files):
                _check_class_folders(root, folders[split], files, below, classes, kind)
                place = -1 if classes == "last" else 0
                splits[split] = [file._replace(label=file.folders[place]) for file in files if file.folders]
                skipped["in no class folder"] += len(files) - len(splits[split])
    if "valid" in splits and "test" not in splits:
        splits["test"] = splits.pop("valid")
    splits, headers = _readable(root, splits, kind, skip_bad)
    names = _class_names(root, splits)
    rule = f"split by the folders {', '.join(sorted(folders.values()))}"
    if "test" not in splits:
        splits, rule = _divided(root, splits["train"], names, test_fraction, seed)
    elif seed != 0:
        raise DataError(
            f"{root} is {rule}, which no seed changes; leave --splits and data.seed out, or name the folders otherwise"
        )
    if names and classes == "last" and any(len(file.folders) > 1 for files in splits.values() for file in files):
        rule += "; the class is the folder that a file is in (the one at the top: --data.classes first)"
    _log(root, kind, splits, names, f"{rule}; {kind.describe(headers)}", skipped)
    _tell_equal_files(root, splits)
    labels: dict[str | None, int | None] = {name: i for i, name in enumerate(names)}
    advice = "" if skip_bad else "--data.skip_bad N leaves out up to N such files"
    made = {
        split: of_files([root / f.name for f in files], [labels.get(f.label) for f in files], kind.read, advice)
        for split, files in splits.items()
    }
    return Splits(made["train"], made["test"], made.get("valid"), names or None, rule)


@dataclass(frozen=True)
class _Files:
    """Files that are read on access. advice: what to do about a file that has a fault."""

    paths: Sequence[Path]
    read: Callable[[Path], Any]
    advice: str

    def raw(self, index: int) -> Any:
        try:
            return self.read(self.paths[index])
        except DataError as error:
            raise DataError(f"{error} ({self.advice})") if self.advice else error from error

    def name(self, index: int) -> str:
        return str(self.paths[index])

    def key(self) -> str | None:
        """Fingerprint of paths, sizes, times of change, and the reader; None: what a reader does is not known."""
        digest = sha256()
        for path in self.paths:
            state = path.stat()
            digest.update(f"{path.absolute()}\0{state.st_size}\0{state.st_mtime_ns}\0".encode(errors="surrogatepass"))
        reader = getattr(self.read, "func", self.read)
        settings = getattr(self.read, "keywords", {})
        digest.update(f"{getattr(reader, '__qualname__', reader)} {sorted(settings.items())}".encode())
        return None if "<lambda>" in str(reader) or "<locals>" in str(reader) else digest.hexdigest()


def of_files(paths: Sequence[Path], labels: Sequence[Any], read: Callable[[Path], Any], advice: str = "") -> Samples:
    """Samples that are read from their files on access. advice: what to do about a file that has a fault."""
    files = _Files(paths, read, advice)
    return Samples(files.raw, labels, name=files.name, key=files.key)


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


def _check_class_folders(
    root: Path, folder: str, files: Sequence[_File], below: Walked, classes: ClassNames, kind: FileKind
) -> None:
    """Raise DataError for a folder that would be a class, and holds no file of the kind."""
    start = f"{folder}/" if folder else ""
    parents = {one.rpartition("/")[0] for one in below.folders}
    used = {f"{start}{'/'.join(file.folders[:i])}" for file in files for i in range(1, len(file.folders) + 1)}
    empty = [
        name
        for name in below.folders
        if name.startswith(start) and name not in used
        if (name not in parents if classes == "last" else "/" not in name[len(start) :])
    ]
    if empty:
        more = f" ({len(empty) - 1} more folders hold none either)" if len(empty) > 1 else ""
        raise DataError(f"{root / empty[0]} holds no {kind.formats}{more}; add some or take the folder out")


class _Trials(Dataset[Any]):
    """Each file's header, or the error of a file that cannot be read. whole: True: files are read to their end."""

    def __init__(self, files: Sequence[Path], kind: FileKind, whole: bool):
        self.files, self.kind, self.whole = files, kind, whole

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        try:
            header = self.kind.header(self.files[index])
            if self.whole and not self.kind.is_thorough:
                self.kind.read(self.files[index])
        except DataError as error:
            return str(error)
        return header


def _readable(root: Path, splits: _Splits, kind: FileKind, skip_bad: int) -> tuple[_Splits, list[Any]]:
    """The splits without files that cannot be read, and the headers of the others.

    Raises DataError where more than `skip_bad` of them cannot.
    """
    num_files = sum(map(len, splits.values()))
    paths = [root / file.name for files in splits.values() for file in files]
    trials = _Trials(paths, kind, whole=skip_bad > 0 or kind.is_thorough)
    number = num_workers() if trials.whole and num_files >= _PARALLEL else 0
    loader = DataLoader(trials, **loader_options(number))
    results = list(track(loader, f"checking {kind.plural}", num_files))
    reasons = [result for result in results if isinstance(result, str)]
    if len(reasons) > skip_bad:
        raise DataError(
            f"{reasons[0]} ({len(reasons):,} of {num_files:,} files cannot be read; --data.skip_bad {len(reasons)} "
            "leaves them out)"
        )
    if reasons:
        left_out = f"{len(reasons)} of {num_files} files cannot be read and are left out"
        log.warning(Caution(f"{root}: {left_out}; the first: {one_line(reasons[0])}"))
    each = iter(results)
    kept = {split: [file for file in files if not isinstance(next(each), str)] for split, files in splits.items()}
    for split, files in kept.items():
        if not files:
            raise DataError(f"{root}: no file of the {_WORDS[split]} split can be read; replace them")
    return kept, [result for result in results if not isinstance(result, str)]


# ── classes and splits ───────────────────────────────────────────────────────────────────────────────────────────────


def _class_names(root: Path, splits: _Splits) -> list[str]:
    """The classes of training. Raises DataError where another split has more, or a name is not UTF-8."""
    known = Counter(file.label for file in splits["train"])
    counts = {name: count for name, count in known.items() if name is not None}
    names = sorted(counts)
    if undecodable := [name for name in names if any("\ud800" <= letter <= "\udfff" for letter in name)]:
        raise DataError(f"{root} has a class folder whose name is not UTF-8, {one_line(undecodable[0])}; rename it")
    for name, _, label in (file for files in splits.values() for file in files):
        if (label is None) != (not names):
            raise DataError(f"{root / name} is in {'no' if label is None else 'a'} class folder, unlike training")
        if label not in known:
            raise DataError(
                f"{root} has class {one_line(label)!r}, which the training split does not have"
                "; it has: "
                f"{one_line(', '.join(names[:20]))}{', …' if len(names) > 20 else ''}"
            )
    return names


def _divided(
    root: Path, files: Sequence[_File], names: Sequence[str], fraction: float, seed: int
) -> tuple[_Splits, str]:
    """Training and test, and the rule in words. Raises DataError where nothing would be left for test."""
    labels: dict[str | None, int] = {name: i for i, name in enumerate(names)}
    train, test = stratified([labels.get(file.label) for file in files], fraction, seed)
    counts = Counter(file.label for file in files)
    single = [label for label, count in counts.items() if count == 1 and label is not None]
    if not test:
        one_each = f"each of its {len(names)} classes has one file" if names else "it has one file"
        raise DataError(
            f"{root}: {one_each}, and training and test need one each; add files, or make folders train and test"
        )
    if single:
        log.warning(
            "%s: %d of %d classes have one file alone, which stays in training (%s)",
            root, len(single), len(names), ", ".join(single[:5]),
        )  # fmt: skip
    rule = f"{100 * fraction:.0f} % {'of each class ' if names else ''}are test, SHA-256 with seed {seed}"
    return {"train": [files[i] for i in train], "test": [files[i] for i in test]}, rule


def _log(
    root: Path, kind: FileKind, splits: _Splits, names: Sequence[str], rule: str, skipped: Mapping[str, int]
) -> None:
    """Log what is read and how it is split, and what is not read."""
    sizes = ", ".join(f"{len(files):,} {_WORDS[split]}" for split, files in splits.items())
    of = f"of {len(names)} {'class' if len(names) == 1 else 'classes'}" if names else "without classes"
    log.warning("%s: %s %s %s; %s", root, sizes, kind.plural, of, rule)
    if not names:
        tables = [file.name for file in sorted(root.iterdir()) if file.suffix.lower() in (".csv", ".tsv", ".jsonl")]
        if len(tables) == 1:
            log.warning("%s: for the classes in %s give --data %s", root, tables[0], root / tables[0])
    if found := _counted(skipped):
        log.warning("%s: not read are %s", root, found)


def _tell_equal_files(root: Path, splits: _Splits) -> None:
    """Log how many files of test are in training, too, by content."""
    train, test = ([root / file.name for file in splits[split]] for split in ("train", "test"))
    if shared := in_both(train, test):
        first = one_line(splits["test"][shared[0]].name)
        log.warning(
            Caution(
                f"{root}: {len(shared)} of {len(test)} test files are in training, too (first: {first}), which "
                "flatters the result; take them out of one"
            )
        )


def _counted(skipped: Mapping[str, int]) -> str:
    """The number of files of each kind, in words; nothing where there are none."""
    found = [f"{count:,} {one_line(what)}" for what, count in Counter(skipped).most_common() if count]
    return ", ".join(found[:8]) + (f", and {len(found) - 8} more kinds" if len(found) > 8 else "")
