"""Results of cells: on disk for one machine, or in an Optuna study that any number of machines share."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqkit.errors import DataError, UsageError
from seqkit.files import decoded, load_json, read_regular, write_json

log = logging.getLogger("seqkit")

HEARTBEAT_SECONDS = 10
"""Time between two signs of life of a running cell; after six without one it is taken for dead."""


class FolderLedger:
    """A JSON file for each cell, written whole or not at all. One process at a time has the folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._results: dict[str, dict[str, Any]] = {}
        for path in sorted(folder.glob("**/*.json")):
            self._results[path.relative_to(folder).with_suffix("").as_posix()] = _read(path)

    def results(self) -> dict[str, dict[str, Any]]:
        """The result, or the error, of every cell that ended."""
        return dict(self._results)

    def claim(self, cell_id: str) -> bool:
        """True if the cell has no result; nobody else works in the folder."""
        return cell_id not in self._results

    def store(self, cell_id: str, result: Mapping[str, Any]) -> None:
        """Write the result."""
        path = self.folder / f"{cell_id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, dict(result))
        self._results[cell_id] = dict(result)

    def release(self, cell_id: str) -> None:
        """Give up a claimed cell without a result; nobody waits for it."""


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
    """Raise UsageError where another process of this machine has the folder; the lock ends with the process."""
    import fcntl

    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)  # a link would lead to somebody's file
    except OSError as error:
        raise UsageError(f"{path} cannot be opened ({error.strerror}); give another --out") from error
    with os.fdopen(descriptor) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            text = f"another process works on {folder}; wait for it, give another --out, or share one --storage"
            raise UsageError(text) from None
        yield


class SharedLedger:
    """Cells as trials of an Optuna study in a database: sqlite on one machine, PostgreSQL or MySQL on several.

    Every worker claims a cell by adding a running trial with the cell's name. Where two do so at once, the trial with
    the lower number has it. A worker that dies stops giving signs of life; its trial is failed by whoever looks next,
    and its cell is free again. Results are kept in the database, so no file system is shared.
    storage: SQLAlchemy URL (`sqlite:///study.db`). name: name of the study. heartbeat_seconds: time between two
    signs of life.
    Raises UsageError where Optuna is missing or the storage cannot be opened.
    """

    def __init__(self, storage: str, name: str, *, heartbeat_seconds: int = HEARTBEAT_SECONDS):
        try:
            import optuna
        except ImportError as error:
            raise UsageError('--storage needs the package optuna: pip install "seqkit[compare]"') from error
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: Any = optuna
        try:
            with self._without_warnings():
                self._storage: Any = optuna.storages.RDBStorage(
                    storage, heartbeat_interval=heartbeat_seconds, grace_period=6 * heartbeat_seconds
                )
            self._study: Any = optuna.create_study(storage=self._storage, study_name=name, load_if_exists=True)
        except Exception as error:  # SQLAlchemy has many, and the packages of databases have their own
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise UsageError(f"--storage {storage} cannot be opened: {first}") from error
        self._mine: dict[str, Any] = {}  # by cell: the id of its trial
        self._stopped = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat, args=(heartbeat_seconds,), daemon=True)
        self._heartbeat.start()

    def results(self) -> dict[str, dict[str, Any]]:
        """The result of every cell that ended on any worker; of two results, the one of the lower trial."""
        state = self._optuna.trial.TrialState.COMPLETE
        found: dict[str, dict[str, Any]] = {}
        for trial in self._study.get_trials(deepcopy=False, states=(state,)):
            found.setdefault(trial.user_attrs["cell"], json.loads(trial.user_attrs["result"]))
        return found

    def claim(self, cell_id: str) -> bool:
        """True if this worker has the cell now."""
        states = self._optuna.trial.TrialState
        self._fail_the_dead()
        if self._owner(cell_id) is not None:
            return False
        number = self._add_running(cell_id)
        if self._owner(cell_id) != number:
            self._study.tell(number, state=states.FAIL, skip_if_finished=True)
            return False
        self._mine[cell_id] = number
        return True

    def store(self, cell_id: str, result: Mapping[str, Any]) -> None:
        """Write the result into the study."""
        number = self._mine.pop(cell_id)
        trial_id = self._trial_id(number)
        self._storage.set_trial_user_attr(trial_id, "result", json.dumps(result))
        # the value is no use to us, and Optuna fails a trial whose value is not finite
        self._study.tell(number, values=0.0, skip_if_finished=True)

    def release(self, cell_id: str) -> None:
        """Fail this worker's trial, so that another takes the cell."""
        number = self._mine.pop(cell_id, None)
        if number is not None:
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL, skip_if_finished=True)

    def close(self) -> None:
        """End the signs of life."""
        self._stopped.set()
        self._heartbeat.join()

    def _add_running(self, cell_id: str) -> int:
        trial = self._optuna.trial.create_trial(
            state=self._optuna.trial.TrialState.RUNNING, user_attrs={"cell": cell_id}
        )
        trial_id = self._storage.create_new_trial(self._study._study_id, template_trial=trial)
        self._storage.record_heartbeat(trial_id)
        return int(self._storage.get_trial(trial_id).number)

    def _owner(self, cell_id: str) -> int | None:
        """The number of the first trial that runs or completed the cell."""
        states = self._optuna.trial.TrialState
        trials = self._study.get_trials(deepcopy=False, states=(states.RUNNING, states.COMPLETE))
        return min((t.number for t in trials if t.user_attrs.get("cell") == cell_id), default=None)

    def _trial_id(self, number: int) -> int:
        return int(self._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number))

    def _fail_the_dead(self) -> None:
        with self._without_warnings():
            self._optuna.storages.fail_stale_trials(self._study)

    @contextmanager
    def _without_warnings(self) -> Iterator[None]:
        """Optuna calls its heartbeat experimental, each time."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            yield

    def _beat(self, seconds: int) -> None:
        while not self._stopped.wait(seconds):
            for number in list(self._mine.values()):
                try:
                    self._storage.record_heartbeat(self._trial_id(number))
                except Exception as error:  # a database that is away for a while
                    log.warning("no sign of life was written: %s", error)
                    time.sleep(seconds)


Ledger = FolderLedger | SharedLedger
"""Record of the cells that have a result, and of those that are running."""
