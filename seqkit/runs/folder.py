"""Run folders: make them, find unfinished ones, lock them."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib.util import find_spec
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import Any

from seqkit.config.record import Config, walk
from seqkit.errors import DataError, LogFormatter, UsageError, one_line
from seqkit.files import open_to_append, read_mapping
from seqkit.registry.builtin import BUILT_IN
from seqkit.registry.commands import command
from seqkit.registry.lookup import components
from seqkit.runs.launcher import rank
from seqkit.training.checkpoint_files import sweep

log = logging.getLogger("seqkit")

CONFIG = "config.yaml"
STATE = "state.json"
SUMMARY = "summary.json"

GIVEN = "given"
"""Key of `state.json`: what was given, by dotted key, where the data source or `auto` decided otherwise."""

MADE_IN = "made_in"
"""Key of `state.json`: the folder in which a run was begun, as seen from the run's own."""

PATHS = ("path", "folder", "test", "valid")
"""Keys of a data source whose values may be paths, relative to the folder in which a run was begun."""

WAIT_SECONDS = 10.0
"""Seconds to wait for a folder in use: workers of a killed run end a moment after it."""


def new_folder(recipe: str, root: Path = Path("runs")) -> Path:
    """Make a folder `root/recipe/time`, which did not exist: runs started in one second get one each.

    Raises UsageError if it cannot be made.
    """
    # it writes nothing itself, and Lightning tells it the folder of the first process
    if rank() > 0:
        return root / recipe / f"of-rank-{rank()}"
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    again = 1
    while True:
        folder = root / recipe / (stamp if again == 1 else f"{stamp}-{again}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            again += 1
        except OSError as error:
            raise _unmakeable(folder, error) from error
        else:
            return folder


def check_new(folder: Path) -> None:
    """Raise UsageError if a run would overwrite something; for an unfinished run, with the command that resumes it."""
    if is_unfinished(folder):
        raise UsageError(
            f"{folder} holds an unfinished run; go on with: {command('fit', '--resume', folder)}"
        )
    if folder.exists() and not (folder.is_dir() and set(folder.iterdir()) <= _remains(folder)):
        raise UsageError(
            f"{folder} exists already, and a run is never overwritten; give another folder"
        )


def is_unfinished(folder: Path) -> bool:
    """Whether a run began there and has not trained to its end."""
    return (folder / CONFIG).is_file() and not (folder / SUMMARY).is_file()


def _remains(folder: Path) -> set[Path]:
    """Files by which a process that was killed before its run began is to be known: `CONFIG` is written last."""
    begun = () if (folder / CONFIG).exists() else (folder / STATE,)
    return {*begun, *half_done(folder)}


def half_done(folder: Path) -> list[Path]:
    """The lock and the temporary files of processes that work in a folder, or were killed there."""
    return [*folder.glob(".lock"), *folder.glob(".*.part")]


def check_no_links(folder: Path) -> None:
    """Raise DataError if a link leads out of a run folder: what is written to it would land in a file outside.

    The cache of Hugging Face's hub is links to the folder `blobs` beside it, and nothing is written to it.
    """
    top = folder.resolve()
    blobs = top.parent.parent / "blobs" if top.parent.name == "snapshots" else None
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            # which does not fail where links lead to each other
            found = Path(os.path.realpath(path))
            if path.is_symlink() and not found.is_relative_to(top) and found.parent != blobs:
                raise DataError(
                    f"{path} is a link out of the run folder; put what it points to in its place"
                )


def plugin_digests(config: Config) -> dict[str, str]:
    """SHA-256 of each Python file, not seqkit's, with a component of this configuration, by the name of its module."""
    names = {value.lower() for _, value in walk(config) if isinstance(value, str)}
    found = {}
    for kind, built_in in BUILT_IN.items():
        for component in components(kind).values():
            if component in built_in or component.name.lower() not in names:
                continue
            module = component.path.partition(":")[0]
            # a module without a file, as in a notebook
            with suppress(ImportError, ValueError, OSError):
                file = getattr(sys.modules.get(module), "__file__", None) or getattr(
                    find_spec(module), "origin", None
                )
                found[module] = sha256(Path(file or ""))
    return found


def beside_learned(folder: Path, config: Config) -> dict[str, Any]:
    """Values of `state.json`, when a run begins, beside those learned from its data."""
    made_in = os.path.relpath(Path.cwd(), folder.resolve())
    return {"plugins": plugin_digests(config), MADE_IN: made_in}


def as_seen_from_here(config: Config, folder: Path) -> Config:
    """A run's configuration, in which paths of data that are not here lead to where the run was begun, if they do."""
    # a recipe of the user's has no state beside it
    made_in = read_mapping(folder / STATE).get(MADE_IN) if (folder / STATE).is_file() else None
    data = config.get("data")
    source = data.get("source") if isinstance(data, Mapping) else None
    if not isinstance(made_in, str) or not isinstance(source, Mapping):
        return config

    def seen(value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            return {name: seen(below, name) for name, below in value.items()}
        if isinstance(value, list):
            return [seen(one, key) for one in value]
        if key not in PATHS or not isinstance(value, str) or Path(value).exists():
            return value
        there = folder / made_in / value
        return os.path.normpath(there.resolve()) if there.exists() else value

    found = seen(source)
    if found == source:
        return config
    return config.changed({"data.source": found})


def changed_plugins(folder: Path, config: Config) -> list[str]:
    """Plug-ins with components of this configuration whose content is not that with which the run began."""
    known = read_mapping(folder / STATE).get("plugins")
    if not isinstance(known, dict):  # an imported model has none
        return []
    return sorted(
        name for name, digest in plugin_digests(config).items() if digest not in known.values()
    )


def missing_plugins(folder: Path) -> str:
    """Words behind an error: the plug-ins that a run began with, and that this process has not imported."""
    known = read_mapping(folder / STATE).get("plugins") if (folder / STATE).is_file() else None
    names = known if isinstance(known, dict) else ()
    flags = [f"--plugin {one_line(name)}.py" for name in names if name not in sys.modules]
    return (
        f"; the run began with components of your own, give them: {' '.join(flags)}"
        if flags
        else ""
    )


@contextmanager
def opened(folder: Path, is_started: Callable[[], bool]) -> Iterator[None]:
    """Hold a run's folder, which is made if it is missing and cleared of what killed processes left, against others.

    What is new, the folder or files in it, is removed if an error comes before `is_started()`. Raises UsageError if
    another process has it for more than WAIT_SECONDS, or it cannot be made, DataError if a link leads out of it.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_no_links(folder)
        lock = _locked(folder)
    except OSError as error:
        raise _unmakeable(folder, error) from error
    with lock:
        sweep(folder)
        # asked now: another process may have begun a run while this one waited
        was_there = (folder / CONFIG).exists()
        try:
            yield
        except BaseException:
            if not was_there and not is_started():
                if is_new:
                    shutil.rmtree(folder, ignore_errors=True)
                else:  # an empty folder of the user's, which stays
                    _empty(folder)
            raise
        finally:
            (folder / ".lock").unlink(missing_ok=True)


def _empty(folder: Path) -> None:
    """Remove everything in a folder."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _locked(folder: Path) -> FileIO:
    """Lock file of a folder, locked. Raises UsageError if another process keeps it."""
    path = folder / ".lock"
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        lock = open_to_append(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.fstat(lock.fileno()).st_ino == path.stat().st_ino:
                return lock  # else its last owner has removed it meanwhile
        except OSError as error:
            if time.monotonic() > deadline:
                lock.close()
                raise UsageError(
                    f"{folder} is in use by another process; wait for it, or stop it"
                ) from error
        lock.close()
        time.sleep(0.05)


def sha256(path: Path) -> str:
    """SHA-256 of a small file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


DIGESTED = {"config_sha256": CONFIG, "state_sha256": STATE}
"""Key in `summary.json` and in checkpoints of a file's SHA-256, and the file."""


def digests(folder: Path) -> dict[str, Any]:
    """SHA-256 of a run's configuration and state, by their keys in `summary.json` and in checkpoints."""
    return {key: sha256(folder / file) for key, file in DIGESTED.items()}


def check_as_trained(folder: Path, known: Mapping[str, str | None]) -> None:
    """Raise DataError if configuration or state of a trained run have another SHA-256 than its summary keeps.

    This finds damage, not forgery: whoever changes a file can change the summary, too.
    """
    for key, digest in digests(folder).items():
        if known[key] not in (None, digest):
            raise DataError(
                f"{folder / DIGESTED[key]} has changed since training: its SHA-256 is not the one in {SUMMARY}"
            )


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Append the log of seqkit and Lightning to a file inside this context; seqkit's warnings go to stderr, too."""
    handler = _LogFile(TextIOWrapper(BufferedWriter(open_to_append(path)), encoding="utf-8"))
    handler.setFormatter(LogFormatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    # what shows warnings where there is no handler
    shown = logging.lastResort or logging.NullHandler()
    handlers = [(log, handler), (logging.getLogger("pytorch_lightning"), handler), (log, shown)]
    log.setLevel(logging.INFO)
    for logger, one in handlers:
        logger.addHandler(one)
    try:
        yield
    except (
        BaseException
    ) as error:  # the command says why the run ends; a traceback is for the file alone
        trace = sys.exc_info() if isinstance(error, Exception) else None
        end = {
            "name": "seqkit",
            "levelname": "ERROR",
            "msg": "the run stopped: %s",
            "args": (error,),
            "exc_info": trace,
        }
        handler.handle(logging.makeLogRecord(end))
        raise
    finally:
        for logger, one in handlers:
            logger.removeHandler(one)
        with suppress(OSError):
            handler.stream.close()


class _LogFile(logging.StreamHandler[TextIOWrapper]):
    """A log file that training goes on without where the disk is full."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def _unmakeable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"the run folder {folder} cannot be made ({error.strerror}); give another --out"
    )
