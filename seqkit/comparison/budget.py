"""Finds the width, and if need be the depth, at which a backbone costs what another does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    """(relative gap, width) of the nearest width that can be built."""

    def at(width: int) -> tuple[int, int] | None:
        """(cost, width) at the first width from `width` on that can be built, among its next 64."""
        for candidate in range(max(width, 1), max(width, 1) + 64):
            value = cost(candidate, depth)
            if value is not None:
                return value, candidate
        return None

    low = high = at(start)
    if low is None or high is None:
        return None
    while high[0] < target and high[1] < MAX_WIDTH:
        low, after = high, at(2 * high[1])
        if after is None:
            break
        high = after
    while low[0] > target and low[1] > 1:
        before = at(low[1] // 2)
        if before is None or before[1] >= low[1]:
            break
        low, high = before, low
    while high[1] - low[1] > 1:
        middle = at((low[1] + high[1]) // 2)
        if middle is None or middle[1] >= high[1]:
            # nothing can be built from the middle up to the upper end: take the last below it that can
            below = ((cost(width, depth), width) for width in range((low[1] + high[1]) // 2 - 1, low[1], -1))
            middle = next(((value, width) for value, width in below if value is not None), None)
            if middle is None:
                break
        low, high = (middle, high) if middle[0] < target else (low, middle)
    return min((abs(value / target - 1), width) for value, width in (low, high))
