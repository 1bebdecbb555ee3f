"""Worker processes that run cells, so that one which is killed or runs out of memory takes nothing else with it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from seqkit.comparison.cells import Cell
from seqkit.errors import DataError, DivergedError, Interrupted, StorageError, UsageError

STOP_SECONDS = 10.0
"""What an idle worker has to end by itself."""

WATCH_SECONDS = 1.0
"""How often a worker looks whether the process that started it still lives."""


class Workers:
    """A number of processes, each of which runs one cell at a time.

    root: folder of the comparison. threads: of torch in each. plugins: files that register components.
    """

    def __init__(self, number: int, root: Path, threads: int, plugins: Sequence[str] = ()):
        self.root, self.threads, self.plugins = root, threads, list(plugins)
        self._idle = [self._start() for _ in range(number)]
        self._busy: dict[Connection, tuple[_Worker, Cell]] = {}

    @property
    def num_idle(self) -> int:
        """How many could take a cell."""
        return len(self._idle)

    @property
    def num_busy(self) -> int:
        """How many run one."""
        return len(self._busy)

    @property
    def running(self) -> list[str]:
        """Ids of the cells that run."""
        return [cell.id for _, cell in self._busy.values()]

    def submit(self, cell: Cell) -> None:
        """Give a cell to an idle worker."""
        worker = self._idle.pop()
        try:
            worker.connection.send(cell)
        except BrokenPipeError:  # killed while it had nothing to do
            worker = self._start()
            worker.connection.send(cell)
        self._busy[worker.connection] = worker, cell

    def finished(self, timeout: float) -> list[tuple[Cell, dict[str, Any]]]:
        """Cells that ended, with their result or {"error", "killed"}; waits for one at most `timeout` seconds."""
        ended: list[tuple[Cell, dict[str, Any]]] = []
        if not self._busy:
            time.sleep(timeout)
        for connection in wait(list(self._busy), timeout):
            assert isinstance(connection, Connection)
            worker, cell = self._busy.pop(connection)
            try:
                result: dict[str, Any] = connection.recv()
                self._idle.append(worker)
            except EOFError:
                worker.process.join()
                result = {"error": _death(worker.process.exitcode), "killed": True}
                self._idle.append(self._start())
            ended.append((cell, result))
        return ended

    def stop(self) -> None:
        """End all processes, busy ones at once: a cell leaves nothing half done that is taken for whole."""
        for worker in self._idle:
            worker.connection.close()  # the end of its work
        for worker, _ in self._busy.values():
            worker.process.kill()
        for worker in [*self._idle, *(worker for worker, _ in self._busy.values())]:
            worker.process.join(STOP_SECONDS)
            worker.process.kill()
            worker.process.join()
        self._idle, self._busy = [], {}

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        arguments = (there, str(self.root), self.threads, self.plugins, os.getpid())
        process = context.Process(target=_serve, args=arguments)  # no daemon: loaders have processes, too
        process.start()
        there.close()
        return _Worker(process, here)


class _Worker:
    def __init__(self, process: Any, connection: Connection):
        self.process, self.connection = process, connection


def _death(code: int | None) -> str:
    """How a process ended, in words."""
    if code is not None and code < 0:
        hint = ": usually the system was out of memory" if code == -9 else ""
        return f"the process was killed by signal {-code}{hint}"
    return f"the process ended with exit code {code}"


def _serve(connection: Connection, root: str, threads: int, plugins: list[str], parent: int) -> None:
    """Run cells until the connection closes."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import torch

    from seqkit.comparison.cells import run_cell

    torch.set_num_threads(threads)
    # each run has its log file; on the screen a hundred runs would repeat each warning a hundred times
    logging.getLogger("seqkit").addHandler(logging.NullHandler())
    logging.lastResort = None
    if plugins:
        from seqkit.registry.plugins import import_plugins

        import_plugins([Path(plugin) for plugin in plugins])
    while True:
        try:
            cell = connection.recv()
        except (EOFError, OSError):
            return
        try:
            connection.send(_attempt(cell, Path(root), run_cell))
        except Interrupted as stop:  # somebody's signal to this process alone: the parent sees it end
            sys.exit(128 + stop.signum)


def _attempt(cell: Cell, root: Path, run_cell: Any) -> dict[str, Any]:
    """The cell's result, or its error in one line."""
    try:
        result: dict[str, Any] = run_cell(cell, root)
        return result
    except (DataError, UsageError, DivergedError, StorageError) as error:
        return {"error": str(error)}
    except (MemoryError, RuntimeError) as error:
        text = " ".join(str(error).split())
        out_of_memory = isinstance(error, MemoryError) or "memory" in text.lower()
        return {"error": f"out of memory: {text}" if out_of_memory else f"{type(error).__name__}: {text}"}
    except Exception as error:  # a user's own component may raise anything, and the other cells go on
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())} ({where})"}


def _end_with(parent: int) -> None:
    """End this process when the one that started it has: nobody would take the result."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)
