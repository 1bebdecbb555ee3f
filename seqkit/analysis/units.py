"""Counts and bytes as text, with their units."""

from __future__ import annotations


def number(count: float) -> str:
    """A count, shortened by a suffix: 950, 124.4 M, 175.0 B (billions)."""
    for unit, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:,.1f} {suffix}"
    return f"{count:,.0f}"


def size(num_bytes: float) -> str:
    """Bytes in decimal units: 698.3 GB."""
    for unit, suffix in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:,.1f} {suffix}"
    return f"{num_bytes:,.0f} B"
