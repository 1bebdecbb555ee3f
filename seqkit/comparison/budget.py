"""Finds the width at which a backbone costs what another does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

CostAt = Callable[[int], int | None]
"""Cost at a width; None: there is no such model."""

MAX_WIDTH = 2**20
"""No search goes beyond."""

AROUND = 64
"""Widths that are tried, one by one, for the next that can be built."""


def nearest(cost: CostAt, target: float, start: int) -> int:
    """The width whose cost is nearest to `target`.

    Cost grows with width, about as its square, so a few guesses come close; then the widths beside are tried. Widths
    that are refused (heads that do not divide them) are passed over.
    Raises ValueError where no width around `start` can be built.
    """
    cost = cache(cost)

    def beside(width: int, step: int) -> int | None:
        """The nearest width from `width` on, upwards or downwards, that can be built."""
        if step > 0:
            some = range(width, min(width + AROUND, MAX_WIDTH))
        else:
            some = range(width, max(width - AROUND, 0), -1)
        return next((w for w in some if cost(w) is not None), None)

    width = start
    for _ in range(6):
        built = beside(width, 1) or beside(width, -1)
        if built is None:
            raise ValueError(f"no width of it can be built around {start}")
        width = built
        guess = max(
            1, min(round(width * (target / max(value_of(cost, width), 1)) ** 0.5), MAX_WIDTH - 1)
        )
        if abs(guess - width) <= 1:
            break
        width = guess
    width = beside(width, 1) or beside(width, -1) or start
    way = 1 if value_of(cost, width) < target else -1
    while (other := beside(width + way, way)) is not None:
        passed = (value_of(cost, other) - target) * way >= 0
        if passed:
            return min(width, other, key=lambda w: (abs(value_of(cost, w) / target - 1), w))
        width = other
    return width


def value_of(cost: CostAt, width: int) -> int:
    """Cost at a width that can be built."""
    value = cost(width)
    assert value is not None
    return value
