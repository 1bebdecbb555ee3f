"""Numbers as text. None, NaN and infinity are a dash, whatever the number measures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seqkit.objectives.metric import DASH, MINUS

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def finite(value: Any) -> Any:
    """Plain data with None for every number that is NaN or infinite."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def format_number(
    value: float | None, unit: str = "", *, digits: int = 4, prefix: bool = False
) -> str:
    """A number with a few significant digits and its thousands apart; a whole number has all its digits.

    unit: what follows, such as "×". prefix: a decimal prefix in place of thousands.

    >>> format_number(0.00045712), format_number(-2.5), format_number(297488.5), format_number(203914)
    ('0.0004571', '−2.5', '297,488', '203,914')
    >>> format_number(81234, prefix=True), format_number(1.3, "×"), format_number(None)
    ('81.23k', '1.3 ×', '–')
    """
    if value is None or not math.isfinite(value):
        return DASH
    size = 1.0
    name = ""
    if prefix:
        size, name = next(
            ((size, name) for size, name in _PREFIXES if abs(value) >= 0.99995 * size), (1.0, "")
        )
    value = value if size == 1 else value / size
    if isinstance(value, int) or abs(value) >= 10**digits:
        text = f"{value:,.0f}"
    else:
        text = f"{value:,.{digits}g}"
    return f"{MINUS if value < 0 else ''}{text.lstrip('-')}{name} {unit}".rstrip()


def plural(number: int, what: str) -> str:
    """A count with its noun: 1 seed, 3 seeds, 1,200 steps."""
    if number == 1:
        return f"{number} {what}"
    return f"{number:,} {what}s"


def listed(names: Sequence[str], word: str = "and") -> str:
    """Names in a sentence: A, B and C."""
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
