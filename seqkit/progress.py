"""The progress bar of reading, encoding, downloads and training, drawn by rich.

Without a terminal to draw in (a log file, a batch system), it is a line after 2 seconds, and one every 30 seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

from seqkit.errors import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

T = TypeVar("T")

FIRST_SECONDS = 2.0
LINE_SECONDS = 30.0
"""Seconds before the first line, which says how long the work takes, and between two if there is no terminal."""


class ProgressBar:
    """One bar on stderr, between `start` and `stop` or inside `with`: work, steps done, a note, time taken, time left.

    total: steps until the end; None: unknown. in_bytes: True: steps are bytes, shown as kB and MB. transient: True:
    the bar vanishes at the end.
    """

    def __init__(
        self, what: str, total: int | None, *, in_bytes: bool = False, transient: bool = False
    ):
        self.what = what
        self.total = total
        self.in_bytes = in_bytes
        self.transient = transient
        self._shown: tuple[Progress, TaskID] | None = None
        self._writes_lines = False
        self._started = self._last_line = 0.0

    def start(self) -> None:
        """Show the bar, at zero, unless it is shown already."""
        if self._shown is not None:
            return
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        self._writes_lines = not console.is_terminal
        self._started = time.monotonic()
        self._last_line = self._started - (0 if self.transient else LINE_SECONDS - FIRST_SECONDS)
        bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=24),
            progress.DownloadColumn() if self.in_bytes else progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[note]}", markup=False),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
            console=console,
            transient=self.transient,
        )
        self._shown = bar, bar.add_task(one_line(self.what), total=self.total, note="")
        # of a bar that vanishes rich leaves an empty line in a log
        if not (self._writes_lines and self.transient):
            bar.start()

    def update(self, done: int, note: str = "") -> None:
        """Show that `done` steps are complete, if the bar is shown."""
        if self._shown is None:
            return
        bar, task = self._shown
        bar.update(task, completed=done, total=self.total, note=one_line(note))
        if self._writes_lines and time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            taken = self._last_line - self._started
            of = "" if self.total is None else f" of {self.total:,}"
            parts = [
                f"{self.what}: {done:,}{of}{' bytes' if self.in_bytes else ''}",
                note,
                f"{clock(taken)} taken",
            ]
            if self.total is not None and done > 0:
                parts.append(f"about {clock(taken * max(self.total - done, 0) / done)} left")
            sys.stderr.write(f"{one_line(', '.join(filter(None, parts)))}\n")
            sys.stderr.flush()

    def stop(self) -> None:
        """Draw the bar for the last time, if it is shown."""
        if self._shown is not None and self._shown[0].live.is_started:
            self._shown[0].stop()
        self._shown = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()


def clock(seconds: float) -> str:
    """Seconds as 0:07, 12:30 or 1:05:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}"


def track(items: Iterable[T], what: str, total: int | None, patience: float = 2.0) -> Iterator[T]:
    """Yields the items, with a bar once they have taken `patience` seconds. total: their number; None: unknown."""
    started = time.monotonic()
    bar = ProgressBar(what, total, transient=True)
    try:
        for done, item in enumerate(items, start=1):
            yield item
            if time.monotonic() - started > patience:
                bar.start()
            bar.update(done)
    finally:
        bar.stop()
