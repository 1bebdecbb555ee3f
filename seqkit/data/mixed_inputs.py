"""Inputs of a run on several parts: rows of tables, incomplete ones too, and examples as `image=a.png,text=…`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seqkit.data.tables.files import Rows, read_tables
from seqkit.data.tables.mixed_columns import MixedCells
from seqkit.errors import DataError, one_line, reason, suggest
from seqkit.files import load_json

_NAME = re.compile(r"(?:^|,)\s*([^,=]+?)\s*=")


class MixedRows:
    """The rows of a table, each an example of those of its columns that the run knows.

    kinds: kind of each input column of the run. tokenizer: its `Join`. skip_bad: as of `MixedCells`. decimal: as of
    `Rows`.
    notes: a sentence on the columns that the table lacks, and those that it has in their place. Raises DataError where
    it has none of them.
    """

    def __init__(
        self, path: str, kinds: Mapping[str, str], tokenizer: Any, *, skip_bad: bool = False, decimal: str = "."
    ):
        rows, known = read_tables(path, decimal=decimal), _used(kinds)
        folder = Path(path).expanduser().parent
        self._cells = MixedCells(rows, kinds, folder, tokenizer=tokenizer, skip_bad=skip_bad, are_new=True)
        missing = [name for name in known if name not in rows.names]
        if len(missing) == len(known):
            raise DataError(f"{path} has none of the columns of the run ({_list(known)}); it has {_list(rows.names)}")
        faults = self._cells.faults
        unused = [_with_nearest(name, missing) for name in rows.names if name not in kinds]
        instead = f"; it has columns that are not used: {_list(unused)}" if unused else ""
        self.notes = [f"{path} has no column {_list(missing)}, so these are absent{instead}"] if missing else []
        self.notes += [f"{path}: cells that count as empty: {len(faults):,} (the first: {faults[0]})"] if faults else []

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[tuple[str, Any, str | None]]:
        """Name of each row, its raw example, and the error in place of it."""
        for row, cells in enumerate(self._cells):
            name = self._cells.rows.place(row)
            try:
                yield name, _raw(self._cells, cells), None
            except (ValueError, OSError) as error:
                yield name, None, f"{name}: {reason(error)}"


def parse_example(given: str, kinds: Mapping[str, str], tokenizer: Any, decimal: str = ".") -> Any:
    """The raw example of `name=value,name=value`, or of a JSON object. Names are columns, or parts of the tokenizer.

    decimal: as of `Rows`, of numbers that are texts.

    Files are named relative to the working folder. Raises DataError for what is none, and for a wrong name or value.
    """
    known = _used(kinds)
    values = load_json(given) if given.startswith("{") else _pairs(given)
    if not isinstance(values, dict) or not values:
        advice = f"give a table, or {_list([f'{name}=…' for name in known])} (several with a comma between them)"
        raise DataError(f"{one_line(given)[:100]!r} names no part of an example; {advice}")
    columns = {part: column for part, column in getattr(tokenizer, "reads", {}).items() if column in known}
    cells: dict[str, str | bytes | None] = {}
    for name, value in values.items():
        column = name if name in known else columns.get(name)
        if column is None:
            raise DataError(f"{one_line(name)!r} is no part of the run's examples; {suggest(name, known)}")
        cells[column] = value if value is None else written(value, decimal)
    return example_of(cells, kinds, tokenizer, decimal)


def written(value: Any, decimal: str) -> str:
    """A JSON value as a table holds it: a number with the decimal point or comma of the table."""
    return value if isinstance(value, str) else str(value).replace(".", decimal)


def example_of(
    cells: Mapping[str, str | bytes | None], kinds: Mapping[str, str], tokenizer: Any, decimal: str = "."
) -> Any:
    """The raw example of cells by column; bytes: the content of a file, which a text would name. decimal: as of `Rows`.

    Raises DataError for a wrong column or value.
    """
    import pyarrow as pa

    known = _used(kinds)
    if not any(value is not None for value in cells.values()):
        raise DataError(f"none of {_list(known)} is filled; give one or more")
    for name in cells:
        if name not in known:
            raise DataError(f"{one_line(name)!r} is no part of the run's examples; {suggest(name, known)}")
    kept = {name: pa.array([x], pa.binary() if isinstance(x, bytes) else pa.string()) for name, x in cells.items()}
    rows = Rows(pa.table(kept), [*cells], [("the example", 1)], [], [], decimal=decimal)
    one = MixedCells(rows, kinds, Path(), tokenizer=tokenizer, are_new=True)
    try:
        return _raw(one, one[0])
    except ValueError as error:
        raise error if isinstance(error, DataError) else DataError(str(error)) from error


def _pairs(given: str) -> dict[str, str]:
    found = list(_NAME.finditer(given))
    if not found or found[0].start() > 0:
        return {}
    ends = [*(match.start() for match in found[1:]), len(given)]
    return {match[1]: given[match.end() : end] for match, end in zip(found, ends)}


def _raw(rows: MixedCells, cells: Mapping[str, Any]) -> Any:
    if not cells:
        raise ValueError(f"none of {_list([*rows.kinds])} is filled")
    rows.check(cells)
    return rows.raw(cells)


def _with_nearest(name: str, missing: list[str]) -> str:
    """A column that is not used, with the missing one that it may be."""
    nearest = suggest(name, missing) if missing else ""
    return f"{name} ({nearest})" if nearest.startswith("did you mean") else name


def _used(kinds: Mapping[str, str]) -> list[str]:
    return [name for name, kind in kinds.items() if kind != "unused"]


def _list(names: list[str]) -> str:
    return ", ".join(one_line(name) for name in names[:8]) + (", …" if len(names) > 8 else "")
