"""Folders of files by class: `<path>/<class>/*`, or `<path>/train/<class>/*` and `<path>/test/<class>/*`."""

from __future__ import annotations

import logging
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from seqkit.data.file_samples import of_files
from seqkit.data.folder_groups import CONTENT, compiled, folder_above, told
from seqkit.data.leaks import Compared, tell_leaks
from seqkit.data.notes import Caution, listed
from seqkit.data.sample import Splits
from seqkit.data.source import DataSource, check_skip_bad, check_test_fraction
from seqkit.data.spellings import alike
from seqkit.data.splits import SPLIT_NAMES, SPLIT_WORDS, Grouping, lost_classes, stratified
from seqkit.data.walk import Walked, suffix_of, walk
from seqkit.errors import DataError, one_line
from seqkit.progress import track

log = logging.getLogger("seqkit")


_Parts = dict[str, dict[str, str | None]]
"""For each split its files, by their names relative to the folder of the data, and their classes; None: no class."""


class ClassFolder(DataSource):
    """Your own files, whose class is the folder that they are in; a subclass says which files, and how they are read.

    path: folder of the data. Its folders `train` and `test` or `val` are the splits (of these two alone, `val` is test;
    other names: `SPLIT_NAMES`); else `test_fraction` of each class is test, chosen by `seed`. Files in no class folder
    have no class, and are read where no file has one. skip_bad: most files to leave out because they cannot be read;
    above 0, each is read once beforehand. group: a pattern of paths such as `group/class` or `class/group_*`, by which
    files of one group stay in one split, and a file has its class where it says `class`; `content`: equal files do.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    """Suffixes of the files, in lower case with the dot; none: any."""

    plural: ClassVar[str] = "files"

    read: Any
    """Reads a file, given its path; raises DataError for a faulty one."""

    header: Any
    """Reads cheaply what a file declares, given its path; raises DataError."""

    def __init__(
        self,
        path: str,
        *,
        test_fraction: float = 0.2,
        seed: int = 0,
        skip_bad: int = 0,
        group: str | None = None,
    ):
        check_test_fraction(test_fraction)
        check_skip_bad(skip_bad)
        self._pattern = None
        if group not in (None, CONTENT):
            self._pattern = compiled(group)
        self.group = group
        self.path = path
        self.test_fraction = test_fraction
        self.seed = seed
        self.skip_bad = skip_bad

    @abstractmethod
    def described(self, headers: Sequence[Any]) -> str:
        """All headers in words."""

    def cautions(self, headers: Mapping[Path, Any]) -> Iterator[str]:
        """Sentences about the values of the files, from a few of them. By default none."""
        yield from ()

    def found(self, root: Path) -> tuple[Walked, list[str]]:
        """Files below the folder, and the names of those that are examples."""
        below = walk(root)
        return below, [
            name for name in below.files if not self.suffixes or suffix_of(name) in self.suffixes
        ]

    def splits(self) -> Splits:
        """Files are read on access, and their headers now; class names are in alphabetical order.

        Logs what is read, how it is split, what is not read, by reason and suffix, and files of equal content.
        Raises DataError where there is no such folder, no file of the kind, a class without files, a test class unseen
        in training, a file that cannot be read beyond `skip_bad`, or one file alone in every class.
        """
        root = Path(self.path)
        if not root.is_dir():
            raise DataError(
                f"{root} is not a folder; give one that holds a folder of {self._formats} for each class"
            )
        below, fitting = self.found(root)
        folders = split_folders(below)
        parts, skipped = self._files(root, below, fitting, folders)
        shown = {
            name: name.removeprefix(f"{folders[split]}/")
            for split, files in parts.items()
            for name in files
        }
        if "valid" in parts and "test" not in parts:
            parts["test"] = parts.pop("valid")
        headers = self._headers([root / name for files in parts.values() for name in files])
        for split, files in parts.items():
            parts[split] = {name: label for name, label in files.items() if root / name in headers}
            if not parts[split]:
                fault = f"no file of the {SPLIT_WORDS[split]} split can be read"
                raise DataError(f"{root}: {fault}; replace them")
        each = [name for files in parts.values() for name in files]
        content = dict(zip(each, Compared(root).contents(each)))
        group_of = self._groups(shown, content)
        more = folder_above(shown.values())
        if group_of:
            more = "; all its groups are in that split: add some, or give another --data.seed"
        if "test" in parts:
            rule = f"split by the folders {', '.join(sorted(folders.values()))}"
            parts = self._apart(root, parts, group_of)
        else:
            parts, rule = self._divided(root, parts["train"], group_of)
        names = _class_names(root, parts, more)
        labels: dict[str | None, int] = {name: i for i, name in enumerate(names)}
        is_named = "class" in (self.group or "")
        if names and not is_named and any(path.count("/") > 1 for path in shown.values()):
            rule += f"; the class is the folder that a file is in: {listed(names, 4)}"
        sizes = ", ".join(f"{len(files):,} {SPLIT_WORDS[split]}" for split, files in parts.items())
        one = f"of 1 class, {', '.join(names[:1])} (a class is a folder; names of files are none)"
        of = {0: "without classes", 1: one}.get(len(names), f"of {len(names)} classes")
        described = self.described([*headers.values()])
        log.warning("%s: %s %s %s; %s; %s", root, sizes, self.plural, of, rule, described)
        if found := _counted(skipped):
            log.warning("%s: not read are %s", root, found)
        in_use = {name.rpartition("/")[0] for files in parts.values() for name in files}
        for folder in sorted(in_use):
            parent = folder.rpartition("/")[0]
            if names and parent in in_use and parent not in folders.values():
                said = f"{parent} holds files and the folder {folder}, which is a class of its own"
                log.warning(
                    Caution(f"{root}: {one_line(said)}; take it out if it holds masks or parts")
                )
        for said in self.cautions(headers):
            log.warning(Caution(f"{root}: {said}"))
        train, test = ([shown[name] for name in parts[split]] for split in ("train", "test"))
        if not group_of and (said := told(train, test)):
            log.warning(Caution(f"{root}: {said}"))
        advice = "--data.skip_bad N leaves out up to N such files"
        if self.skip_bad:
            advice = ""
        made = {}
        for split, files in parts.items():
            paths = [root / name for name in files]
            groups = [*map(group_of.get, files)] if group_of else None
            made[split] = of_files(
                paths, [*map(labels.get, files.values())], self.read, advice, groups
            )
        for said in lost_classes({split: part.labels for split, part in made.items()}, names):
            log.warning(Caution(f"{root}: {said}"))
        keys = {split: [content[name] for name in files] for split, files in parts.items()}
        keep = f"to keep equal files in one split: --data.group {CONTENT}"
        tell_leaks(str(root), made, keys, keep, log.warning, what="files")
        return Splits(made["train"], made["test"], made.get("valid"), names or None, rule)

    @property
    def _formats(self) -> str:
        """Such files, by their suffixes, in words."""
        return f"{', '.join(suffix.removeprefix('.').upper() for suffix in self.suffixes)} files".lstrip()

    def _files(
        self, root: Path, below: Walked, fitting: list[str], folders: Mapping[str, str]
    ) -> tuple[_Parts, Counter[str]]:
        """The files of each split with their classes, and the number of those that are not read, by reason."""
        skipped = below.skipped + Counter({"hidden": below.num_hidden})
        others = sorted({*below.files} - {*fitting})
        skipped.update(suffix_of(name) or "without a suffix" for name in others)
        parts: _Parts = {}
        for split, folder in folders.items():
            start = f"{folder}/" if folder else ""
            inside = [name for name in fitting if name.startswith(start)]
            labelled: dict[str, str | None] = {
                n: self._class(n[len(start) :]) for n in inside if "/" in n[len(start) :]
            }
            used = {name[:i] for name in labelled for i, letter in enumerate(name) if letter == "/"}
            empty = [name for name in below.folders if name.startswith(start) and name not in used]
            if not inside or (labelled and empty):
                where = f"{root / (empty[0] if labelled else folder)} holds no {self._formats}"
                if skipped.total() and not labelled:
                    where += f" (but {_counted(skipped)})"
                raise DataError(f"{where}; add some or take the folder out")
            parts[split] = labelled or dict.fromkeys(inside)
            skipped["in no class folder"] += len(inside) - len(parts[split])
            fitting = [name for name in fitting if not name.startswith(start)]
        skipped["outside the folders of the splits"] += len(fitting)
        return parts, skipped

    def _class(self, path: str) -> str:
        """The class of a file, by its path below the folder of the data or of its split."""
        if self._pattern and "class" in self._pattern.groupindex:
            return self._match(path)["class"]
        return path.split("/")[-2]

    def _match(self, path: str) -> re.Match[str]:
        """Class and group that the pattern finds in a path. Raises DataError where it does not fit."""
        assert self._pattern is not None
        found = self._pattern.fullmatch(path)
        if found is None:
            fault = f"{one_line(path)} has no group by --data.group {self.group}"
            raise DataError(
                f"{self.path}: {fault}; rename the file, or give a pattern that fits all"
            )
        return found

    def _groups(self, shown: Mapping[str, str], content: Mapping[str, Hashable]) -> dict[str, str]:
        """The group of each file; empty: none has one. shown: paths below the folder of the split."""
        if self.group == CONTENT:
            return {name: repr(key) for name, key in content.items()}
        if self.group is None:
            return {}
        return {name: self._match(shown[name])["group"] for name in content}

    def _apart(self, root: Path, parts: _Parts, group_of: Mapping[str, str]) -> _Parts:
        """The files of each given split without those of a group that is tested."""
        groups = {split: [group_of.get(name) for name in files] for split, files in parts.items()}
        kept = self._grouping(root).apart(groups)
        return {split: _at(files, kept[split]) for split, files in parts.items()}

    def _grouping(self, root: Path) -> Grouping:
        return Grouping(str(self.group), root, self.plural, log.warning)

    def _headers(self, paths: Sequence[Path]) -> dict[Path, Any]:
        """Headers of the files that can be read. Raises DataError where more than `skip_bad` cannot."""
        headers: dict[Path, Any] = {}
        reasons: list[str] = []
        for path in track(paths, f"checking {self.plural}", len(paths)):
            try:
                header = self.header(path)
                if self.skip_bad:
                    self.read(path)
                headers[path] = header
            except DataError as error:
                reasons.append(str(error))
        many = f"{len(reasons):,} of {len(paths):,} files cannot be read"
        if len(reasons) > self.skip_bad:
            raise DataError(
                f"{reasons[0]} ({many}; --data.skip_bad {len(reasons)} leaves them out)"
            )
        if reasons:
            log.warning(
                Caution(f"{self.path}: {many} and are left out; the first: {one_line(reasons[0])}")
            )
        return headers

    def _divided(
        self, root: Path, files: Mapping[str, str | None], group_of: Mapping[str, str]
    ) -> tuple[_Parts, str]:
        """Training and test, and the rule in words. Raises DataError where nothing would be left for test."""
        counts = Counter(files.values())
        classes = sorted(label for label in counts if label)
        number = {label: i for i, label in enumerate(classes)}
        labels = [number.get(label or "") for label in files.values()]
        if group_of:
            groups = [group_of[name] for name in files]
            train, test, rule = self._grouping(root).divided(
                groups, self.test_fraction, self.seed, labels
            )
            return {"train": _at(files, train), "test": _at(files, test)}, rule
        train, test = stratified(labels, self.test_fraction, self.seed)
        of_each = ""
        one_each = "it has one file"
        if classes:
            of_each = "of each class "
            one_each = f"each of its {len(classes)} classes has one file"
        if not test:
            above = folder_above(files)
            raise DataError(
                f"{root}: {one_each}, and training and test need one each; add files{above}"
            )
        single = [label for label in classes if counts[label] == 1]
        if single:
            many = f"{len(single)} of {len(classes)} classes have one file alone"
            names = one_line(", ".join(single[:5]))
            log.warning("%s: %s, which stays in training (%s)", root, many, names)
        rule = f"{100 * self.test_fraction:.0f} % {of_each}are test, SHA-256 with seed {self.seed}"
        return {"train": _at(files, train), "test": _at(files, test)}, rule


def split_folders(below: Walked) -> dict[str, str]:
    """The folder of each split, relative; `train` alone is "" where the data is not split by folders.

    A folder `train` that has no other split beside it is a class, as a car and a bus may be, unless it is the only
    folder and holds others.
    """
    top = [name for name in below.folders if "/" not in name]
    named: dict[str, str] = {}
    for name in top:
        if split := SPLIT_NAMES.get(name.lower()):
            if split in named:
                raise DataError(
                    f"folders {named[split]} and {name} are both the {SPLIT_WORDS[split]} split; join them"
                )
            named[split] = name
    train = named.get("train")
    is_alone = len(top) == 1 and any(name.startswith(f"{train}/") for name in below.folders)
    if train and (len(named) > 1 or is_alone):
        return named
    return {"train": ""}


def _at(files: Mapping[str, str | None], indices: Sequence[int]) -> dict[str, str | None]:
    each = [*files.items()]
    return dict(each[i] for i in indices)


def _class_names(root: Path, parts: _Parts, advice: str) -> list[str]:
    """The classes of training. Raises DataError where another split has more, or a name is not UTF-8.

    advice: what to do about more classes.
    """
    counts = Counter(parts["train"].values())
    names = sorted(label for label in counts if label is not None)
    if undecodable := [
        name for name in names if any("\ud800" <= letter <= "\udfff" for letter in name)
    ]:
        raise DataError(
            f"{root} has a class folder whose name is not UTF-8, {one_line(undecodable[0])}; rename it"
        )
    for files in parts.values():
        for name, label in files.items():
            if (label is None) != (not names):
                which = "no" if names else "a"
                raise DataError(f"{root / name} is in {which} class folder, unlike training")
            if label not in counts:
                raise DataError(
                    f"{root} has class {one_line(label)!r}, which training does not have; it has: "
                    f"{listed(names, 20)}{advice}"
                )
    everywhere = Counter(label for files in parts.values() for label in files.values())
    if said := alike({name: everywhere[name] for name in names}):
        log.warning(Caution(f"{root}: classes {said}"))
    return names


def _counted(skipped: Mapping[str, int]) -> str:
    """The number of files of each kind, in words; nothing where there are none."""
    found = [
        f"{count:,} {one_line(what)}" for what, count in Counter(skipped).most_common() if count
    ]
    if len(found) > 8:
        found[8:] = [f"and {len(found) - 8} more kinds"]
    return ", ".join(found)
