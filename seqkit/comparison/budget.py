"""Finds the width, and if need be the depth, at which a backbone costs what another does."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cache

Cost = Callable[[int, int | None], int | None]
"""Cost at (width, depth); None: there is no such model."""

MAX_WIDTH = 2**20
"""No search goes beyond."""


def nearest(cost: Cost, target: float, width: int, depth: int | None, tolerance: float) -> tuple[int, int | None]:
    """The width and depth whose cost is nearest to `target`; the given depth is kept if it comes within `tolerance`.

    Cost grows with width; widths that are refused (heads that do not divide them) are passed over. Other depths are
    tried from the nearest on. Raises ValueError where no width at all can be built.
    """
    best: tuple[float, int, int | None] | None = None
    for other in _depths(depth):
        found = _nearest_width(cost, target, width, other)
        if found is None:
            continue
        if best is None or found[0] < best[0]:
            best = (found[0], found[1], other)
        if best[0] <= tolerance:
            break
    if best is None:
        raise ValueError(f"no width of it can be built around {width}")
    return best[1], best[2]


def _depths(depth: int | None) -> Iterator[int | None]:
    yield depth
    if depth is not None:
        for step in range(1, max(depth, 3) + 1):
            yield from (d for d in (depth + step, depth - step) if d >= 1)


def _nearest_width(cost: Cost, target: float, start: int, depth: int | None) -> tuple[float, int] | None:
    """(relative gap, width) of the nearest width that can be built; None if there is none around `start`."""

    @cache
    def at(width: int) -> tuple[float, int]:
        """(cost, width) at the first width from `width` on that can be built, among its next 64; else infinity."""
        built = ((value, w) for w in range(width, width + 64) if (value := cost(w, depth)) is not None)
        return next(built, (math.inf, width))

    high = max(start, 1)
    while at(high)[0] < target and high < MAX_WIDTH:
        high *= 2
    above = 1 + bisect_left(range(1, high + 1), target, key=lambda width: at(width)[0])
    below = next((w for w in range(above - 1, max(above - 65, 0), -1) if cost(w, depth) is not None), above)
    found = [(abs(value / target - 1), width) for value, width in (at(above), at(below)) if value < math.inf]
    return min(found, default=None)
