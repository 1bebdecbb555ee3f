"""Runs cells, the trainings of a comparison: a process for each, under a lock, with its result in a file.

One that is killed or runs out of memory takes nothing else with it. All processes that see the folder share the work.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import FileIO
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from seqkit.comparison.cells import Cell, Ended, run_cell
from seqkit.errors import (
    DataError,
    DivergedError,
    Interrupted,
    StorageError,
    UsageError,
    is_out_of_memory,
)
from seqkit.files import decoded, load_json, open_to_append, read_regular, write_atomic, write_json
from seqkit.progress import ProgressBar

POLL_SECONDS = 1.0
"""Time between two looks for results of other machines."""

PRELOADED = [
    "torch",
    "pytorch_lightning",
    "sklearn.datasets",
    "sklearn.model_selection",
    "safetensors.torch",
    "seqkit.comparison.cells",
    "seqkit.runs.examined.model",
    "seqkit.runs.run",
    "seqkit.training.callbacks",
]
"""Modules that the fork server imports, once for all cells."""

OUR_OWN = (DataError, UsageError, DivergedError, StorageError)
"""Errors whose message says by itself what is wrong."""

TRACEBACK = "error.txt"
"""Traceback of a failed cell, in its folder below `failed`."""


class _Running(NamedTuple):
    cell: Cell
    process: Any
    lock: FileIO


class Executor:
    """Runs cells in the folder of a comparison, `jobs` at a time; those that have a result are not run again.

    threads: torch's threads in each process. plugins: files that register components. total: of the progress bar.
    at_most: whether there may be fewer.
    """

    def __init__(
        self,
        folder: Path,
        *,
        jobs: int,
        threads: int,
        plugins: Sequence[str] = (),
        total: int | None = None,
        at_most: bool = False,
    ):
        self.folder = folder
        self.jobs = jobs
        self.threads = threads
        self.plugins = list(plugins)
        self.cells: dict[str, Cell] = {}
        self.ended: dict[str, Ended] = {}
        self._deaths: set[str] = set()
        self._running: dict[int, _Running] = {}
        self._bar = ProgressBar(f"compare in {folder}{', up to' if at_most else ''}", total)

    def __call__(self, cells: Sequence[Cell]) -> dict[str, Ended]:
        """Results by id, when all cells have ended, here or in another process. Stopped, it ends its processes."""
        self.cells |= {cell.id: cell for cell in cells}
        self._bar.start()
        try:
            while left := [cell for cell in cells if not self._has_ended(cell)]:
                self._start(left)
                self._wait()
        finally:
            for running in self._running.values():
                running.process.kill()
                running.process.join()
                running.lock.close()
            self._running = {}
        return {cell.id: self.ended[cell.id] for cell in cells}

    def stop(self) -> None:
        """End the progress bar."""
        self._bar.stop()

    @property
    def failed(self) -> dict[str, Ended]:
        """Cells that failed, by id."""
        return {key: result for key, result in self.ended.items() if result.error is not None}

    def _has_ended(self, cell: Cell) -> bool:
        if cell.id in self.ended:
            return True
        path = result_path(self.folder, cell.id)
        if not path.exists():
            return False
        self.ended[cell.id] = read_result(path)
        num_failed = len(self.failed)
        self._bar.total = max(self._bar.total or 0, len(self.ended))
        self._bar.update(len(self.ended), f"{num_failed} failed" if num_failed else "")
        return True

    def _start(self, cells: Sequence[Cell]) -> None:
        """Start as many as there are jobs free, of the cells that no process runs."""
        here = {running.cell.id for running in self._running.values()}
        for cell in cells:
            if len(self._running) >= self.jobs:
                return
            lock = None if cell.id in here else claimed(self.folder, cell.id)
            if lock is None:
                continue
            # of a process that was killed
            for left in self.folder.glob(f"runs/{_unfinished(cell.id, '*')}"):
                shutil.rmtree(left, ignore_errors=True)
            process = self._process(cell)
            process.start()
            self._running[process.sentinel] = _Running(cell, process, lock)

    def _wait(self) -> None:
        """Wait for a process to end; one that left no result died, and is given one more chance."""
        if not self._running:
            time.sleep(POLL_SECONDS)
        for sentinel in wait(list(self._running), POLL_SECONDS):
            assert isinstance(sentinel, int)
            cell, process, lock = self._running.pop(sentinel)
            process.join()
            if not result_path(self.folder, cell.id).exists():
                if cell.id in self._deaths:
                    place = keep_failed(self.folder, cell.id, process.pid)
                    error = f"{_death(process.exitcode)} (see {place})"
                    write_result(result_path(self.folder, cell.id), Ended(error=error))
                self._deaths.add(cell.id)  # the system may have been short of memory for a moment
            lock.close()

    def _process(self, cell: Cell) -> Any:
        context: Any = multiprocessing.get_context("spawn")
        if sys.platform == "linux":
            context = _fork_server()
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        arguments = (cell, str(self.folder), self.threads, self.plugins, environment)
        # no daemon: loaders have processes, too
        return context.Process(target=_work, args=arguments)


def result_path(folder: Path, cell_id: str) -> Path:
    """File with the result of a cell."""
    return folder / "cells" / f"{cell_id}.json"


DIGEST = "sha256"
"""Key of a result's SHA-256 in its file."""


def write_result(path: Path, ended: Ended) -> None:
    """Write the result of a cell, with a digest."""
    value = ended.to_json()
    write_json(path, value | {DIGEST: _digest(value)})


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_result(path: Path) -> Ended:
    """Result of a cell. Raises DataError where the file is damaged."""
    try:
        value = load_json(decoded(read_regular(path)))
        if not isinstance(value, dict) or "seconds" not in value:
            raise ValueError("it holds no result")
        digest = value.pop(DIGEST, None)
        # that of an earlier version has none
        if digest not in (None, _digest(value)):
            raise ValueError("its SHA-256 is not the one that it was written with")
        return Ended.from_json(value)
    except (ValueError, OSError) as error:
        why = f"{path} is damaged ({error})"
        raise DataError(f"{why}; delete it, and the same command runs that cell again") from error


def claimed(folder: Path, cell_id: str) -> FileIO | None:
    """The lock of a cell, held; None if it has a result, or if another process runs it.

    The kernel frees the locks of a process that dies, so its cells are run by another one.
    """
    path = result_path(folder, cell_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = open_to_append(path.with_suffix(".lock"))
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.exists():  # stored since the results were read
            return lock
    lock.close()
    return None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made if it is missing, against other processes; waits for them."""
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_to_append(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be opened ({error.strerror}); give another --out"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unfinished(cell_id: str, pid: int | str) -> Path:
    """Folder of a run until it is complete, below `runs`."""
    return Path(cell_id).parent / f".{Path(cell_id).name}.{pid}"


def run_attempt(cell: Cell, folder: Path) -> Ended:
    """Run a cell in this process; where it fails, its folder and traceback are kept, and the error names them."""
    started = time.perf_counter()
    unfinished = folder / "runs" / _unfinished(cell.id, os.getpid())
    try:
        ended = run_cell(cell, unfinished)
        if unfinished.exists():
            final = folder / "runs" / cell.id
            shutil.rmtree(final, ignore_errors=True)
            unfinished.replace(final)
    except Exception as error:  # of a user's own component; the other cells go on
        place = keep_failed(folder, cell.id, os.getpid())
        write_atomic(place / TRACEBACK, traceback.format_exc().encode())
        if isinstance(error, OUR_OWN):
            said = str(error)
        else:
            said = f"{type(error).__name__}: {error}"
        if is_out_of_memory(error):
            said = f"out of memory: {said}"
        ended = Ended(error=f"{' '.join(said.split())} (see {place / TRACEBACK})")
    return replace(ended, seconds=round(time.perf_counter() - started, 2))


def keep_failed(folder: Path, cell_id: str, pid: int) -> Path:
    """Move what a failed cell left to `failed/ID`, and return that folder."""
    place = folder / "failed" / cell_id
    unfinished = folder / "runs" / _unfinished(cell_id, pid)
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    if unfinished.exists():
        unfinished.replace(place)
    place.mkdir(exist_ok=True)
    return place


def _work(
    cell: Cell, folder: str, threads: int, plugins: list[str], environment: Mapping[str, str]
) -> None:
    """Run a cell and write its result; the target of a process."""
    # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()  # the fork server keeps the variables that it was started with
    os.environ.update(environment)
    import torch

    torch.set_num_threads(threads)
    # each run has its log file; on the screen a hundred runs would repeat each warning a hundred times
    logging.getLogger("seqkit").addHandler(logging.NullHandler())
    logging.lastResort = None
    if plugins:
        from seqkit.registry.plugins import import_plugins

        import_plugins([Path(plugin) for plugin in plugins])
    try:
        ended = run_attempt(cell, Path(folder))
    except Interrupted as stop:  # somebody's signal to this process alone: the parent sees it end
        sys.exit(128 + stop.signum)
    write_result(result_path(Path(folder), cell.id), ended)


def _fork_server() -> Any:
    """A process that has imported torch and has no threads; one is forked from it in milliseconds."""
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
    # each process imports the script that began it
    hint = '; in a script, call it under `if __name__ == "__main__":`' if code == 1 else ""
    return f"the process ended with exit code {code}{hint}"


def _end_with_parent() -> None:
    """End this process when the one that started it has: nobody would take the result."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
