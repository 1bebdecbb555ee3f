"""Warnings about the data before training: kept for the run that learns from it, besides being logged."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from seqkit.errors import one_line


class Caution(str):
    """A sentence about the data that bears on the result: a report shows it beside the number."""

    __slots__ = ()


def listed(names: Iterable[object], most: int = 8) -> str:
    """The first names of several, in one line."""
    known = list(names)
    more = ", …" if len(known) > most else ""
    return ", ".join(map(one_line, known[:most])) + more


@contextmanager
def said_once() -> Iterator[None]:
    """seqkit's log has each sentence once inside this context: the same data is read for several models."""
    said = set[str]()

    def is_new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_repeated = message in said
        said.add(message)
        return not is_repeated

    log = logging.getLogger("seqkit")
    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)


@dataclass
class Notes:
    """Warnings about the data. lines: all, in their order. cautions: those of them that bear on the result."""

    lines: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what seqkit warns of inside this context."""
        log = logging.getLogger("seqkit")
        log.addFilter(self._keep)  # no handler: without any, Python shows warnings on stderr
        try:
            yield
        finally:
            log.removeFilter(self._keep)

    def _keep(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            self.lines.append(record.getMessage())
            if isinstance(record.msg, Caution):
                self.cautions.append(record.getMessage())
        return True
