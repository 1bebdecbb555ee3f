"""Results of a comparison's trainings (cells): a file for each, shared by all processes that see the folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from seqkit.errors import DataError, UsageError
from seqkit.files import decoded, load_json, open_to_append, read_regular, write_json

SETTINGS = "comparison.json"
"""File of a comparison's folder with its settings."""


def check_whole(folder: Path) -> None:
    """Raise UsageError for a folder that holds something, but no settings of a comparison."""
    if not (folder / SETTINGS).exists() and any(entry.name != ".lock" for entry in folder.iterdir()):
        raise UsageError(f"{folder} holds something else than a whole comparison; give another --out")


class Ledger:
    """A JSON file for each cell that ended, written whole or not at all, and a lock for each cell that runs.

    The kernel frees the locks of a process that dies, so its cells are run by another one.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._results: dict[str, dict[str, Any]] = {}
        self._locks: dict[str, FileIO] = {}

    def results(self) -> dict[str, dict[str, Any]]:
        """The result, or the error, of every cell that ended in any process. Raises DataError for a damaged file."""
        for path in sorted(self.folder.glob("**/*.json")):
            cell_id = path.relative_to(self.folder).with_suffix("").as_posix()
            if cell_id not in self._results:
                self._results[cell_id] = _read(path)
        return dict(self._results)

    def claim(self, cell_id: str) -> bool:
        """Lock a cell for this process. False if it has a result, or if another process runs it."""
        path = self.folder / f"{cell_id}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open_to_append(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return False
        self._locks[cell_id] = lock
        if path.with_name(f"{path.stem}.json").exists():  # stored since the results were read
            self.release(cell_id)
            return False
        return True

    def store(self, cell_id: str, result: Mapping[str, Any]) -> None:
        """Write the result of a claimed cell."""
        write_json(self.folder / f"{cell_id}.json", dict(result))
        (self.folder / f"{cell_id}.lock").unlink(missing_ok=True)
        self.release(cell_id)

    def release(self, cell_id: str) -> None:
        """Give up a claimed cell."""
        self._locks.pop(cell_id).close()


def _read(path: Path) -> dict[str, Any]:
    """Result of a cell. Raises DataError where the file is damaged or lacks what the page needs."""
    kinds = {"error": str, "metrics": dict, "summary": dict, "costs": dict}
    try:
        value = load_json(decoded(read_regular(path)))
        if not isinstance(value, dict) or not set(kinds) & set(value):
            raise ValueError("it holds no result")
        wrong = [key for key, kind in kinds.items() if key in value and not isinstance(value[key], kind)]
        if "summary" in value and not wrong:
            wrong = [f"summary.{key}" for key in ("metrics", "steps", "tokens_seen") if key not in value["summary"]]
        if wrong:
            raise ValueError(f"{wrong[0]} is missing or of another type")
    except (ValueError, OSError) as error:
        why = f"{path} is damaged ({error})"
        raise DataError(f"{why}; delete it, and the same command runs that cell again") from error
    return value


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made if it is missing, against other processes; waits for them."""
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_to_append(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be opened ({error.strerror}); give another --out") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
