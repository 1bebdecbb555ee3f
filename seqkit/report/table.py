"""A table as a value, which is printed to the terminal, HTML, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from seqkit.errors import one_line


class Cell(NamedTuple):
    """Text of a cell, below which stands `small`. mark: a sign before it on a page. style: of the page, such as "best".

    >>> str(Cell("98.1", "[97.7, 98.5]"))
    '98.1 [97.7, 98.5]'
    """

    text: str
    small: str = ""
    mark: Markup | str = ""
    style: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.small}".strip()


class Table(NamedTuple):
    """Titles of the columns, and rows of as many cells. name: the column whose text is set left, of candidates."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    name: int = 0

    def first(self, number: int) -> Table:
        """The first columns."""
        return Table(self.head[:number], [row[:number] for row in self.rows], self.name)


def rich_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Collection[int] = (0,),
    **options: Any,
) -> RichTable:
    """A table for the terminal, whose cells hold no markup. left: columns that are set left; others are set right."""
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, **options)
    for i, title in enumerate(head):
        justify: Any = "left" if i in left else "right"
        drawn.add_column(Text(title), justify=justify, overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn


def print_table(table: Table) -> None:
    """Print a table to the terminal."""
    rows = [
        ["\n".join(map(one_line, filter(None, (cell.text, cell.small)))) for cell in row]
        for row in table.rows
    ]
    drawn = rich_table([*map(one_line, table.head)], rows, left=[table.name])
    Console(markup=False, emoji=False).print(drawn)


def to_csv(table: Table) -> str:
    """Comma-separated values, the columns' titles first."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([table.head, *([str(cell) for cell in row] for row in table.rows)])
    return text.getvalue()
