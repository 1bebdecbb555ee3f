"""A table as a value, which is printed to the terminal, HTML, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from seqkit.errors import one_line, printable


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


def print_table(table: Table) -> None:
    """Print a table to the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, title in enumerate(table.head):
        drawn.add_column(
            Text(one_line(title)), justify="left" if i == table.name else "right", overflow="fold"
        )
    for row in table.rows:
        drawn.add_row(
            *(Text(printable("\n".join(filter(None, map(one_line, cell[:2]))))) for cell in row)
        )
    Console(markup=False, emoji=False).print(drawn)


def to_csv(table: Table) -> str:
    """Comma-separated values, the columns' titles first."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([table.head, *([str(cell) for cell in row] for row in table.rows)])
    return text.getvalue()
