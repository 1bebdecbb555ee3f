"""Your own table: rows with one input or several, and a target; CSV, JSON Lines, Parquet, Arrow, or on a hub."""

from __future__ import annotations

import logging
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqkit.data.formats import own_reader
from seqkit.data.kinds import FILES, KIND_OF_TOKENIZER, OF_CELLS
from seqkit.data.leaks import Compared, tell_leaks
from seqkit.data.notes import Caution
from seqkit.data.sample import Samples, Splits
from seqkit.data.source import DataSource
from seqkit.data.splits import MAX_OF_GROUP, SPLIT_NAMES, SPLIT_WORDS, by_group, stratified
from seqkit.data.tables.cells import canonical, is_missing, number, short
from seqkit.data.tables.examples import Examples, UsableRows
from seqkit.data.tables.infer import infer
from seqkit.data.tables.read import Tables, files_of, is_remote
from seqkit.data.tables.rows import Rows
from seqkit.data.tables.schema import Column, Given, Schema, check_column
from seqkit.errors import DataError, one_line

log = logging.getLogger("seqkit")


@dataclass(frozen=True)
class Division:
    """How the rows of a table are divided into splits.

    test, valid: files of the other splits, or splits of the hub name. split: a column that names the split of each row.
    group: a column; rows that share a value in it stay in one split. test_fraction, seed: share of the rows that are
    test where no split is given, by class, and the seed of their choice.
    """

    is_settings = True

    test: str | list[str] | None = None
    valid: str | list[str] | None = None
    split: str | None = None
    group: str | None = None
    test_fraction: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.test_fraction < 1:
            raise ValueError(
                f"test_fraction is {self.test_fraction}; give a number between 0 and 1, such as 0.2"
            )
        if self.split is not None and (self.test is not None or self.valid is not None):
            raise ValueError(
                "split names a column that says the split of each row; leave test and valid out"
            )


class Table(DataSource):
    """Your own table: each row is an example, and has a target.

    A recipe with the tokenizer `Join` learns from all columns: a column of texts, images, sounds or molecules is a
    part, and numbers, dates and categories are one part together, `cells`. Other recipes read one column.
    path: CSV, TSV, JSON, JSON Lines, Parquet or Arrow files: one, several, a folder of shards, a pattern such as
    `data/*.parquet`, or `hf://owner/name`. columns: what is known of its columns; the rest is inferred from the first
    rows, and said in a line each. division: how rows are divided into splits. folder: folder of the files that cells
    name, which lie below it; None: that of the table. skip_bad: at most so many rows of a split that cannot be used are
    left out, and counted.

    >>> Table("reviews.csv", Given(target="stars"), Division(group="author"))  # doctest: +ELLIPSIS
    <seqkit.data.sources.table.Table object at ...>
    """

    def __init__(
        self,
        path: str | list[str],
        columns: Given = Given(),  # noqa: B008, it is frozen
        division: Division = Division(),
        *,
        folder: str | None = None,
        skip_bad: int = 0,
    ):
        if skip_bad < 0:
            raise ValueError(
                f"skip_bad is {skip_bad}; give the most rows that may be left out, 0 or more"
            )
        self.path = path
        self.columns = columns
        self.division = division
        self.skip_bad = skip_bad
        self.tables = Tables()
        self._folder = folder
        self._tokenizer: Any = None
        self._schema: Schema | None = None

    def read_for(self, tokenizer: Any) -> None:
        """Take the tokenizer: whether it reads one column or all, and how files are read."""
        self._tokenizer = tokenizer

    @property
    def folder(self) -> Path:
        """Folder of the files that cells name."""
        if self._folder is not None:
            return Path(self._folder).expanduser()
        file = Path(self.path if isinstance(self.path, str) else self.path[0]).expanduser()
        return file if file.is_dir() else file.parent

    def schema(self) -> Schema:
        """The columns of the table, inferred once for the tokenizer, and said in a line each. Raises as `inferred`."""
        if self._schema is None:
            reads_files = own_reader(self._tokenizer) is not None
            self._schema = self.inferred(reads=self._reads(), reads_files=reads_files)
            lines = [*self._schema.lines()]
            if lines:  # what a run knows is not said again
                lines = [*self.rows().notes, *lines]
            for line in lines:
                log.warning("%s", line)
        return self._schema

    def inferred(self, *, reads: str | None = None, reads_files: bool = False) -> Schema:
        """The columns of the table, by what is given and its first rows.

        reads: as of `infer`. reads_files: True: the tokenizer reads files itself, and a column may name them.
        Raises DataError where a column does not exist, or what to learn is not clear.
        """
        return infer(
            self.rows(), self.columns, reads=reads, split=self.division.split, group=self.division.group,
            folder=self.folder if reads_files else None,
        )  # fmt: skip

    def rows(self) -> Rows:
        """The rows of training or, where the files are not split, all."""
        return self._rows(self._files()[0])

    def decided(self) -> dict[str, Any]:
        """The inferred columns as arguments; a run keeps them."""
        return {} if self._schema is None else self._schema.settings()

    def splits(self) -> Splits:
        """Samples that are read on access. Raises DataError for what cannot be learned from, with file and line.

        Logs, one line each: rows without input or target, equal inputs with other targets or in both splits, classes of
        one row, and the rule of the split.
        """
        return self.divided(log.warning)

    def divided(self, say: Callable[[str], None]) -> Splits:
        """The splits, as `splits` returns them; `say` gets the lines in place of the log, as of a data set."""
        schema = self.schema()
        self._contents = Compared(self.folder)
        train, others = self._files()
        read: dict[str, UsableRows] = {}
        for split, path in {"train": train, **others}.items():
            rows = self._rows(path)
            for column in (*schema.targets, *(schema.inputs if not schema.steps else ())):
                check_column(rows, column.name, "--data.columns")
            unknown = [
                name
                for name in rows.names
                if name not in {column.name for column in schema.columns}
            ]
            if unknown and not schema.steps:
                say(
                    f"{rows.name}: {', '.join(map(repr, unknown[:8]))} is in no row of training, and is not used"
                )
            examples = Examples(rows, schema, self.folder, self._tokenizer)
            read[split] = UsableRows(examples, say=say, skip_bad=self.skip_bad)
        name = read["train"].rows.name
        if len(read["train"]) < 2 and "test" not in read:
            raise DataError(
                f"{name} holds {len(read['train'])} usable row; training and test need at least one each"
            )
        names = None
        if schema.target_kind == "labels":
            names = [column.name for column in schema.targets]
        if schema.target_kind in ("classes", "tags"):
            names = _class_names(read["train"], say)
            for split, part in read.items():
                part.number(names, split)
        made = {
            split: Samples(
                part.raw, part.labels, groups=self._groups(part, say), name=part.name, key=part.key
            )
            for split, part in read.items()
        }
        chosen, rule = self._split_up(made, read["train"], say)
        chosen = {split: chosen[split] for split in ("train", "valid", "test") if split in chosen}
        found = {split: made[of].at(rows) for split, (of, rows) in chosen.items()}
        if self.division.group is not None:
            _tell_shared_groups(found, name, self.division.group, say)
        _check_learnable(found, schema, name, names)
        inputs = {split: self._inputs(part) for split, part in read.items()}
        keys = {split: [inputs[of][i] for i in rows] for split, (of, rows) in chosen.items()}
        self._tell_leaks(
            found, keys, schema, say, is_given="test" in read or self.division.split is not None
        )
        sizes = ", ".join(f"{len(part):,} {SPLIT_WORDS[split]}" for split, part in found.items())
        say(f"{name}: {sizes} rows; {rule}")
        return Splits(found["train"], found["test"], found.get("valid"), names, rule)

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _reads(self) -> str | None:
        """The kind of the column that the tokenizer reads; "": any; None: it reads all columns."""
        if self._tokenizer is None or hasattr(self._tokenizer, "parts"):
            return None
        return KIND_OF_TOKENIZER.get(type(self._tokenizer).__name__, "")

    def _files(self) -> tuple[str | list[str], dict[str, str | list[str]]]:
        """Paths of the training rows, and of the other splits: as given, or by the names of the files in a folder."""
        given = {"valid": self.division.valid, "test": self.division.test}
        others = {split: path for split, path in given.items() if path is not None}
        is_folder = (
            isinstance(self.path, str)
            and not is_remote(self.path)
            and Path(self.path).expanduser().is_dir()
        )
        if not is_folder or "test" in others or self.division.split is not None:
            return self.path, others
        files: dict[str | None, list[str]] = {}
        for file in files_of(str(self.path)):
            word = re.match(r"[a-z]+", Path(file).stem.lower())
            files.setdefault(SPLIT_NAMES.get(word[0] if word else ""), []).append(file)
        if "train" not in files or len(files) == 1:
            return self.path, others
        if None in files:
            what = f"{self.path} holds {files['train'][0]} and {files[None][0]}, of which the split is not clear"
            raise DataError(
                f"{what}; name files: --data {shlex.quote(files['train'][0])} --data.test FILE"
            )
        return files["train"], {
            split: files[split] for split in ("valid", "test") if split in files
        } | others

    def _rows(self, path: str | list[str]) -> Rows:
        is_split = isinstance(path, str) and "/" not in path and not Path(path).suffix
        if isinstance(self.path, str) and is_remote(self.path) and is_split:
            return self.tables.read(self.path, split=str(path))
        return self.tables.read(path, header=self.columns.header)

    # ── splits ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _split_up(
        self, made: dict[str, Samples], train: UsableRows, say: Callable[[str], None]
    ) -> tuple[dict[str, tuple[str, Sequence[int]]], str]:
        """For each split, where its rows were read and their indices there; and the rule in words."""
        group = self.division.group
        fraction = self.division.test_fraction
        seed = self.division.seed
        found: dict[str, tuple[str, Sequence[int]]] = {
            split: (split, range(len(made[split]))) for split in made
        }
        if self.division.split is not None:
            found = {
                split: ("train", rows)
                for split, rows in _by_column(train, self.division.split).items()
                if rows
            }
            return found, f"by column {self.division.split!r}"
        if "test" in made:
            return found, "as given"
        groups = made["train"].groups
        if groups is None:
            has_classes = train.schema.target_kind == "classes"
            rest, aside = stratified(
                train.labels if has_classes else [None] * len(train), fraction, seed
            )
            rule = f"{100 * fraction:.0f} % of the rows are test, {'by class, ' * has_classes}SHA-256 with seed {seed}"
            return found | {"train": ("train", rest), "test": ("train", aside)}, rule
        try:
            rest, aside = by_group(groups, fraction, seed)
        except ValueError:
            raise DataError(
                f"{train.rows.name}: all rows have the same {group}; give another"
            ) from None
        num_test = len({groups[i] or i for i in aside})
        num_all = len({one or i for i, one in enumerate(groups)})
        rule = f"{num_test:,} of {num_all:,} groups by {group!r} are test, SHA-256 with seed {seed}"
        if not 1 / MAX_OF_GROUP < len(aside) / (fraction * len(train)) < MAX_OF_GROUP:
            largest = max(Counter(one for one in groups if one is not None).values())
            why = f"as groups by {group!r} stay whole and the largest has {largest:,} rows"
            say(
                Caution(f"{train.rows.name}: {len(aside):,} of {len(train):,} rows are test, {why}")
            )
        return found | {"train": ("train", rest), "test": ("train", aside)}, rule

    def _groups(self, part: UsableRows, say: Callable[[str], None]) -> list[str | None] | None:
        """The group of each row; None: it has none. Files are compared by content, molecules by structure.

        Raises DataError where no row has one, or the table lacks the column.
        """
        if (name := self.division.group) is None:
            return None
        check_column(part.rows, name, "--data.group")
        column = next(column for column in part.schema.columns if column.name == name)
        cells = [part.rows.columns[name][row] for row in part.indices]
        each = zip(cells, self._compared(column, cells))
        found = [None if is_missing(x, part.schema.missing) else repr(key) for x, key in each]
        if alone := [i for i, key in enumerate(found) if key is None]:
            if len(alone) == len(found):
                raise DataError(
                    f"{part.rows.name}: no row has a {name}; fill it in, or give another --data.group"
                )
            where = f"{part.rows.name}: {len(alone):,} rows have no {name} (first: {part.name(alone[0])})"
            say(f"{where}; each is a group of its own")
        return found

    def _compared(self, column: Column, values: Iterable[Any]) -> list[Hashable]:
        """Values of a column in a form in which equal ones are equal."""
        if column.kind in OF_CELLS and column.role == "input":
            return [*values]
        values = (x.strip() if isinstance(x, str) else x for x in values)
        if column.kind in FILES:
            return [None if x is None else self._contents.content(x) for x in values]
        if column.kind == "smiles":
            return [canonical(x) if isinstance(x, str) else x for x in values]
        return [x if x is None or isinstance(x, str | float) else repr(x) for x in values]

    def _inputs(self, part: UsableRows) -> list[Hashable]:
        """The input of each row in a form in which equal ones are equal."""
        columns = []
        for name, values in part.examples.values.items():
            column = next(column for column in part.schema.columns if column.name == name)
            columns.append(self._compared(column, (values[row] for row in part.indices)))
        return [*zip(*columns)]

    def _tell_leaks(
        self,
        found: dict[str, Samples],
        keys: dict[str, list[Hashable]],
        schema: Schema,
        say: Callable[[str], None],
        *,
        is_given: bool,
    ) -> None:
        """Say how many inputs of test are in training, and how many equal inputs have other targets."""
        if len(schema.inputs) == 1 and schema.inputs[0].kind in OF_CELLS:
            return  # equal numbers or categories are no copies
        keep = "take them out of one of them"
        if not is_given and self.division.group is None:
            if len(schema.inputs) == 1 and not schema.steps:
                column = schema.inputs[0].name
            else:
                column = "COLUMN"
            keep += f", or keep them together: --data.group {shlex.quote(column)}"
        tell_leaks(schema.name, found, keys, keep, say)


def _by_column(train: UsableRows, name: str) -> dict[str, list[int]]:
    column = train.rows.columns[name]
    found: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
    for i, row in enumerate(train.indices):
        split = SPLIT_NAMES.get(str(column[row]).strip().lower())
        if split is None:
            raise DataError(
                f"{train.name(i)}: {name} is {short(column[row])}; write train, test or valid"
            )
        found[split].append(i)
    for split in ("train", "test"):
        if not found[split]:
            raise DataError(
                f"{train.rows.name}: no row has the {name} {split}; add some, or give no --data.split"
            )
    return found


def _tell_shared_groups(
    found: dict[str, Samples], table: str, name: str, say: Callable[[str], None]
) -> None:
    """Say how many groups of test are in training, too, where the split was given."""
    test = found["test"].groups or []
    groups = {group for group in test if group is not None}
    of_training = set(found["train"].groups or ())
    if shared := groups & of_training:
        first = found["test"].name(next(i for i, group in enumerate(test) if group in shared))
        say(
            Caution(
                f"{table}: {len(shared):,} of {len(groups):,} test groups by {name!r} are in training, too (first: "
                f"{first}), which may flatter the result; take them out of one of them, or give no split: then "
                "--data.group keeps groups together"
            )
        )


def _class_names(train: UsableRows, say: Callable[[str], None]) -> list[str]:
    """Classes in the order of their numbers or names. Raises DataError where there are too few or too many."""
    table = train.rows.name
    target = train.schema.targets[0].name
    is_tags = train.schema.target_kind == "tags"
    if is_tags:
        counts = Counter(tag for tags in train.labels for tag in tags)
    else:
        counts = Counter(train.labels)
    names = list(counts)
    if not is_tags:
        if len(names) < 2:
            all_alike = f"{target} is {short(names[0])} in all {len(train):,} rows"
            raise DataError(
                f"{table}: {all_alike}, and a classifier needs two classes; name another --data.target"
            )
        if len(train) >= 10 and len(names) > len(train) / 2:
            if all(number(name) is not None for name in names):
                kind = "numbers"
            else:
                kind = "text"
            raise DataError(
                f"{table}: {target} has {len(names):,} different values in {len(train):,} rows, which are no classes; "
                f"did you mean --data.target_kind {kind}, or another column (--data.target)?"
            )
        if single := sorted(name for name, count in counts.items() if count == 1):
            few = ", ".join(map(one_line, single[:5])) + (", …" if len(single) > 5 else "")
            say(
                f"{table}: {len(single)} of {len(names)} classes of {target} have one row alone, in training ({few})"
            )
    values = [number(name) for name in names]
    if all(value is not None and math.isfinite(value) for value in values):
        return [name for _, name in sorted(zip(values, names))]  # type: ignore[type-var]
    return sorted(names)


def _check_learnable(
    found: dict[str, Samples], schema: Schema, table: str, names: Sequence[str] | None
) -> None:
    """Raise DataError where training has one number alone, or another split has a class that training lacks."""
    train = found["train"]
    if schema.target_kind in ("numbers", "labels") and len(train) > 1:
        for j, target in enumerate(schema.targets):
            each = (label[j] if isinstance(label, list) else label for label in train.labels)
            numbers = {x for x in each if not math.isnan(x)}
            if len(numbers) < 2:
                if numbers:
                    what = f"is {numbers.pop():g} in all rows"
                else:
                    what = "has no number in the rows"
                raise DataError(
                    f"{table}: {target.name} {what} of the training split; name another --data.target"
                )
    if schema.target_kind == "classes" and names is not None:
        known = set(train.labels)
        for split, samples in found.items():
            for i, label in enumerate(samples.labels):
                if label not in known:
                    what = f"is in the {split} split with class {short(names[label])}, which training lacks"
                    raise DataError(
                        f"{samples.name(i)} {what}; add rows of it, or give another --data.seed"
                    )
