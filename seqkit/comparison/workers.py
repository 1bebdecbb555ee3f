"""Runs the cells of a plan in worker processes: one that is killed or runs out of memory takes nothing else with it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from seqkit.comparison.cells import Cell
from seqkit.comparison.ledger import Ledger
from seqkit.comparison.plan import Plan
from seqkit.errors import DataError, DivergedError, Interrupted, StorageError, UsageError
from seqkit.progress import ProgressBar

POLL_SECONDS = 1.0
"""Time between two looks for results of other machines."""

STOP_SECONDS = 10.0
"""Time that an idle worker has to end by itself."""

PRELOADED = ["torch", "pytorch_lightning", "seqkit.comparison.cells", "seqkit.runs.run", "seqkit.report.page"]
"""Modules that the fork server imports, once for all workers."""


def execute(plan: Plan, ledger: Ledger, root: Path, *, jobs: int, threads: int, title: str) -> dict[str, Any]:
    """Results of all cells by id; a cell that fails has {"error": …}, and the others go on.

    A cell whose process is killed is run once more: the system may have been short of memory for a moment.
    Stopped by Ctrl-C, it ends its processes; what ended before is kept.
    """
    workers = Workers(jobs, root, threads, plan.settings.plugins)
    deaths: dict[str, int] = {}
    results = ledger.results()
    with ProgressBar(title, len(plan.steps(results))) as bar:
        try:
            while len(done := {key for key in plan.steps(results) if key in results}) < len(plan.steps(results)):
                bar.total = len(plan.steps(results))
                failed = sum("error" in results[key] for key in done)
                bar.update(len(done), f"{failed} failed" if failed else "")
                _submit(plan, ledger, workers, results)
                for cell, result in workers.finished(POLL_SECONDS):
                    if result.pop("killed", False) and deaths.setdefault(cell.id, 0) < 1:
                        deaths[cell.id] += 1
                        ledger.release(cell.id)
                    else:
                        ledger.store(cell.id, result)
                results = ledger.results()
            bar.update(len(plan.steps(results)))
        finally:
            for key in workers.running:
                ledger.release(key)
            workers.stop()
    return results


def _submit(plan: Plan, ledger: Ledger, workers: Workers, results: dict[str, Any]) -> None:
    """Give ready cells to idle workers. What is measured is measured alone."""
    if "measure" in workers.running:
        return
    for step in plan.ready(results):
        if not workers.num_idle:
            return
        if step.id in workers.running or (step.kind == "measure" and workers.running):
            continue
        if ledger.claim(step.id):
            workers.submit(plan.cell(step, results))
            if step.kind == "measure":
                return


class Workers:
    """Worker processes, each of which runs one cell at a time; one is started when a cell finds none that is idle.

    number: processes at most. root: folder of the comparison. threads: torch's threads in each process. plugins: files
    that register components.
    """

    def __init__(self, number: int, root: Path, threads: int, plugins: Sequence[str] = ()):
        self.number, self.root, self.threads, self.plugins = number, root, threads, list(plugins)
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, tuple[_Worker, Cell]] = {}

    @property
    def num_idle(self) -> int:
        """Number of cells that could be taken."""
        return self.number - len(self._busy)

    @property
    def running(self) -> list[str]:
        """Ids of the cells that run."""
        return [cell.id for _, cell in self._busy.values()]

    def submit(self, cell: Cell) -> None:
        """Give a cell to an idle worker, or to a new one."""
        assert self.num_idle, "all workers are busy"
        worker = self._idle.pop() if self._idle else self._start()
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
        context: Any = _fork_server() if sys.platform == "linux" else multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        arguments = (there, str(self.root), self.threads, self.plugins, environment)
        process = context.Process(target=_serve, args=arguments)  # no daemon: loaders have processes, too
        process.start()
        there.close()
        return _Worker(process, here)


class _Worker(NamedTuple):
    process: Any
    connection: Connection


def _fork_server() -> Any:
    """A process that has imported torch and has no threads; a worker is forked from it in milliseconds."""
    from multiprocessing import forkserver, resource_tracker

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    resource_tracker.ensure_running()  # it would unblock the signal
    # Ctrl-C reaches the whole group, and would end its imports with a traceback
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _death(code: int | None) -> str:
    """Description of how a process ended."""
    if code is not None and code < 0:
        hint = ": usually the system was out of memory" if code == -9 else ""
        return f"the process was killed by signal {-code}{hint}"
    return f"the process ended with exit code {code}"


def _serve(connection: Connection, root: str, threads: int, plugins: list[str], environment: Mapping[str, str]) -> None:
    """Run cells until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()  # the fork server keeps the variables that it was started with
    os.environ.update(environment)
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


def _end_with_parent() -> None:
    """End this process when the one that started it has: nobody would take the result."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
