"""Rows that come again: equal inputs with other targets, or in training and test, and copies of whole rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast

from seqkit.data.notes import Caution
from seqkit.data.tables.columns import is_numbering, option
from seqkit.data.tables.equal_cells import EqualCells
from seqkit.data.tables.mixed_columns import MixedCells, part_columns
from seqkit.data.tables.usable_rows import Subset, UsableRows

MAX_REPEATED = 100_000
"""Rows with the input of another one whose other columns are compared, too; a row takes some microseconds a column."""


def tell_equal_inputs(
    found: dict[str, Subset], say: Callable[[str], None], *, is_split_here: bool, group: str | None
) -> None:
    """Say how many equal inputs have other targets, and how many inputs of test are in training, split by split.

    Files are compared by content, molecules by canonical SMILES. Of examples of several parts, whole rows are compared,
    then each part by itself. is_split_here: False: the user gave the splits, which no group changes. group:
    column of groups, of which another line says what is in both splits.
    """
    tables = [cast("UsableRows", samples.samples) for samples in found.values()]
    columns, folder = tables[0].columns, tables[0].inputs.folder
    kind = "text" if columns.target_kind == "tags" else columns.kind
    equal = EqualCells(kind, folder, lambda: (read.cell(i) for read in tables for i in range(len(read))))
    keep = f"{option('group', columns.input)} keeps equal inputs together"
    if not is_split_here:
        keep = "take them out of one of them"
    elif kind == "row" or columns.steps:
        keep = "take them out of one of them, or give --data.group COLUMN of what belongs together"
    copies = _Copies(tables[0].rows.names)
    first_label: dict[Hashable, str] = {}
    in_training: set[Hashable] = set()
    num_shared = 0
    for split, samples in sorted(found.items(), key=lambda pair: pair[0] != "train"):
        read = cast(UsableRows, samples.samples)
        conflicts, shared = [], []
        for i, index in enumerate(samples.indices):
            key = hash(equal.key(read.cell(index)))
            copies.add(key, read, index)
            if split == "train":
                in_training.add(key)
            elif split == "test" and key in in_training:
                shared.append(i)
            if read.columns.target_kind in ("classes", "numbers", "labels"):
                label = repr(samples.labels[i])
                if first_label.setdefault(key, label) != label:
                    conflicts.append(i)
        if conflicts:
            say(
                Caution(
                    f"{read.rows.name}: {len(conflicts):,} rows of the {split} split have the input of another row, "
                    f"and another target (first: {samples.sample_name(conflicts[0])})"
                )
            )
        if shared:
            num_shared = len(shared)
            say(
                Caution(
                    f"{read.rows.name}: {len(shared):,} of {len(samples):,} test inputs are in training, too (first: "
                    f"{samples.sample_name(shared[0])}), which flatters the result; {keep}"
                )
            )
    if copies.count and num_shared == 0 and group is None:
        total = sum(map(len, found.values()))
        is_one = is_split_here and kind != "row" and not columns.steps
        together = f", or {option('group', columns.input)} keeps them in one split" if is_one else ""
        say(
            f"{tables[0].rows.name}: {copies.said} of {total:,} rows are copies of another row (first: {copies.first}"
            f"), so they count twice; remove them{together}"
        )
    for column, part_kind in part_columns(tables[0]).items():
        if column == group:
            continue
        shared = _shared_values(found, column)
        if len(shared) > num_shared:
            test = found["test"]
            kind_too = f" {option('columns', {column: 'text'})}" if part_kind == "text" else ""
            keep = f"{option('group', column)}{kind_too} keeps rows of one {column} together"
            say(
                Caution(
                    f"{tables[0].rows.name}: {len(shared):,} of {len(test):,} test rows have a value of {column} that "
                    f"is in training, too (first: {test.sample_name(shared[0])}), which may flatter the result"
                    f"{f'; {keep}' if is_split_here else ''}"
                )
            )


class _Copies:
    """Counts the rows that hold the same as another one in all columns, but for those that number the rows.

    names: all columns. count: number of copies. first: file and line of the first.
    """

    def __init__(self, names: Sequence[str]):
        self._names = [name for name in names if not is_numbering(name)]
        self._first: dict[Hashable, tuple[UsableRows, int]] = {}
        self._known: dict[Hashable, set[int]] = {}
        self._num_looked_at = 0
        self.count, self.first = 0, ""

    @property
    def said(self) -> str:
        """Number of copies, as words."""
        return f"{'at least ' if self._num_looked_at > MAX_REPEATED else ''}{self.count:,}"

    def add(self, key: Hashable, read: UsableRows, index: int) -> None:
        """Count a row of which the input has that key. Other columns are read only where inputs are equal."""
        first = self._first.setdefault(key, (read, index))
        self._num_looked_at += first != (read, index)
        if first == (read, index) or self._num_looked_at > MAX_REPEATED:
            return
        known = self._known.setdefault(key, {self._content(*first)})
        if (content := self._content(read, index)) in known:
            self.count += 1
            self.first = self.first or read.sample_name(index)
        known.add(content)

    def _content(self, read: UsableRows, index: int) -> int:
        row = read.indices[index]
        return hash(tuple(repr(read.rows.column(name)[row]) for name in self._names if name in read.rows.names))


def _shared_values(found: dict[str, Subset], column: str) -> list[int]:
    """Places in the test split of the rows whose value in a column of parts is in training, too."""
    cells: dict[str, list[tuple[int, Any]]] = {}
    for split in ("train", "test"):
        read = cast(UsableRows, found[split].samples)
        inputs = cast(MixedCells, read.inputs)
        each = enumerate(inputs.cell(read.indices[index], column) for index in found[split].indices)
        cells[split] = [(i, cell) for i, cell in each if cell is not None]
    equal = EqualCells(inputs.kinds[column], inputs.folder, lambda: (c for part in cells.values() for _, c in part))
    in_training = {hash(equal.key(cell)) for _, cell in cells["train"]}
    return [i for i, cell in cells["test"] if hash(equal.key(cell)) in in_training]
