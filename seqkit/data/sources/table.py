"""Your own table: rows with an input and a target, in CSV, TSV, JSON Lines, Parquet or Arrow files, or on a hub."""

from __future__ import annotations

import logging
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.data.download import find, missing
from seqkit.data.source import DataSource, Sample, Splits, shuffled, stratified
from seqkit.data.tables.columns import Columns, Kind, TargetKind, check_column, is_missing, number, settle
from seqkit.data.tables.files import Rows, files_of, is_remote, read_tables
from seqkit.data.tables.targets import UsableRows, words_of
from seqkit.errors import DataError, one_line

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("seqkit")

SPLIT_NAMES = {
    "train": "train", "training": "train", "test": "test", "testing": "test",
    "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid",
}  # fmt: skip
"""Values of a column that names the split, in lower case."""

MAX_COMPARED = 2_000_000
"""Rows among which equal inputs are looked for; their hashes are in memory meanwhile."""


class Table(DataSource):
    """Your own table: each row has an input (a text, a file name, a SMILES string) and a target.

    path: CSV, TSV, JSON Lines, Parquet, Arrow or CoNLL files: one, several, a folder of shards, a pattern such as
    `data/*.parquet`, `hf://owner/name` or a file of an object store. test, valid: files of the other splits, or splits
    of the hub name. input, target: columns; several targets for numbers. kind: what the input column holds; images and
    sounds are files, named relative to the table. target_kind: None: words are classes, numbers are measurements, and
    zeros with ones are classes. What is not given is guessed from names and values, and said in one line.
    split: a column that names the split of each row. group: a column; rows that share a value in it stay in one split.
    test_fraction, seed: of the rows that are set aside as test split, by class, where no split is given.
    separator: between the columns of a CSV file; None: found in its first line. columns: their names, where the file
    has no header.
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        test: str | list[str] | None = None,
        valid: str | list[str] | None = None,
        input: str | None = None,
        target: str | list[str] | None = None,
        kind: Kind | None = None,
        target_kind: TargetKind | None = None,
        split: str | None = None,
        group: str | None = None,
        test_fraction: float = 0.2,
        seed: int = 0,
        separator: str | None = None,
        columns: list[str] | None = None,
    ):
        if not 0 < test_fraction < 1:
            raise ValueError(f"test_fraction is {test_fraction}; give a number between 0 and 1, such as 0.2")
        if split is not None and (test is not None or valid is not None):
            raise ValueError("split names a column that says the split of each row; leave test and valid out")
        if group is not None and (test is not None or split is not None):
            raise ValueError("group is for rows that are split here; leave it out where the splits are given")
        if separator == "":
            raise ValueError("separator is empty; give a character such as ';', or leave it out")
        if isinstance(target, list) and (not target or len(set(target)) < len(target)):
            raise ValueError(f"target is {target}; give one column or several different ones, or leave it out")
        self.path, self.test, self.valid = path, test, valid
        self.input, self.target, self.kind, self.target_kind = input, target, kind, target_kind
        self.split, self.group, self.test_fraction, self.seed = split, group, test_fraction, seed
        self.separator, self.columns = separator, columns
        self._train: str | list[str] = path
        self._rows: Rows | None = None

    def settled(self) -> Columns:
        """The columns and what they hold, with what was guessed. Logs the guess in one line.

        Raises DataError where a column does not exist, or where several fit equally.
        """
        reserved = [column for column in (self.split, self.group) if column is not None]
        for flag, column in (("split", self.split), ("group", self.group)):
            if column is not None:
                check_column(self._train_rows(), self._name(), column, flag)
        columns, said = settle(
            self._train_rows(), self._name(), input=self.input, target=self.target, kind=self.kind,
            target_kind=self.target_kind, reserved=reserved,
        )  # fmt: skip
        if said:
            for note in self._train_rows().notes:
                log.warning("%s", note)
            log.warning("%s", said)
        return columns

    def splits(self) -> Splits:
        """Samples that are read on access. Raises DataError for what cannot be learned from, with file and line.

        Logs, one line each: rows without input or target, equal inputs with other targets or in both splits, classes
        of one row, and the rule of the split.
        """
        return self.divided(log.warning)

    def divided(self, say: Callable[[str], None]) -> Splits:
        """As `splits`; what it logs is given to `say`."""
        columns = self.settled()
        rows = {"train": self._train_rows()}
        for name, path in (("valid", self.valid), ("test", self.test)):
            if path is not None:
                rows[name] = self._other_rows(path, name, columns)
        read = {name: UsableRows(part, columns, say) for name, part in rows.items()}
        train = read["train"]
        if len(train) < 2 and "test" not in read:
            raise DataError(
                f"{self._name()} holds {len(train)} usable row; training and test need at least one each: "
                "add rows, or give --data.test FILE"
            )
        if columns.kind in ("image", "audio"):
            for part in read.values():
                _check_files(part, self._folder())
        names = _class_names(train, columns, self._name(), say) if columns.target_kind in ("classes", "tags") else None
        classes = None if names is None else {split: part.numbered(names, split) for split, part in read.items()}
        indices, rule = self._divided(rows["train"], read, classes)
        found = {
            split: _Samples(
                read[part],
                chosen,
                folder=self._folder(),
                classes=None if classes is None else classes[part],
                names=names,
            )
            for split, (part, chosen) in indices.items()
        }
        _check_learnable(found, columns, names, self._name())
        _tell_equal_inputs(found, columns, self._name(), say)
        words = {"train": "training", "valid": "validation", "test": "test"}
        sizes = ", ".join(f"{len(part):,} {words[name]}" for name, part in found.items())
        say(f"{self._name()}: {sizes} rows; {rule}")
        return Splits(found["train"], found["test"], found.get("valid"), names, rule)

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _name(self) -> str:
        return self.path if isinstance(self.path, str) else f"{self.path[0]}, …" if self.path else "the table"

    def _find_splits(self) -> None:
        """Files of a folder that are called train…, test… and valid… are these splits."""
        if not isinstance(self.path, str) or is_remote(self.path) or not Path(self.path).expanduser().is_dir():
            return
        files: dict[str | None, list[str]] = {}
        for file in files_of(self.path):
            word = re.match(r"[a-z]+", Path(file).stem.lower())
            files.setdefault(SPLIT_NAMES.get(word[0] if word else ""), []).append(file)
        if "train" not in files or len(files) == 1 or self.test is not None or self.split is not None:
            return
        if None in files:
            raise DataError(
                f"{self.path} holds {files['train'][0]} and {files[None][0]}, of which the split is not clear; name "
                f"the files: --data {files['train'][0]} --data.test FILE"
            )
        self._train, self.test, self.valid = files["train"], files.get("test"), self.valid or files.get("valid")

    def _train_rows(self) -> Rows:
        if self._rows is None:
            self._find_splits()
            self._rows = read_tables(self._train, separator=self.separator, columns=self.columns)
        return self._rows

    def _other_rows(self, path: str | list[str], name: str, columns: Columns) -> Rows:
        hub = isinstance(self.path, str) and is_remote(self.path)
        if hub and isinstance(path, str) and "/" not in path and not Path(path).suffix:
            rows = read_tables(self.path, split=path)
        else:
            rows = read_tables(path, separator=self.separator, columns=self.columns)
        for column, flag in ((columns.input, "input"), *((target, "target") for target in columns.targets)):
            check_column(rows, path if isinstance(path, str) else ", ".join(path), column, flag)
        return rows

    def _folder(self) -> Path:
        first = self.path if isinstance(self.path, str) else self.path[0]
        file = Path(first).expanduser()
        return file if file.is_dir() else file.parent

    # ── splits ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _divided(
        self, rows: Rows, read: dict[str, UsableRows], classes: dict[str, array[int]] | None
    ) -> tuple[dict[str, tuple[str, Sequence[int]]], str]:
        """Of each split the part that it is read from, and the places in it; and the rule in words."""
        train = read["train"]
        if self.split is not None:
            return self._by_column(rows, train), f"by column {self.split!r}"
        given = {name: (name, range(len(part))) for name, part in read.items()}
        if "test" in read:
            return {**given}, "as given"
        if self.group is not None:
            chosen, rule = self._by_group(rows, train)
        else:
            strata = classes["train"] if classes and classes["train"] else [None] * len(train)
            chosen = stratified(strata, self.test_fraction, self.seed)
            by = "by class, " if classes and classes["train"] else ""
            rule = f"{self.test_fraction:.0%} of the rows are test, {by}SHA-256 with seed {self.seed}"
        return {**given, "train": ("train", chosen[0]), "test": ("train", chosen[1])}, rule

    def _by_column(self, rows: Rows, train: UsableRows) -> dict[str, tuple[str, Sequence[int]]]:
        assert self.split is not None
        column = rows.column(self.split)
        found: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
        for i, row in enumerate(train.indices):
            value = column[row]
            name = SPLIT_NAMES.get(str(value).strip().lower())
            if name is None:
                raise DataError(
                    f"{rows.place(row)}: {self.split} is {one_line(repr(value))}; write train, test or valid, or "
                    "choose another column with --data.split"
                )
            found[name].append(i)
        for name in ("train", "test"):
            if not found[name]:
                raise DataError(
                    f"{self._name()}: no row has the {self.split} {name}; add some, or leave --data.split out"
                )
        return {name: ("train", chosen) for name, chosen in found.items() if chosen}

    def _by_group(self, rows: Rows, train: UsableRows) -> tuple[tuple[list[int], list[int]], str]:
        """Whole groups, in SHA-256 order, until the test split has its share of the rows."""
        assert self.group is not None
        column = rows.column(self.group)
        members: dict[str, list[int]] = {}
        for i, row in enumerate(train.indices):
            value = column[row]
            if is_missing(value):
                raise DataError(
                    f"{rows.place(row)} has no {self.group}; fill it in, or choose another column with --data.group"
                )
            members.setdefault(repr(value), []).append(i)
        if len(members) < 2:
            raise DataError(
                f"{self._name()}: all rows have the same {self.group}; choose another column with --data.group"
            )
        groups = list(members.values())
        order = shuffled(len(groups), self.seed)
        wanted, test = self.test_fraction * len(train), [order[0]]
        for i in order[1:-1]:
            if sum(len(groups[j]) for j in test) >= wanted:
                break
            test.append(i)
        held_out = set(test)
        rest = [i for j, group in enumerate(groups) if j not in held_out for i in group]
        aside = [i for j in test for i in groups[j]]
        mixed = [rest[i] for i in shuffled(len(rest), -1 - self.seed)]
        return (
            mixed,
            aside,
        ), f"{len(test):,} of {len(groups):,} groups by {self.group!r} are test, SHA-256 with seed {self.seed}"


class SmsSpam(DataSource):
    """`sms-spam`: 5,574 text messages, `ham` or `spam` (13.4 %), from the UCI collection (Almeida and Hidalgo 2011).

    Split: a fifth of each class is test, `stratified(labels, 0.2, seed=0)`. 114 of the 1,114 test messages are in
    training, too, word for word.
    """

    def splits(self) -> Splits:
        """Raises DataError where `sms-spam/messages.tsv` is missing."""
        path = find("sms-spam/messages.tsv")
        if path is None:
            raise missing(
                "sms-spam/messages.tsv",
                "put the UCI SMS Spam Collection there, a line a message: ham or spam, a tab, the text",
            )
        table = Table(
            str(path), columns=["label", "text"], input="text", target="label", kind="text", target_kind="classes"
        )
        return table.divided(log.debug)


# ── samples ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Samples(Sequence[Sample]):
    """Samples of a split, their inputs read on access.

    chosen: places among the usable rows. classes: of these, by number; empty: tags, which are read with their row.
    """

    def __init__(
        self,
        read: UsableRows,
        chosen: Sequence[int],
        *,
        folder: Path,
        classes: array[int] | None,
        names: Sequence[str] | None,
    ):
        self.read, self.columns, self.folder, self.classes, self.names = read, read.columns, folder, classes, names
        self.chosen = chosen if isinstance(chosen, range) else array("q", chosen)
        self._inputs = read.rows.column(self.columns.input)
        self._targets = [read.rows.column(column) for column in self.columns.targets]
        self._tag_ids = {name: i for i, name in enumerate(names or ())}

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return _Samples(self.read, self.chosen[index], folder=self.folder, classes=self.classes, names=self.names)
        place = self.chosen[index]
        return Sample(self.raw(place), self.label(place))

    @property
    def labels(self) -> Sequence[Any]:
        """Labels without reading an input."""
        return _Labels(self)

    def sample_name(self, index: int) -> str:
        """File and line of that sample, for messages."""
        return self.read.place(self.chosen[index])

    def raw(self, place: int) -> Any:
        """The input of a usable row."""
        value = self._inputs[self.read.indices[place]]
        if self.columns.target_kind == "tags":
            return " ".join(words_of(value))
        if self.columns.kind in ("image", "audio"):
            from seqkit.data.io import read_audio, read_image  # brings torch, which a mistake is answered without

            return (read_image if self.columns.kind == "image" else read_audio)(self.folder / value)
        return value.strip() if self.columns.kind == "smiles" else value

    def label(self, place: int) -> Any:
        """The target of a usable row: a class, a number or several, a text or several, or classes [n] of its words."""
        kind, k = self.columns.target_kind, len(self._targets)
        if kind == "classes":
            assert self.classes is not None
            return self.classes[place]
        if kind == "numbers":
            found = self.read.numbers[place * k : place * k + k]
            return found[0] if k == 1 else list(found)
        if kind == "none":
            return None
        value = self._targets[0][self.read.indices[place]]
        return self._tags(value) if kind == "tags" else value

    def _tags(self, value: Any) -> Tensor:
        import torch

        return torch.tensor([self._tag_ids[str(tag)] for tag in words_of(value)])


class _Labels(Sequence[Any]):
    """Labels of a split, each made on access."""

    def __init__(self, samples: _Samples):
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._samples.label(place) for place in self._samples.chosen[index]]
        return self._samples.label(self._samples.chosen[index])


# ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_files(read: UsableRows, folder: Path) -> None:
    """Raise DataError where files that a table names are missing."""
    values = read.rows.column(read.columns.input)
    lost = [i for i, row in enumerate(read.indices) if not (folder / values[row]).is_file()]
    if lost:
        raise DataError(
            f"{read.place(lost[0])}: {one_line(values[read.indices[lost[0]]])} does not exist in {folder} "
            f"({len(lost):,} of {len(read):,} files are missing); name them relative to the table, or give --data.input"
        )


def _class_names(train: UsableRows, columns: Columns, name: str, say: Callable[[str], None]) -> list[str]:
    """Classes in the order of their numbers or names. Raises DataError where there are too few or too many."""
    names = train.texts
    target = columns.targets[0]
    if columns.target_kind == "classes":
        counts = Counter(train.codes)
        if len(names) < 2:
            raise DataError(
                f"{name}: {target} is {one_line(repr(names[0]))} in all {len(train):,} rows, and a classifier needs "
                "two classes; name another column with --data.target"
            )
        if len(train) >= 10 and len(names) > len(train) / 2:
            looks = all(number(text) is not None for text in names)
            kind = "numbers" if looks else "text"
            raise DataError(
                f"{name}: {target} has {len(names):,} different values in {len(train):,} rows, which are no classes; "
                f"did you mean --data.target_kind {kind}, or another column (--data.target)?"
            )
        single = [names[code] for code, count in counts.items() if count == 1]
        if single:
            say(
                f"{name}: {len(single)} of {len(names)} classes of {target} have one row alone, which stays in "
                f"training ({_few(single)})"
            )
    folded = Counter(text.casefold() for text in names)
    if alike := [text for text in names if folded[text.casefold()] > 1]:
        say(f"{name}: classes differ by capital letters alone: {_few(alike)}; they count as different")
    values = [number(text) for text in names]
    if all(value is not None and math.isfinite(value) for value in values):
        return [text for _, text in sorted(zip(values, names))]  # type: ignore[type-var]
    return sorted(names)


def _few(names: Sequence[str]) -> str:
    return ", ".join(one_line(text) for text in sorted(names)[:5]) + (", …" if len(names) > 5 else "")


def _check_learnable(found: dict[str, _Samples], columns: Columns, names: list[str] | None, name: str) -> None:
    """Raise DataError where training has one number or one class alone, or test has a class that training lacks."""
    train = found["train"]
    if columns.target_kind == "numbers":
        k = len(columns.targets)
        for j, target in enumerate(columns.targets):
            values = {x for place in train.chosen if not math.isnan(x := train.read.numbers[place * k + j])}
            if len(values) < 2 and len(train) > 1:
                what = f"is {values.pop():g} in all rows" if values else "has no number in the rows"
                raise DataError(
                    f"{name}: {target} {what} of the training split; name another column with --data.target"
                )
    if names is None or columns.target_kind == "tags":
        return
    known = set(train.labels)
    for split, samples in found.items():
        for i, label in enumerate(samples.labels):
            if label not in known:
                raise DataError(
                    f"{samples.sample_name(i)} is in the {split} split with class {one_line(repr(names[label]))}, "
                    "which training lacks; add rows of it, or draw another split with --data.seed"
                )


def _tell_equal_inputs(found: dict[str, _Samples], columns: Columns, name: str, say: Callable[[str], None]) -> None:
    """Say how many equal inputs have other targets, and how many inputs of test are in training."""
    if sum(map(len, found.values())) > MAX_COMPARED:
        say(f"{name} has more than {MAX_COMPARED:,} rows: equal inputs are not looked for")
        return
    first: dict[Any, Any] = {}
    compares = columns.target_kind in ("classes", "numbers")
    conflicts: list[str] = []
    shared: list[str] = []
    in_training: set[int] = set()
    for split, samples in sorted(found.items(), key=lambda pair: pair[0] != "train"):
        values = samples.read.rows.column(columns.input)
        for i, place in enumerate(samples.chosen):
            value = values[samples.read.indices[place]]
            key = hash(value.strip() if isinstance(value, str) else repr(value))
            if split == "train":
                in_training.add(key)
            elif split == "test" and key in in_training:
                shared.append(samples.sample_name(i))
            if compares:
                label = samples.label(place)
                if first.setdefault(key, repr(label)) != repr(label):
                    conflicts.append(samples.sample_name(i))
    if conflicts:
        say(
            f"{name}: {len(conflicts):,} rows have the input of another row, and another target (first: "
            f"{conflicts[0].rpartition(', ')[2]})"
        )
    if shared:
        say(
            f"{name}: {len(shared):,} of {len(found['test']):,} test inputs are in training, too (first: "
            f"{shared[0].rpartition(', ')[2]}), which flatters the result; where rows are split here, "
            f"--data.group {columns.input} keeps equal inputs together"
        )
