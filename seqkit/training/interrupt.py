"""Signals that ask a run to stop: SIGTERM, SIGINT, SIGHUP, SIGUSR1.

During training they set a flag, which is read when a checkpoint can be written; else they raise Interrupted.
A second one ends the process immediately.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from seqkit.errors import SIGNALS, Interrupted, is_in_import

log = logging.getLogger("seqkit")


class StopSignals:
    """Signals that arrived. phase, next_step: what the run is doing, and how it goes on, for the message.

    deferred: keep a signal instead of raising; first: what is done then before the process stops. exits_in_imports: end
    the process at once, with the message, if a signal comes in an import.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.phase = "starting"
        self.first = "a checkpoint is written at the end of this step"
        self.deferred = self.exits_in_imports = False
        self.next_step = ""

    @property
    def name(self) -> str:
        """Name of the signal that arrived."""
        if self.received is None:
            return ""
        return signal.Signals(self.received).name

    def interrupted(self, what: str) -> Interrupted:
        """Error that ends the run. what: where it stood and how it goes on, in one line."""
        assert self.received is not None
        return Interrupted(f"{self.name}: {what}", self.received)

    @contextmanager
    def installed(self) -> Iterator[StopSignals]:
        """Handle the signals inside this context, in the main thread alone: Python handles signals in no other."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            self.install_again()
            yield self
        finally:
            for number, handler in before.items():
                if handler is not None:
                    signal.signal(number, handler)

    def install_again(self) -> None:
        """Take the signals, also back from Lightning, which handles SIGTERM itself once a loop begins."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # a SIGHUP that nohup had ignored stays ignored
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> Any:
        if self.received is not None:  # the second one
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.received = number
        if self.exits_in_imports and is_in_import(frame):
            os.write(
                2, f"seqkit: {self.name}: stopped while {self.phase}{self.next_step}\n".encode()
            )
            os._exit(128 + number)
        if not self.deferred:
            raise self.interrupted(f"stopped while {self.phase}{self.next_step}")
        log.warning(
            "%s: %s, then the run stops; a second signal ends it now", self.name, self.first
        )
