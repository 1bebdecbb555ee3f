"""Data sets of `defaults.py`: small and middle ones that packages ship, written to files as a user would have them.

A set is a `Case`: how it is written, and what classical methods see of the same rows. Sets were drawn twice: those of
draw 1 have been run, and those of draw 2 were chosen and drawn before anything was run on them. Each kind has a file,
whose `DRAWS` names its sets. Packages are fetched by name, version and SHA-256, and read; nothing is installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from tests.benchmarks.defaults_data import graphs, images, molecules, series, sounds, tables, texts
from tests.benchmarks.defaults_data.case import Case

KINDS = (tables, texts, images, sounds, molecules, graphs, series)


def cases(draw: int | None = None) -> dict[str, Callable[[], Case]]:
    """The sets of a draw (None: of all draws) by name; nothing is fetched before one is called."""
    draws = (1, 2) if draw is None else (draw,)
    return {name: load for draw in draws for kind in KINDS for name, load in kind.DRAWS[draw].items()}


def halves(draw: int = 1) -> tuple[list[str], list[str]]:
    """Names that tune, and names that judge: drawn by SHA-256 within each kind, so that both halves have every kind."""
    tune: list[str] = []
    judge: list[str] = []
    names = cases(draw)
    for kind in dict.fromkeys(name.split("/")[0] for name in names):
        own = [name for name in names if name.startswith(f"{kind}/")]
        own.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        judge += own[::2]
        tune += own[1::2]
    return tune, judge
