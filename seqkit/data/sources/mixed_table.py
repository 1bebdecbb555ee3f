"""Your own table of columns of several kinds: texts, images, sounds, molecules, numbers, categories."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from seqkit.data.notes import Caution
from seqkit.data.source import DataSource, Splits
from seqkit.data.sources.table import Table, alike
from seqkit.data.tables.columns import Columns, TargetKind, check_column, is_nameless
from seqkit.data.tables.mixed_columns import MixedCells, check_kind, settle_mixed
from seqkit.data.tables.usable_rows import UsableRows
from seqkit.errors import one_line

log = logging.getLogger("seqkit")


class MixedTable(DataSource):
    """Your own table: each row is an example of several parts, which may be missing, and has a target.

    A column of texts, images, sounds or molecules is a part; numbers, dates (in years) and categories are one part
    together, `cells`. A raw example maps columns to what their cells hold, and `cells` to a mapping of the others.
    path: CSV, TSV, JSON Lines, Parquet or Arrow files, as of `Table`. test, valid: files of the other splits. target,
    target_kind: as of `Table`. columns: kind of each column: text, image, audio, smiles, number, category, date or
    unused; those that are not named are guessed from names and values, which one line says. Identifiers and columns of
    one value are not used.
    split, group, test_fraction, seed, separator, decimal: as of `Table`. skip_bad: True: a cell that is not what its
    column holds, or names a file that cannot be read, counts as empty, and is counted; each is read once beforehand.
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        test: str | list[str] | None = None,
        valid: str | list[str] | None = None,
        target: str | list[str] | None = None,
        target_kind: TargetKind | None = None,
        columns: dict[str, str] | None = None,
        split: str | None = None,
        group: str | None = None,
        test_fraction: float = 0.2,
        seed: int = 0,
        separator: str | None = None,
        decimal: str = ".",
        skip_bad: bool = False,
    ):
        for name, kind in (columns or {}).items():
            check_kind(name, kind)
        self._table = Table(
            path, test=test, valid=valid, target=target, target_kind=target_kind, split=split, group=group,
            test_fraction=test_fraction, seed=seed, separator=separator, decimal=decimal,
        )  # fmt: skip
        self.columns, self.skip_bad = dict(columns or {}), skip_bad
        self._tokenizer: Any = None

    def read_for(self, tokenizer: Any) -> None:
        """Keeps the tokenizer, by whose parts files are read, and cells tried where some may be left out."""
        self._tokenizer = tokenizer

    def settled(self, *, has_cells: bool = True, has_text: bool = True) -> tuple[dict[str, str], Columns]:
        """Kind of each input column, and the target; guessed by the first rows where that is open.

        has_cells, has_text: whether the recipe reads categories, and texts; repeated texts are what it reads.
        Logs all guesses in one line. Raises DataError where a column does not exist, or the target is not clear.
        """
        table, rows = self._table, self._table.first_rows()
        kinds, columns, line = settle_mixed(
            rows, self.columns, target=table.target, target_kind=table.target_kind, split=table.split,
            group=table.group, has_cells=has_cells, has_text=has_text,
        )  # fmt: skip
        for one in (*rows.notes, line) if line else ():
            log.warning("%s", one)
        return kinds, columns

    def splits(self) -> Splits:
        """Samples that are read on access. Raises DataError for what cannot be learned from, with file and line.

        Logs, one line each: rows without input or target, cells that count as empty, and what `Table.splits` says.
        """
        return self.divided(log.warning)

    def divided(self, say: Callable[[str], None]) -> Splits:
        """The splits, as `splits` returns them; `say` is given the lines in place of the log."""
        kinds, columns = self.settled()
        read = {}
        for split, rows in self._table.rows().items():
            for name in (*columns.targets, *(name for name, kind in kinds.items() if kind != "unused")):
                check_column(rows, name, "--data.columns")
            unknown = [name for name in rows.names if name not in (*kinds, *columns.targets) and not is_nameless(name)]
            if unknown := [name for name in unknown if name not in (self._table.split, self._table.group)]:
                say(f"{rows.name}: {', '.join(map(repr, unknown[:8]))} is in no row of training, and is not used")
            cells = MixedCells(rows, kinds, self._table.folder, tokenizer=self._tokenizer, skip_bad=self.skip_bad)
            if cells.faults:
                faults = f"{len(cells.faults):,} (the first: {cells.faults[0]})"
                say(Caution(f"{rows.name}: cells that count as empty: {faults}"))
            read[split] = UsableRows(rows, columns, cells, say=say)
        if line := _alike_categories(read["train"]):
            say(f"{read['train'].rows.name}: {line}")
        return self._table.split_up(read, say)


def _alike_categories(train: UsableRows) -> str:
    """A sentence on categories of a column that look alike, as München and münchen; empty: there are none."""
    inputs, found = cast("MixedCells", train.inputs), []
    for column in (name for name, kind in inputs.kinds.items() if kind == "category"):
        cells = (inputs.cell(row, column) for row in train.indices)
        counts = Counter(cell.strip() for cell in cells if isinstance(cell, str))
        found += [f"{one_line(column)}: {words}" for words in alike(counts)]
    more = f"; … ({len(found)} in all)" if len(found) > 5 else ""
    return f"categories look alike: {'; '.join(found[:5])}{more}; they count as different" if found else ""
