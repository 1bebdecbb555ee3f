"""Numbers as text. None, NaN and infinity are a dash, whatever the number measures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seqkit.comparison.types import DASH, MINUS, fixed

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def finite(value: Any) -> Any:
    """Plain data with None for every number that is NaN or infinite."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_number(value: float | None, unit: str = "", *, digits: int = 4, prefix: bool = False) -> str:
    """A number with a few significant digits and its thousands apart; a whole number has all its digits.

    unit: what follows, such as "×". prefix: a decimal prefix in place of thousands.

    >>> format_number(0.00045712), format_number(-2.5), format_number(297488.5), format_number(203914)
    ('0.0004571', '−2.5', '297,488', '203,914')
    >>> format_number(81234, prefix=True), format_number(1.3, "×"), format_number(None)
    ('81.23k', '1.3 ×', '–')
    """
    if value is None or not math.isfinite(value):
        return DASH
    size, name = 1.0, ""
    if prefix:
        size, name = next(((size, name) for size, name in _PREFIXES if abs(value) >= 0.99995 * size), (1.0, ""))
    value = value if size == 1 else value / size
    text = f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 10**digits else f"{value:,.{digits}g}"
    return f"{MINUS if value < 0 else ''}{text.lstrip('-')}{name} {unit}".rstrip()


def count(value: float | None) -> str:
    """A whole number with its thousands apart: 203,914."""
    return DASH if value is None else f"{round(value):,}"


def compact(value: float | None, digits: int = 3) -> str:
    """A few significant digits and a decimal prefix from a thousand on: 0.012, 81.2k, 1.2G."""
    if value is None:
        return DASH
    size, prefix = abs(value), ""
    for power, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= 0.9995 * power:  # 999,950 is 1M, not 1000k
            value, prefix = value / power, name
            break
    return f"{value:.{digits}g}{prefix}".replace("-", MINUS, 1 if value < 0 else 0)


def significant(value: float | None) -> str:
    """Four significant digits: 0.5104."""
    return DASH if value is None else f"{value:#.4g}".rstrip(".").replace("-", MINUS, 1 if value < 0 else 0)


def plain(value: Any) -> str:
    """A value of a configuration, numbers by their shortest text: 0.003, 1e-05, true."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def percent(value: float | None) -> str:
    """A signed share in percent with one decimal: +0.4 %."""
    return DASH if value is None else f"{fixed(100 * value, 1, signed=True)} %"


def times(value: float | None) -> str:
    """A ratio: 1.30 ×."""
    return DASH if value is None else f"{value:.3g} ×" if value >= 10 else f"{value:.2f} ×"


def plural(number: int, what: str) -> str:
    """A count with its noun: 1 seed, 3 seeds, 1,200 steps."""
    return f"{number} {what}" if number == 1 else f"{number:,} {what}s"


def listed(names: Sequence[str], word: str = "and") -> str:
    """Names in a sentence: A, B and C."""
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def p_value(entry: Mapping[str, Any]) -> str:
    """The corrected p-value of a difference: 0.012, or < 0.001."""
    p = entry.get("p_holm")
    return DASH if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
