"""Data sets of `defaults.py`: small and middle ones that packages ship, written to files as a user would have them.

A set is a `Case`: how it is written, and what classical methods see of the same rows. Each kind has a file: sets of its
`TUNE` may be run at any time; those of its `JUDGE` were written before anything was run on them, are run once, and are
replaced when they have been seen. `draw` is the rule that draws another judging half of real data (`DRAWN`), whose
bench is `defaults_draw.py`. Packages are fetched by name, version and SHA-256, and read; nothing is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tests.benchmarks.defaults_data import (
    drawn_files,
    drawn_rows,
    drawn_series,
    graphs,
    images,
    molecules,
    series,
    sounds,
    tables,
    texts,
)
from tests.benchmarks.defaults_data.case import Case

KINDS = (tables, texts, images, sounds, molecules, graphs, series)
DRAWN: dict[str, Callable[[], Case]] = {
    **drawn_rows.SETS,
    **drawn_files.SETS,
    **drawn_series.SETS,
}
"""The sets that the rule of `draw` drew; nothing is fetched before one is called."""


def cases(half: Literal["tune", "judge"]) -> dict[str, Callable[[], Case]]:
    """The sets of a half by name; nothing is fetched before one is called."""
    return {
        name: load
        for kind in KINDS
        for name, load in (kind.TUNE if half == "tune" else kind.JUDGE).items()
    }
