"""A table as a value, which is printed to the terminal, HTML, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import re
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


NARROW = (14, 8)
"""Characters to which long titles and cells are broken, at blanks, commas, hyphens and plus signs."""

MAX_WIDTH = 500
"""Characters of the widest table."""


def print_table(table: Table) -> None:
    """Print a table to the terminal. Where it is too wide, cells are broken between words, and no word is."""
    rows = [
        [[one_line(text) for text in (cell.text, cell.small) if text] for cell in row]
        for row in table.rows
    ]
    head = [*map(one_line, table.head)]
    console = Console(markup=False, emoji=False)
    drawn = rich_table(head, ([*map("\n".join, row)] for row in rows), left=[table.name])
    unlimited = console.options.update(width=MAX_WIDTH)
    for most in NARROW:
        if console.measure(drawn, options=unlimited).maximum <= console.width:
            break
        broken = (
            ["\n".join(_broken(text, most) for text in texts) for texts in row] for row in rows
        )
        titles = [_broken(title, most) for title in head]
        drawn = rich_table(titles, broken, left=[table.name], padding=0)
        for column in drawn.columns:
            column.no_wrap = True
    # one that is wider still goes on below
    console.width = max(console.width, console.measure(drawn, options=unlimited).maximum)
    console.print(drawn)


def _broken(text: str, most: int) -> str:
    """A text in lines of at most so many characters, but for words that are longer."""
    lines = [""]
    for piece in re.split(r"(?<=[ ,])|(?<=[A-Za-z][+-])", text):
        if lines[-1] and len(lines[-1] + piece.rstrip()) > most:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def to_csv(table: Table) -> str:
    """Comma-separated values, the columns' titles first."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([table.head, *([str(cell) for cell in row] for row in table.rows)])
    return text.getvalue()
