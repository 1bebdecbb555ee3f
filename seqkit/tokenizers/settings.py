"""Settings of tokenizers that are refused as they are made."""

from __future__ import annotations


def check_counts(**counts: int | None) -> None:
    """Raises ValueError for a number below 1 of what is counted; None: it is left open."""
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ValueError(f"{name}={count}; it counts something, so make it at least 1")


def check_choice(name: str, value: object, *known: object) -> None:
    """Raises ValueError for a value that is none of those that are known."""
    if value not in known:
        raise ValueError(f"{name}={value!r}; give {' or '.join(map(str, known))}")
