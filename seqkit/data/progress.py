"""A progress bar for work that turns out to be long."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], what: str, total: int, patience: float = 2.0) -> Iterator[T]:
    """The items; with a bar on stderr once they have taken `patience` seconds."""
    started, rest = time.monotonic(), iter(items)
    for done, item in enumerate(rest):
        yield item
        if time.monotonic() - started > patience:
            from rich.console import Console
            from rich.progress import Progress

            with Progress(console=Console(stderr=True), transient=True) as bar:
                task = bar.add_task(what, total=total, completed=done + 1)
                for late in rest:
                    yield late
                    bar.advance(task)
