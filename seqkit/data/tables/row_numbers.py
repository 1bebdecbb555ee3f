"""Columns that number the rows of a table, or grow with them: what they tell of the target is the order of the file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from operator import ge, le
from typing import Any

from seqkit.data.tables.cells import number, years
from seqkit.data.tables.columns import Cells
from seqkit.data.tables.schema import Column

MIN_ROWS = 10
"""Rows from which on whole numbers of equal steps, or cells that grow, are taken for numbers of the rows."""

OF_IDS = re.compile(
    r"(?i:(.*[_ .-])?(id|uuid|guid)|idx|index|row|row ?names?|key|unnamed: \d+)|.*[a-z](Id|ID)"
)
"""Names of columns that number rows, or things; where most cells differ, they number the rows and are not used."""

OF_TIME = ("year", "month", "day", "week", "hour", "minute", "time", "date", "t", "step")
"""Names of columns that count something else than rows."""

_WHOLE = re.compile(r"(\d{1,18})(\.0*)?")

_CODE = re.compile(r"(?=.{1,60}$)(\S*\d\S*|[0-9a-fA-F]+)")
"""A word with digits, or of hexadecimal ones."""

_ORDERS: tuple[Callable[[str], Any], ...] = (
    str,
    lambda word: (len(word), word),
    lambda word: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", word)],
)
"""Orders in which codes may grow: of the alphabet, with shorter ones first, and with their digits as numbers."""


def numbers_rows(name: str, cells: Cells) -> bool:
    """Whether a column numbers the rows: by its name where most cells differ, else by whole numbers of equal steps.

    Such numbers stand in any order, each once, or each twice as in joined files, under no name of a time.
    """
    if not cells.mostly_differ and {*cells.counts.values()} != {2}:
        return False
    is_id = OF_IDS.fullmatch(name.strip()) is not None
    wholes = [_whole(cell) for cell in cells.counts]
    if None in wholes:
        return is_id and not any(isinstance(cell, float) for cell in cells.drawn)
    if is_id or cells.counts.total() < MIN_ROWS or name.lower().strip() in OF_TIME:
        return is_id
    steps = {b - a for a, b in pairwise(sorted(wholes))}  # type: ignore[type-var, operator]
    return len(steps) == 1 and len({*cells.counts.values()}) == 1


def _whole(cell: Any) -> int | None:
    """A cell as a whole number, zeros before it or behind a point included; None: it is something else."""
    if isinstance(cell, str):
        match = _WHOLE.fullmatch(cell.strip())
        return match and int(match[1])
    if isinstance(cell, int | float) and not isinstance(cell, bool) and cell % 1 == 0:
        return int(cell)
    return None


def grows(column: Column, cells: Cells) -> bool:
    """Whether the filled cells grow, or fall, along the file: numbers, dates or codes, of which most stand once."""
    num = cells.counts.total()
    if num < MIN_ROWS or 10 * len(cells.counts) < 9 * num:
        return False
    if column.kind in ("number", "date"):
        read = number if column.kind == "number" else years
        return _is_sorted(cells.filled, lambda cell: read(cell, column.form))
    words = [str(cell).strip() for cell in cells.filled]
    return any(_is_sorted(words, order) for order in _ORDERS) and all(map(_CODE.fullmatch, words))


def _is_sorted(cells: Sequence[Any], order: Callable[[Any], Any]) -> bool:
    with suppress(TypeError):  # a cell that was not looked at is no number
        return any(
            all(in_order(a, b) for a, b in pairwise(map(order, cells))) for in_order in (le, ge)
        )
    return False


def is_measured(column: Column, cells: Cells) -> bool:
    """Whether a column holds times, or numbers of which some are not whole."""
    is_time = column.kind == "date" or column.name.lower().strip() in OF_TIME
    return is_time or (column.kind == "number" and None in map(_whole, cells.counts))


def in_blocks(targets: Sequence[Hashable]) -> bool:
    """Whether the classes of a file stand in blocks: they change at most at a quarter of the rows where chance would.

    >>> in_blocks([*"aaaaaaabbbbbbb"]), in_blocks([*"abbabaabbabbaaba"])
    (True, False)
    """
    n = len(targets)
    num_unlike_pairs = n**2 - sum(count**2 for count in Counter(targets).values())
    changes = sum(a != b for a, b in pairwise(targets))
    return 0 < 4 * changes * n <= num_unlike_pairs


def is_ranked(targets: Iterable[float]) -> bool:
    """Whether the numbers of a file stand in order: nineteen of twenty steps between different ones go one way."""
    steps = [a < b for a, b in pairwise(targets) if a != b]
    return bool(steps) and 20 * max(sum(steps), len(steps) - sum(steps)) >= 19 * len(steps)
