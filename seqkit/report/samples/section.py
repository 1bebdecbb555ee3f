"""A section of a report as plain data: its figures, a table, examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from seqkit.objectives.metric import DASH

WHOLE = 440
"""Points from which on a section has the page's whole width."""

NUMBER = re.compile(rf"[-−+]?[\d.,]+(e[-+]?\d+)?( %)?|{DASH}|")
"""A cell with a number, or with none."""

Span = tuple[str, str]
"""A piece of text and its class in the page's style: "", "prompt", "masked", "right" or "wrong"."""


@dataclass(frozen=True)
class Shown:
    """An example with what is predicted for it.

    caption: what was predicted. origin: where the example is from. figures: SVG elements. sound: a WAV as an address.
    spans: its text. cells: columns of a table's row, and what their cells hold.
    """

    caption: str
    origin: str = ""
    figures: Sequence[str] = ()
    sound: str = ""
    spans: Sequence[Span] = ()
    cells: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Section:
    """A section of a report. note: what the reader sees, and how to read it; may be empty. figures: SVG elements.

    columns, rows: a table whose first column is a name. points: width of an example's pictures, or width that figures
    keep on a narrow screen, where they scroll; 0: they shrink. per_row: examples in a row; 0: as many as fit.
    """

    title: str
    note: str
    figures: Sequence[str] = ()
    examples: Sequence[Shown] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    points: float = 0
    per_row: int = 0

    @property
    def are_numbers(self) -> list[bool]:
        """Whether each column of the table is numbers, which stand on the right; the first one is names."""
        return [
            i > 0 and all(NUMBER.fullmatch(row[i]) for row in self.rows)
            for i in range(len(self.columns))
        ]
