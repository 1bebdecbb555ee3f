"""Warnings about the data before training: kept for the run that learns from it, besides being logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class Caution(str):
    """A sentence about the data that bears on the result: a report shows it beside the number."""

    __slots__ = ()


@dataclass
class Notes:
    """Warnings about the data. lines: all, in their order. cautions: those of them that bear on the result."""

    lines: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what seqkit warns of inside this context."""
        log, handler = logging.getLogger("seqkit"), _Keeper(self)
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)


class _Keeper(logging.Handler):
    """Handler that puts warnings into notes."""

    def __init__(self, notes: Notes):
        super().__init__(logging.WARNING)
        self.notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        self.notes.lines.append(line)
        if isinstance(record.msg, Caution):
            self.notes.cautions.append(line)
