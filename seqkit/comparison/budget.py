"""Finds the width at which a backbone costs what another does."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import cache

Cost = Callable[[int], int | None]
"""Cost at a width; None: there is no such model."""

MAX_WIDTH = 2**20
"""No search goes beyond."""


def nearest(cost: Cost, target: float, start: int) -> int:
    """The width whose cost is nearest to `target`.

    Cost grows with width; widths that are refused (heads that do not divide them) are passed over.
    Raises ValueError where no width around `start` can be built.
    """

    @cache
    def at(width: int) -> tuple[float, int]:
        """(cost, width) at the first width from `width` on that can be built, among its next 64; else infinity."""
        built = ((value, w) for w in range(width, width + 64) if (value := cost(w)) is not None)
        return next(built, (math.inf, width))

    high = max(start, 1)
    while at(high)[0] < target and high < MAX_WIDTH:
        high *= 2
    above = 1 + bisect_left(range(1, high + 1), target, key=lambda width: at(width)[0])
    below = next((w for w in range(above - 1, max(above - 65, 0), -1) if cost(w) is not None), above)
    found = [(abs(value / target - 1), width) for value, width in (at(above), at(below)) if value < math.inf]
    if not found:
        raise ValueError(f"no width of it can be built around {start}")
    return min(found)[1]
