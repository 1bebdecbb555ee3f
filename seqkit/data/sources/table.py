"""Your own table: rows with an input and a target, in CSV, TSV, JSON Lines, Parquet or Arrow files, or on a hub."""

from __future__ import annotations

import logging
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, cast
from unicodedata import normalize

from seqkit.data.formats import AUDIO, IMAGE, own_reader
from seqkit.data.notes import Caution
from seqkit.data.sample import Splits
from seqkit.data.source import DataSource
from seqkit.data.splits import MAX_OF_GROUP, by_group, stratified
from seqkit.data.tables.columns import (
    AMBIGUOUS,
    LOOKED_AT,
    Columns,
    Kind,
    TargetKind,
    check_column,
    folded,
    is_blank,
    is_missing,
    is_nameless,
    is_pattern,
    kind_of,
    number,
    settle,
)
from seqkit.data.tables.equal_cells import EqualCells
from seqkit.data.tables.files import Rows, files_of, is_remote, read_tables
from seqkit.data.tables.repeated_rows import tell_equal_inputs
from seqkit.data.tables.usable_rows import InputColumn, Subset, UsableRows
from seqkit.errors import DataError, attempt, one_line

log = logging.getLogger("seqkit")

SPLIT_NAMES = {
    "train": "train", "training": "train", "test": "test", "testing": "test",
    "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid",
}  # fmt: skip
"""Values of a column that names the split, in lower case."""

FEW_CLASSES = 10
"""Number of classes up to which a split says how many rows of each are test."""

MAX_COMPARED = 2_000_000
"""Rows among which equal inputs are looked for; their hashes are in memory meanwhile."""


class Table(DataSource):
    """Your own table: each row has an input (a text, a file name, a SMILES string) and a target.

    path: CSV, TSV, JSON, JSON Lines, Parquet or Arrow files: one, several, a folder of shards, a pattern such as
    `data/*.parquet`, `hf://owner/name` or a file of an object store. test, valid: files of the other splits, or splits
    of the hub name. input, target: columns; several targets for numbers and labels. kind: what the input column holds
    (`seqkit.data.tables.columns.Kind`); images, sounds and what the tokenizer's own `read` reads are files, named
    relative to the table, or the bytes of images and sounds. Several input columns, a list or a pattern such as `s*`,
    are a series. target_kind: what the target holds; None: words are classes, numbers are measurements, and zeros with
    ones are classes. What is not given is guessed from names and values, and said in one line.
    split: a column that names the split of each row. group: a column; rows that share a value in it stay in one split.
    If the test split is given, it stays as it is, and a line says which of its groups are in training, too.
    test_fraction, seed: share of the rows that are set aside as test split, by class, where no split is given, and the
    seed of their choice. separator: between the columns of a CSV file; None: found in its first line. decimal: "." or
    ",", before the decimals of numbers; with ",", points group digits (1.234,5). columns: their names, where the file
    has no header. skip_bad: at most so many rows of a split that cannot be used are left out, and
    counted; for that, files and molecules are each read once beforehand.
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        test: str | list[str] | None = None,
        valid: str | list[str] | None = None,
        input: str | list[str] | None = None,
        target: str | list[str] | None = None,
        kind: Kind | None = None,
        target_kind: TargetKind | None = None,
        split: str | None = None,
        group: str | None = None,
        test_fraction: float = 0.2,
        seed: int = 0,
        separator: str | None = None,
        decimal: str = ".",
        columns: list[str] | None = None,
        skip_bad: int = 0,
    ):
        if not 0 < test_fraction < 1:
            raise ValueError(f"test_fraction is {test_fraction}; give a number between 0 and 1, such as 0.2")
        if split is not None and (test is not None or valid is not None):
            raise ValueError("split names a column that says the split of each row; leave test and valid out")
        if decimal not in (".", ","):
            raise ValueError(
                f"decimal is {decimal!r}; give . or , as numbers of the table have it before their decimals"
            )
        if separator == "":
            raise ValueError("separator is empty; give a character such as ';', or leave it out")
        if isinstance(target, list) and (not target or len(set(target)) < len(target)):
            raise ValueError(f"target is {target}; give one column or several different ones, or leave it out")
        if skip_bad < 0:
            raise ValueError(f"skip_bad is {skip_bad}; give the most rows that may be left out, 0 or more")
        self.path, self.test, self.valid = path, test, valid
        self.input, self.target, self.kind, self.target_kind = input, target, kind, target_kind
        self.split, self.group, self.test_fraction, self.seed = split, group, test_fraction, seed
        self.separator, self.decimal, self.columns, self.skip_bad = separator, decimal, columns, skip_bad
        self._tokenizer: Any = None

    def read_for(self, tokenizer: Any) -> None:
        """Keeps the tokenizer, which reads files and tries examples where some may be left out."""
        self._tokenizer = tokenizer

    def settled(self, *, reads_files: bool = False) -> Columns:
        """The columns and what they hold, guessed by the first rows where that is open. Logs the guess in one line.

        reads_files: True: the tokenizer reads files itself, and a column may name them.
        Raises DataError where a column does not exist, or where several fit equally.
        """
        return self._settled(self.first_rows(), reads_files)

    def splits(self) -> Splits:
        """Samples that are read on access. Raises DataError for what cannot be learned from, with file and line.

        Logs, one line each: columns that are not used, rows without input or target, equal inputs with other targets
        or in both splits, classes of one row, and the rule of the split.
        """
        return self.divided(log.warning)

    def divided(self, say: Callable[[str], None]) -> Splits:
        """The splits, as `splits` returns them; `say` is given the lines in place of the log."""
        rows = self.rows()
        read_file = own_reader(self._tokenizer)
        columns = self._settled(rows["train"], read_file is not None)
        if columns.steps:
            rows = {split: part.with_series(columns.steps)[0] for split, part in rows.items()}
            say(f"{rows['train'].name}: the input is a series of {len(columns.steps)} columns, {columns.input}")
        if columns.kind == "file" and read_file is None:
            raise DataError(
                f"{rows['train'].name}: {columns.input} names files that the tokenizer's read(path) reads, which "
                f"{type(self._tokenizer).__name__} does not have; write it, or give another --data.kind"
            )
        for part in rows.values():
            for column, flag in ((columns.input, "input"), *((target, "target") for target in columns.targets)):
                check_column(part, column, f"--data.{flag}")
        known = {columns.input, *columns.targets, self.split, self.group}
        for table in rows.values():  # a column of several files is named once
            unused = [column for column in table.names if not is_nameless(column) and column not in known]
            if unused:
                more = f", … ({len(unused)} in all)" if len(unused) > 8 else ""
                which, are = ("column", "is") if len(unused) == 1 else ("columns", "are")
                say(f"{table.name}: the {which} {', '.join(map(repr, unused[:8]))}{more} {are} not used")
            known.update(unused)
        kind = {"image": IMAGE, "audio": AUDIO}.get(columns.kind)
        reader = read_file if kind is None else read_file or partial(kind.read_for, tokenizer=self._tokenizer)
        read = {
            split: UsableRows(
                part, columns, InputColumn(part, columns, self.folder, reader),
                say=say, encode=self._encode, skip_bad=self.skip_bad,
            )
            for split, part in rows.items()
        }  # fmt: skip
        return self.split_up(read, say)

    def split_up(self, read: dict[str, UsableRows], say: Callable[[str], None]) -> Splits:
        """The splits of checked rows: classes numbered, training and test told apart, equal inputs said."""
        name, columns = read["train"].rows.name, read["train"].columns
        if len(read["train"]) < 2 and "test" not in read:
            raise DataError(
                f"{name} holds {len(read['train'])} usable row; training and test need at least one each: "
                "add rows, or give --data.test FILE"
            )
        names = list(columns.targets) if columns.target_kind == "labels" else None
        if columns.target_kind in ("classes", "tags"):
            names = _class_names(read["train"], name, say)
            for split, part in read.items():
                part.use_classes(names, split)
        found, rule = self._divided(read, say)
        _check_learnable(found, read["train"], names)
        if (total := sum(map(len, found.values()))) <= MAX_COMPARED:
            is_split_here = self.split is None and "test" not in read
            tell_equal_inputs(found, say, is_split_here=is_split_here, group=self.group)
        else:
            most = f"{MAX_COMPARED:,} are the most"
            say(Caution(f"{name}: equal inputs are not looked for in {total:,} rows; {most}"))
        words = {"train": "training", "valid": "validation", "test": "test"}
        sizes = ", ".join(f"{len(part):,} {words[split]}" for split, part in found.items())
        say(f"{name}: {sizes} rows; {rule}")
        made = {split: part.samples_of() for split, part in found.items()}
        return Splits(made["train"], made["test"], made.get("valid"), names, rule)

    def rows(self) -> dict[str, Rows]:
        """Rows of each split that has files of its own; the others are among those of `train`."""
        train, others = self._files()
        return {split: self._rows(path) for split, path in {"train": train, **others}.items()}

    def first_rows(self) -> Rows:
        """Rows of training by which columns are guessed."""
        return self._rows(self._files()[0], max_rows=LOOKED_AT)

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _files(self) -> tuple[str | list[str], dict[str, str | list[str]]]:
        """Paths of the training rows, and of the other splits: as given, or by the names of the files in a folder."""
        others = {split: path for split, path in (("valid", self.valid), ("test", self.test)) if path is not None}
        is_folder = isinstance(self.path, str) and not is_remote(self.path) and Path(self.path).expanduser().is_dir()
        if not is_folder or self.test is not None or self.split is not None:
            return self.path, others
        files: dict[str | None, list[str]] = {}
        for file in files_of(str(self.path)):
            word = re.match(r"[a-z]+", Path(file).stem.lower())
            files.setdefault(SPLIT_NAMES.get(word[0] if word else ""), []).append(file)
        if "train" not in files or len(files) == 1:
            return self.path, others
        if None in files:
            raise DataError(
                f"{self.path} holds {files['train'][0]} and {files[None][0]}, of which the split is not clear; name "
                f"the files: --data {shlex.quote(files['train'][0])} --data.test FILE"
            )
        named: dict[str, str | list[str]] = {split: files[split] for split in ("valid", "test") if split in files}
        return files["train"], named | others

    def _rows(self, path: str | list[str], max_rows: int | None = None) -> Rows:
        is_split = isinstance(path, str) and "/" not in path and not Path(path).suffix
        if isinstance(self.path, str) and is_remote(self.path) and is_split:
            return read_tables(self.path, split=str(path), decimal=self.decimal)
        return read_tables(
            path, separator=self.separator, decimal=self.decimal, columns=self.columns, skip_bad=self.skip_bad,
            max_rows=max_rows,
        )  # fmt: skip

    def _settled(self, rows: Rows, reads_files: bool) -> Columns:
        rows, column = self._with_series(rows)
        columns, guess = settle(
            rows, input=column, target=self.target, kind=self.kind, target_kind=self.target_kind,
            split=self.split, group=self.group, files_in=self.folder if reads_files else None,
        )  # fmt: skip
        for line in (*rows.notes, guess) if guess else ():
            log.warning("%s", line)
        return columns

    def _with_series(self, rows: Rows) -> tuple[Rows, str | None]:
        """The rows with a column for the series that several input columns are, and the name of the input column."""
        if isinstance(self.input, list):
            return rows.with_series(self.input)
        if self.input is None or self.input in rows.names or not is_pattern(self.input):
            return rows, self.input
        others = {self.split, self.group, *([self.target] if isinstance(self.target, str) else self.target or ())}
        steps = [name for name in rows.names if fnmatchcase(name, self.input) and name not in others]
        if not steps:
            raise DataError(f"{rows.name}: no column is called as in {self.input!r} ({few(rows.names)}); --data.input")
        return rows.with_series(steps)

    def _encode(self, raw: Any) -> None:
        """Try an example, unless the tokenizer has to be fitted first. Raises DataError."""
        if self._tokenizer is not None and not hasattr(self._tokenizer, "fit"):
            attempt(self._tokenizer, "encode", raw)

    @property
    def folder(self) -> Path:
        """Folder of the files that the table names."""
        file = Path(self.path if isinstance(self.path, str) else self.path[0]).expanduser()
        return file if file.is_dir() else file.parent

    # ── splits ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _divided(self, read: dict[str, UsableRows], say: Callable[[str], None]) -> tuple[dict[str, Subset], str]:
        """The samples of each split, and the rule in words."""
        train = read["train"]
        if self.split is not None:
            found = self._with_groups(self._by_column(train, self.split), say)
            return found, f"by column {self.split!r}{_of_classes(train, found['test'].indices)}"
        is_given = "test" in read
        given = {split: Subset(part, range(len(part))) for split, part in read.items() if is_given or split != "train"}
        if is_given:
            return self._with_groups(given, say), "as given"
        if self.group is not None:
            rest, test, rule = self._by_group(train, self.group, say)
            return {**given, "train": rest, "test": test}, rule
        has_classes = train.columns.target_kind == "classes"
        chosen, aside = stratified(train.codes if has_classes else [None] * len(train), self.test_fraction, self.seed)
        by = "by class, " if has_classes else ""
        rule = f"{100 * self.test_fraction:.0f} % of the rows are test, {by}SHA-256 with seed {self.seed}"
        return {**given, "train": Subset(train, chosen), "test": Subset(train, aside)}, rule

    def _by_column(self, train: UsableRows, name: str) -> dict[str, Subset]:
        column = train.rows.column(name)
        found: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
        for i, row in enumerate(train.indices):
            value = column[row]
            split = SPLIT_NAMES.get(str(value).strip().lower())
            if split is None:
                raise DataError(
                    f"{train.sample_name(i)}: {name} is {one_line(repr(value))}; write train, test or valid, or "
                    "choose another column with --data.split"
                )
            found[split].append(i)
        for split in ("train", "test"):
            if not found[split]:
                raise DataError(f"{train.rows.name}: no row has the {name} {split}; add some, or give no --data.split")
        return {split: Subset(train, chosen) for split, chosen in found.items() if chosen}

    def _by_group(self, train: UsableRows, name: str, say: Callable[[str], None]) -> tuple[Subset, Subset, str]:
        """Training and test with the group of each row, and the rule. A row that has no group is one by itself."""
        (groups,) = self._group_keys([Subset(train, range(len(train)))], name, say)
        if len(set(groups)) < 2:
            raise DataError(f"{train.rows.name}: all rows have the same {name}; give another --data.group")
        rest, aside = by_group(groups, self.test_fraction, self.seed)
        test = Subset(train, aside, [groups[i] for i in aside])
        share = len(aside) / len(groups)
        rule = f"{len(set(test.groups or ())):,} of {len(set(groups)):,} groups by {name!r} are test"
        if not 1 / MAX_OF_GROUP < share / self.test_fraction < MAX_OF_GROUP:
            say(
                Caution(
                    f"{train.rows.name}: {len(aside):,} of {len(groups):,} rows are test, as groups by {name!r} stay "
                    f"whole and the largest has {max(Counter(groups).values()):,} rows"
                )
            )
        rule += f", SHA-256 with seed {self.seed}"
        return Subset(train, rest, [groups[i] for i in rest]), test, rule + _of_classes(train, aside)

    def _with_groups(self, found: dict[str, Subset], say: Callable[[str], None]) -> dict[str, Subset]:
        """Given splits with the group of each row; says how many groups of test are in training, too."""
        name = self.group
        if name is None:
            return found
        train, test = self._group_keys([found["train"], found["test"]], name, say)
        of_training, groups = set(train), dict.fromkeys(test)
        shared = [group for group in groups if group in of_training]
        table = cast("UsableRows", found["test"].samples)
        if shared and name != table.columns.input:  # of equal inputs another line says it
            first = found["test"].sample_name(test.index(shared[0]))
            say(
                Caution(
                    f"{table.rows.name}: {len(shared):,} of {len(groups):,} test groups by {name!r} are in training, "
                    f"too (first: {first}), which may flatter the result; take them out of one of them, or give no "
                    "split: then --data.group keeps groups together"
                )
            )
        keys = {"train": train, "test": test}
        return {split: Subset(one.samples, one.indices, keys.get(split)) for split, one in found.items()}

    def _group_keys(self, splits: Sequence[Subset], name: str, say: Callable[[str], None]) -> list[list[str]]:
        """The group of each row of each split; a row that has none is a group by itself, and is counted.

        Raises DataError where no row has one, or a table lacks the column.
        """
        tables = [cast("UsableRows", samples.samples) for samples in splits]
        for table in tables:
            check_column(table.rows, name, "--data.group")
        kind = _kind_of_group(tables[0], name)
        is_absent = is_blank if kind == "text" else is_missing
        columns = [table.rows.column(name) for table in tables]

        def cells(of: int) -> Iterator[Any]:
            """Cells of a split, one after the other: they may be whole files."""
            return (columns[of][tables[of].indices[i]] for i in splits[of].indices)

        numbers = range(len(splits))
        equal = EqualCells(kind, self.folder, lambda: (x for of in numbers for x in cells(of) if not is_absent(x)))
        found: list[list[str]] = []
        num_filled = 0
        for of, samples in enumerate(splits):
            alone, keys = [], []
            for i, cell in enumerate(cells(of)):
                if is_absent(cell):
                    alone.append(samples.sample_name(i))
                keys.append(f"no {name}: {alone[-1]}" if is_absent(cell) else repr(equal.key(cell)))
            if alone:
                where = f"{tables[of].rows.name}: {len(alone):,} rows have no {name} (first: {alone[0]})"
                say(f"{where}; each is a group of its own")
            num_filled += len(keys) - len(alone)
            found.append(keys)
        if num_filled == 0:
            raise DataError(f"{tables[0].rows.name}: no row has a {name}; fill it in, or give another --data.group")
        return found


# ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _class_names(train: UsableRows, table: str, say: Callable[[str], None]) -> list[str]:
    """Classes in the order of their numbers or names. Raises DataError where there are too few or too many."""
    names, target = train.texts, train.columns.targets[0]
    if train.columns.target_kind == "classes":
        if len(names) < 2:
            raise DataError(
                f"{table}: {target} is {one_line(repr(names[0]))} in all {len(train):,} rows, and a classifier needs "
                "two classes; name another column with --data.target"
            )
        if len(train) >= 10 and len(names) > len(train) / 2:
            kind = "numbers" if all(number(text, train.rows.decimal) is not None for text in names) else "text"
            raise DataError(
                f"{table}: {target} has {len(names):,} different values in {len(train):,} rows, which are no classes; "
                f"did you mean --data.target_kind {kind}, or another column (--data.target)?"
            )
        if single := [text for text, count in train.counts.items() if count == 1]:
            say(
                f"{table}: {len(single)} of {len(names)} classes of {target} have one row alone, which stays in "
                f"training ({few(single)})"
            )
    for line in (unclear_classes(names, target), alike_classes(train.counts)):
        if line:
            say(f"{table}: {line}")
    values = [number(text, train.rows.decimal) for text in names]
    if all(value is not None and math.isfinite(value) for value in values):
        return [text for _, text in sorted(zip(values, names))]  # type: ignore[type-var]
    return sorted(names)


def _kind_of_group(train: UsableRows, name: str) -> str:
    """Kind of the column of groups: that of an input, molecules, or else words that are compared as written."""
    kinds: Mapping[str, str] = getattr(train.inputs, "kinds", {train.columns.input: train.columns.kind})
    if name in kinds:
        return kinds[name]
    return "smiles" if kind_of(train.rows, [name]) == "smiles" else "group"


def _of_classes(train: UsableRows, aside: Sequence[int]) -> str:
    """Number of rows of each of few classes, or with each label, that are test, as words behind a rule; else empty."""
    columns, counted = train.columns, []
    if columns.target_kind == "classes":
        all_rows, test = Counter(train.codes), Counter(train.codes[i] for i in aside)
        counted = [(test[i], all_rows[i], f"{columns.targets[0]}={name}") for i, name in enumerate(train.texts)]
    elif columns.target_kind == "labels":
        k = len(columns.targets)
        for j, target in enumerate(columns.targets):
            yes = [train.numbers[i * k + j] == 1 for i in range(len(train))]
            counted.append((sum(yes[i] for i in aside), sum(yes), f"{target}=1"))
    if not 0 < len(counted) <= FEW_CLASSES:
        return ""
    return "; test has " + ", ".join(f"{some:,} of {number:,} {one_line(what)}" for some, number, what in counted)


def few(names: Sequence[str]) -> str:
    """The first five names in their order."""
    return ", ".join(one_line(text) for text in sorted(names)[:5]) + (", …" if len(names) > 5 else "")


def unclear_classes(names: Sequence[str], target: str) -> str:
    """A sentence on classes whose names may say that there is none; empty: there are no such classes."""
    unclear = [text for text in names if is_missing(text) or text.lower() in AMBIGUOUS]
    what = f"{few(unclear)} counts as a class of {target}; leave the cell empty where none is known"
    return what if unclear else ""


def alike_classes(counts: Mapping[str, int]) -> str:
    """A sentence on classes that look alike, each with its spelling and count; empty: there are no such classes."""
    found = alike(counts)
    more = "; …" if len(found) > 5 else ""
    return f"classes look alike: {'; '.join(found[:5])}{more}; they count as different" if found else ""


def alike(counts: Mapping[str, int]) -> list[str]:
    """The names that look alike, as words: those of one look together, each with its spelling and count."""
    groups: dict[str | float, list[str]] = {}
    for name in sorted(counts):
        groups.setdefault(folded(name), []).append(name)
    found = []
    for group in groups.values():
        # repr escapes what is invisible; of two Unicode forms of a letter it shows the same
        show = repr if len({normalize("NFC", name) for name in group}) == len(group) else ascii
        found += [" and ".join(f"{show(name)} ({counts[name]:,})" for name in group)] if len(group) > 1 else []
    return found


def _check_learnable(found: dict[str, Subset], train: UsableRows, names: list[str] | None) -> None:
    """Raise DataError where training has one number alone, or another split has a class that training lacks."""
    known = found["train"]
    if train.columns.target_kind in ("numbers", "labels"):
        k = len(train.columns.targets)
        for j, target in enumerate(train.columns.targets):
            numbers = {x for i in known.indices if not math.isnan(x := train.numbers[i * k + j])}
            if len(numbers) < 2 and len(known) > 1:
                what = f"is {numbers.pop():g} in all rows" if numbers else "has no number in the rows"
                raise DataError(
                    f"{train.rows.name}: {target} {what} of the training split; name another column with --data.target"
                )
    if train.columns.target_kind != "classes" or names is None:
        return
    classes = set(known.labels)
    for split, samples in found.items():
        for i, label in enumerate(samples.labels):
            if label not in classes:
                raise DataError(
                    f"{samples.sample_name(i)} is in the {split} split with class {one_line(repr(names[label]))}, "
                    "which training lacks; add rows of it, or draw another split with --data.seed"
                )
