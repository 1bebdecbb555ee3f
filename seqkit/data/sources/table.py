"""Your own table: rows with one input or several, and a target; CSV, JSON Lines, Parquet, Arrow, or on a hub."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from seqkit.data.formats import own_reader
from seqkit.data.kinds import FILES, KIND_OF_TOKENIZER, OF_CELLS
from seqkit.data.leaks import Compared
from seqkit.data.notes import Caution, listed
from seqkit.data.sample import Samples, Splits
from seqkit.data.source import Arguments, DataSource, check_skip_bad, check_test_fraction
from seqkit.data.splits import SPLIT_NAMES, SPLIT_WORDS, Grouping, lost_classes, stratified
from seqkit.data.tables.cautions import (
    tell_chance,
    tell_equal_inputs,
    tell_spellings,
    tell_telling_inputs,
)
from seqkit.data.tables.cells import canonical, is_missing, is_series, short
from seqkit.data.tables.classes import check_learnable, class_names, spell_alike
from seqkit.data.tables.examples import Examples, UsableRows
from seqkit.data.tables.infer import infer
from seqkit.data.tables.read import Tables, files_of, is_remote
from seqkit.data.tables.rows import Rows
from seqkit.data.tables.schema import (
    Column,
    Given,
    Schema,
    check_column,
    option,
)
from seqkit.errors import DataError

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
        check_test_fraction(self.test_fraction)
        if self.split is not None and (self.test is not None or self.valid is not None):
            raise ValueError(
                "split names a column that says the split of each row; leave test and valid out"
            )


class Table(DataSource):
    """Your own table: each row is an example, and has a target.

    A recipe with the tokenizer `Join` learns from all columns: a column of texts, images, sounds or molecules is a
    part, and numbers, dates and categories are one part together, `cells`. Other recipes read one column.
    path: CSV, TSV, JSON, JSON Lines, Parquet or Arrow files: one, several, a folder of shards, a pattern such as
    `data/*.parquet`, or `hf://owner/name`. columns: what is known of its columns; the rest is inferred from its
    cells, and said in a line each. division: how rows are divided into splits. folder: folder of the files that cells
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
        check_skip_bad(skip_bad)
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
        """The columns of the table, by what is given and its cells.

        reads: as of `infer`. reads_files: True: the tokenizer reads files itself, and a column may name them.
        Raises DataError where a column does not exist, or what to learn is not clear.
        """
        rows = self.rows()
        try:
            found = infer(
                rows, self.columns, reads=reads, split=self.division.split, group=self.division.group,
                folder=self.folder if reads_files else None,
            )  # fmt: skip
        except DataError:
            if said := _with_null(rows, self.columns):
                raise DataError(said) from None
            raise
        unused = [one.name for one in found.columns if one.role == "unused" and not one.is_given]
        said = _with_null(rows, self.columns, unused)
        if said and found.target_kind == "none" and reads in (None, "", "series"):
            raise DataError(said)
        if said:
            log.warning("%s", said)
        return found

    def rows(self) -> Rows:
        """The rows of training or, where the files are not split, all."""
        return self._rows(self._files()["train"])

    def images(self, column: str | None = None) -> list[Path]:
        """Files that a column names, as of `rows`. column: its name; None: the one that an image tokenizer reads."""
        if column is None:
            column = self.inferred(reads="image").inputs[0].name
        cells = self.rows().columns.get(column, ())
        return [self.folder / cell for cell in cells if isinstance(cell, str)]

    def decided(self) -> Arguments:
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
        self._say = say
        schema = self.schema()
        self._contents = Compared(self.folder)
        read = self._read(schema)
        train = read["train"]
        name = train.rows.name
        names = None
        if schema.target_kind == "labels":
            names = [column.name for column in schema.targets]
        if schema.target_kind in ("classes", "tags"):
            if schema.target_kind == "classes":
                spell_alike([*read.values()])
            names = class_names(train, say)
            for split, part in read.items():
                part.number(names, split)
        made = {}
        for split, part in read.items():
            groups = self._groups(part)
            made[split] = Samples(
                part.raw,
                part.labels,
                groups=groups,
                name=part.name,
                key=part.key,
                advice=partial(_advice, part),
            )
        places, rule = self._split_up(made, train)
        found = {split: made[of].at(rows) for split, (of, rows) in places.items()}
        if (by := self.division.group) is not None:
            kept = Grouping(by, name, "rows", say).apart(
                {split: part.groups or [] for split, part in found.items()}
            )
            found = {split: part.at(kept[split]) for split, part in found.items()}
            places = {s: (of, [rows[i] for i in kept[s]]) for s, (of, rows) in places.items()}
        check_learnable(found, schema, name, names)
        for said in lost_classes({split: part.labels for split, part in found.items()}, names):
            say(Caution(f"{name}: {said}"))
        tell_spellings(train, say)
        inputs = {split: self._inputs(part) for split, part in read.items()}
        keys = {split: [inputs[of][i] for i in rows] for split, (of, rows) in places.items()}
        is_divided = "test" in read or self.division.split is not None
        has_groups = self.division.group is not None
        tell_equal_inputs(found, keys, schema, say, is_given=is_divided or has_groups)
        tell_telling_inputs(train, say)
        if not is_divided:
            rest, aside = (places[split][1] for split in ("train", "test"))
            tell_chance(train, rest, aside, say, has_groups=has_groups)
        sizes = ", ".join(f"{len(part):,} {SPLIT_WORDS[split]}" for split, part in found.items())
        say(f"{name}: {sizes} rows; {rule}")
        return Splits(found["train"], found["test"], found.get("valid"), names, rule)

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _reads(self) -> str | None:
        """The kind of the column that the tokenizer reads; "": any; None: it reads all columns."""
        if self._tokenizer is None or hasattr(self._tokenizer, "parts"):
            return None
        return KIND_OF_TOKENIZER.get(type(self._tokenizer).__name__, "")

    def _files(self) -> dict[str, str | list[str]]:
        """Paths of the rows of each split: as given, or by the names of the files in a folder."""
        files: dict[str, str | list[str]] = {"train": self.path}
        if self.division.valid is not None:
            files["valid"] = self.division.valid
        if self.division.test is not None:
            files["test"] = self.division.test
        if "test" in files or self.division.split is not None or not self._is_folder():
            return files
        named: dict[str | None, list[str]] = {}
        for file in files_of(str(self.path)):
            named.setdefault(_split_of(file, str(self.path)), []).append(file)
        if "train" not in named or len(named) == 1:
            return files
        if None in named:
            first = named["train"][0]
            what = (
                f"{self.path} holds {first} and {named[None][0]}, of which the split is not clear"
            )
            raise DataError(f"{what}; name files: --data {shlex.quote(first)} --data.test FILE")
        files["train"] = named["train"]
        for split in ("valid", "test"):
            if split in named:
                files.setdefault(split, named[split])
        return files

    def _is_folder(self) -> bool:
        """Whether the table is a folder of files."""
        path = self.path
        return isinstance(path, str) and not is_remote(path) and Path(path).expanduser().is_dir()

    def _rows(self, path: str | list[str]) -> Rows:
        is_split = isinstance(path, str) and "/" not in path and not Path(path).suffix
        if isinstance(self.path, str) and is_remote(self.path) and is_split:
            return self.tables.read(self.path, split=str(path))
        return self.tables.read(path, header=self.columns.header)

    def _read(self, schema: Schema) -> dict[str, UsableRows]:
        """The usable rows of each split. Raises DataError where one lacks a column."""
        needed = list(schema.targets)
        if not schema.steps:
            needed += schema.inputs
        known = {column.name for column in schema.columns}
        read = {}
        for split, path in self._files().items():
            rows = self._rows(path)
            for column in schema.targets:
                if split != "train" and column.name not in rows.columns:
                    why = "so it may be for seqkit predict alone; name another by --data.test, or move it"
                    raise DataError(f"{rows.name} has no target, {column.name!r}, {why}")
            for column in needed:
                check_column(rows, column.name, "--data.columns")
            unknown = [repr(name) for name in rows.names if name not in known]
            if unknown and not schema.steps:
                self._say(
                    f"{rows.name}: {listed(unknown)} is in no row of training, and is not used"
                )
            examples = Examples(rows, schema, self.folder, self._tokenizer)
            read[split] = UsableRows(examples, say=self._say, skip_bad=self.skip_bad)
        train = read["train"]
        if len(train) < 2 and "test" not in read:
            raise DataError(
                f"{train.rows.name} holds {len(train)} usable row; training and test need at least one each"
            )
        return read

    # ── splits ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _split_up(
        self, made: dict[str, Samples], train: UsableRows
    ) -> tuple[dict[str, tuple[str, Sequence[int]]], str]:
        """For each split, where its rows were read and their indices there; and the rule in words."""
        places: dict[str, tuple[str, Sequence[int]]] = {}
        column = self.division.split
        if column is not None:
            for split, rows in _by_column(train, column).items():
                if rows:
                    places[split] = ("train", rows)
            return places, f"by column {column!r}"
        for split in ("train", "valid", "test"):
            if split in made:
                places[split] = (split, range(len(made[split])))
        if "test" in made:
            return places, "as given"
        groups = made["train"].groups
        if groups is None:
            rest, aside, rule = self._at_random(train)
        else:
            division = self.division
            grouping = Grouping(str(division.group), train.rows.name, "rows", self._say)
            labels = made["train"].labels
            rest, aside, rule = grouping.divided(
                groups, division.test_fraction, division.seed, labels
            )
        return {**places, "train": ("train", rest), "test": ("train", aside)}, rule

    def _at_random(self, train: UsableRows) -> tuple[list[int], list[int], str]:
        """Indices of training and of test, by class where there are some, and the rule in words."""
        fraction = self.division.test_fraction
        seed = self.division.seed
        labels = [None] * len(train)
        by_class = ""
        if train.schema.target_kind == "classes":
            labels = train.labels
            by_class = "by class, "
        rest, aside = stratified(labels, fraction, seed)
        return (
            rest,
            sorted(aside),  # rows of a forecast follow time
            (f"{100 * fraction:.0f} % of the rows are test, {by_class}SHA-256 with seed {seed}"),
        )

    def _groups(self, part: UsableRows) -> list[str | None] | None:
        """The group of each row; None: it has none. Files are compared by content, molecules by structure.

        Raises DataError where no row has one, or the table lacks the column.
        """
        name = self.division.group
        if name is None:
            return None
        check_column(part.rows, name, "--data.group")
        cells = [part.rows.columns[name][row] for row in part.indices]
        found: list[str | None] = []
        alone = []
        for cell, key in zip(cells, self._compared(part.schema.column(name), cells)):
            if is_missing(cell, part.schema.missing):
                alone.append(len(found))
                found.append(None)
            else:
                found.append(repr(key))
        if alone and len(alone) == len(found):
            raise DataError(
                f"{part.rows.name}: no row has a {name}; fill it in, or give another --data.group"
            )
        if alone:
            first = part.name(alone[0])
            self._say(
                f"{part.rows.name}: {len(alone):,} rows have no {name} (first: {first}); each is a group of its own"
            )
        return found

    def _compared(self, column: Column, values: Iterable[Any]) -> list[Hashable]:
        """Values of a column in a form in which equal ones are equal."""
        if column.kind in OF_CELLS and column.role == "input":
            return [*values]
        return [None if value is None else self._key(column.kind, value) for value in values]

    def _key(self, kind: str, value: Any) -> Hashable:
        if isinstance(value, str):
            value = value.strip()
        if kind in FILES:
            return self._contents.content(value)
        if not isinstance(value, str | float):
            return repr(value)
        return canonical(value) if kind == "smiles" and isinstance(value, str) else value

    def _inputs(self, part: UsableRows) -> list[Hashable]:
        """The input of each row in a form in which equal ones are equal."""
        columns = [
            self._compared(part.schema.column(name), (values[row] for row in part.indices))
            for name, values in part.examples.values.items()
        ]
        return [*zip(*columns)]


def _with_null(rows: Rows, given: Given, names: Iterable[str] | None = None) -> str:
    """Says which row of a series holds null, and what leaves such rows out; empty: none does.

    given: its columns of known kinds are not looked at. names: columns to look at; None: all others.
    """
    for name in rows.names if names is None else names:
        filled = {i: _filled(cell) for i, cell in enumerate(rows.columns[name]) if cell}
        bad = [i for i, cell in filled.items() if cell != rows.columns[name][i]]
        if name in given.kinds or not bad or not all(map(is_series, filled.values())):
            continue
        way = f"{option('columns', {name: 'series'})} --data.skip_bad {len(bad)}"
        many = f"{len(bad):,} of {len(rows):,} rows cannot be used"
        return (
            f"{rows.place(bad[0])}: a number of {name} is null ({many}; to leave them out: {way})"
        )
    return ""


def _filled(cell: Any) -> Any:
    """A cell with 0 in place of each null inside it."""
    if isinstance(cell, list):
        return [0.0 if one is None else _filled(one) for one in cell]
    return cell


def _advice(part: UsableRows) -> str:
    """How many rows the tokenizer cannot encode, and what leaves them out; empty: it can, or it is fitted."""
    bad = 0
    for row in part.indices:
        try:
            part.examples.attempt(row)
        except (ValueError, OSError):
            bad += 1
    if not bad:
        return ""
    return f" ({bad:,} of {len(part):,} rows cannot be used; --data.skip_bad {bad} leaves them out)"


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


def _split_of(file: str, root: str) -> str | None:
    """The split that the name of a file, or of its folder below the root, says."""
    word = re.match(r"[a-z]+", Path(file).stem.lower())
    split = SPLIT_NAMES.get(word[0]) if word else None
    folder = Path(file).parent
    if split is None and folder != Path(root).expanduser():
        return SPLIT_NAMES.get(folder.name.lower())
    return split
