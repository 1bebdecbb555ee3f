"""Checks of settings: probabilities, numbers above 0, counts."""

from __future__ import annotations

import math


def check_probability(name: str, value: float) -> None:
    """Raise ValueError if `value` is not in [0, 1)."""
    if not 0 <= value < 1:
        raise ValueError(f"{name}={value} is a probability; make it at least 0 and below 1")


def check_above_0(**settings: float | None) -> None:
    """Raise ValueError for a number that is neither finite and above 0 nor None (not given)."""
    for name, value in settings.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name}={value}; give a finite number above 0, or leave it out")


def check_at_least(least: int, **settings: int | None) -> None:
    """Raise ValueError for a number that is below `least`; None is not given."""
    for name, value in settings.items():
        if value is not None and value < least:
            raise ValueError(f"{name}={value}; make it {least} or more")


def check_heads(num_heads: int, **widths: int) -> None:
    """Raise ValueError for a width that does not split into equal heads."""
    for name, width in widths.items():
        if width < 1 or width % num_heads:
            raise ValueError(
                f"{name}={width} does not split into num_heads={num_heads} equal heads; make it a multiple"
            )
