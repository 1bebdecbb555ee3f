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

from seqkit.errors import DataError, LogFormatter, UsageError
from seqkit.files import open_to_append, read_mapping
from seqkit.registry.builtin import BUILT_IN
from seqkit.registry.lookup import components
from seqkit.training.checkpoint_files import FOLDER, checkpoints

log = logging.getLogger("seqkit")

FOLDER_OF_RANKS = "SEQKIT_RUN_FOLDER"
"""Environment variable by which the first process tells the others of a distributed run its folder."""

CONFIG, STATE, SUMMARY = "config.yaml", "state.json", "summary.json"

WAIT_SECONDS = 10.0
"""Seconds to wait for a folder in use: workers of a killed run end a moment after it."""


def rank() -> int:
    """Number of this process in a distributed run, before torch knows of one; 0 otherwise."""
    for name in ("RANK", "LOCAL_RANK"):
        if (value := os.environ.get(name, "")).isdigit():
            return int(value)
    is_interactive = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    is_task = os.environ.get("SLURM_NTASKS", "1") != "1" and not is_interactive
    value = os.environ.get("SLURM_PROCID", "")
    return int(value) if is_task and value.isdigit() else 0


def new_folder(recipe: str, root: Path = Path("runs")) -> Path:
    """Make a folder `root/recipe/time`, which did not exist: runs started in one second get one each.

    Raises UsageError if it cannot be made.
    """
    if rank() > 0:  # it writes nothing itself; where the first process cannot tell its folder, Lightning does later
        return Path(os.environ.get(FOLDER_OF_RANKS, root / recipe / f"of-rank-{rank()}"))
    stamp, again = datetime.now().strftime("%Y-%m-%d-%H%M%S"), 1
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
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if is_unfinished(folder):
        done = next((f" (a checkpoint after step {one.step})" for one in checkpoints(folder / FOLDER)), "")
        raise UsageError(f"{folder} holds an unfinished run{done}; go on with: seqkit fit --resume {folder}")
    raise UsageError(f"{folder} exists already, and a run is never overwritten; give another --out")


def is_unfinished(folder: Path) -> bool:
    """Whether a run began there and has not trained to its end; one that diverged has not."""
    if not (folder / CONFIG).is_file():
        return False
    return not (folder / SUMMARY).is_file() or read_mapping(folder / SUMMARY).get("state") == "diverged"


def newest(recipe: str, root: Path = Path("runs"), among: Callable[[Path], bool] = lambda _: True) -> Path | None:
    """Newest run of a recipe in `root/recipe` among those that are wanted."""
    folders = [path.parent for path in (root / recipe).glob(f"*/{CONFIG}")]
    return max(filter(among, folders), key=lambda folder: (folder / CONFIG).stat().st_mtime, default=None)


def newest_unfinished(recipe: str, root: Path = Path("runs")) -> Path | None:
    """Newest unfinished run of a recipe in `root/recipe` that has a checkpoint."""
    return newest(recipe, root, lambda folder: is_unfinished(folder) and bool(checkpoints(folder / FOLDER)))


def check_no_links(folder: Path) -> None:
    """Raise DataError if a run folder holds a link: what is written to it would land in a file outside.

    Weights & Biases makes links of its own below `wandb`, which have to point into the folder. The cache of Hugging
    Face's hub is links to the folder `blobs` beside it, and nothing is written to it.
    """
    top = folder.resolve()
    blobs = top.parent.parent / "blobs" if top.parent.name == "snapshots" else None
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            is_inside = "wandb" in path.relative_to(folder).parts[:1] and path.resolve().is_relative_to(top)
            if path.is_symlink() and not is_inside and path.resolve().parent != blobs:
                raise DataError(
                    f"{path} is a link, and links in run folders are refused: they could lead to any file; "
                    "put a copy of what it points to in its place"
                )


def plugin_digests(config: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of each Python file, not seqkit's, with a component of this configuration, by the name of its module."""
    names, found = set(_strings(config)), {}
    for kind, built_in in BUILT_IN.items():
        for component in components(kind).values():
            if component in built_in or component.name.lower() not in names:
                continue
            module = component.path.partition(":")[0]
            with suppress(ImportError, ValueError, OSError):  # a module without a file, as in a notebook
                file = getattr(sys.modules.get(module), "__file__", None) or getattr(find_spec(module), "origin", None)
                found[module] = sha256(Path(file or ""))
    return found


@contextmanager
def naming_plugins(folder: Path) -> Iterator[None]:
    """Turns the UsageError of a component that does not exist into one that names the run's plug-ins to be given."""
    try:
        yield
    except UsageError as error:
        known = read_mapping(folder / STATE).get("plugins") if (folder / STATE).is_file() else None
        missing = sorted(name for name in known if name not in sys.modules) if isinstance(known, dict) else []
        if not missing or "there is no " not in str(error):
            raise
        flags = " ".join(f"--plugin {name.replace('.', '/')}.py" for name in missing)
        raise UsageError(
            f"{folder} was trained with {', '.join(missing)}, which has its own components and is not loaded; add "
            f"{flags} (in Python: import {', '.join(missing)})"
        ) from error


def changed_plugins(folder: Path, config: Mapping[str, Any], *, partly: bool = False) -> str:
    """How the plug-ins differ from those with which the run began, as "the plug-in A has changed"; empty if as then.

    They are compared by content: a file may have moved, or have another name.
    partly: True: not all components of the run are needed (to predict takes no data source), so a plug-in that is not
    loaded is no change.
    """
    known, now = read_mapping(folder / STATE).get("plugins"), plugin_digests(config)
    if not isinstance(known, dict):  # a run from before they were recorded
        return ""
    gone = {name for name, digest in known.items() if digest not in now.values()}
    if partly and now.keys() <= known.keys():
        gone = {name for name in gone if name in now or name in sys.modules}
    new = {name for name, digest in now.items() if digest not in known.values()}
    if changed := gone & new:
        return f"the plug-in {', '.join(sorted(changed))} has changed"
    before, after = (", ".join(sorted(names)) for names in (gone, new))
    if before and after:
        return f"the plug-in {before} was replaced by {after}"
    return f"the plug-in {before or after} was {'removed' if before else 'added'}" if before or after else ""


def _strings(config: Any) -> Iterator[str]:
    """Yield all values of a configuration that may be names of components, in lower case."""
    if isinstance(config, str):
        yield config.lower()
    elif isinstance(config, Mapping | list | tuple):
        for item in config.values() if isinstance(config, Mapping) else config:
            yield from _strings(item)


@contextmanager
def opened(folder: Path, is_started: Callable[[], bool]) -> Iterator[None]:
    """Hold a run's folder, which is made if it is missing, against other processes.

    A new folder is removed if an error comes before `is_started()`. Raises UsageError if another process has it for
    more than WAIT_SECONDS, or it cannot be made, DataError if it holds a link.
    """
    parents = [path for path in folder.parents if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_no_links(folder)
        lock = _locked(folder)
    except OSError as error:
        _remove_empty(parents)
        raise _unmakeable(folder, error) from error
    with lock:
        was_there = (folder / CONFIG).exists()  # asked now: another process may have begun a run while this one waited
        try:
            yield
        except BaseException:
            if not was_there and not is_started():
                shutil.rmtree(folder, ignore_errors=True)
                _remove_empty(parents)
            raise
        finally:
            (folder / ".lock").unlink(missing_ok=True)


def _locked(folder: Path) -> FileIO:
    """Lock file of a folder, locked. Raises UsageError if another process keeps it."""
    path, deadline = folder / ".lock", time.monotonic() + WAIT_SECONDS
    while True:
        lock = open_to_append(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.fstat(lock.fileno()).st_ino == path.stat().st_ino:
                return lock  # else its last owner has removed it meanwhile
        except OSError as error:
            if time.monotonic() > deadline:
                lock.close()
                raise UsageError(f"{folder} is in use by another process; wait for it, or stop it") from error
        lock.close()
        time.sleep(0.05)


def is_held(lock: Path, *, seconds: float = 0.0) -> bool:
    """Whether a process still holds the lock of a run's folder after these seconds."""
    deadline = time.monotonic() + seconds
    while lock.is_file():  # to open a FIFO would wait
        try:
            with lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except OSError:
            if time.monotonic() >= deadline:
                return True
        time.sleep(0.05)
    return False


def sha256(path: Path) -> str:
    """SHA-256 of a small file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_as_trained(folder: Path, summary: Mapping[str, Any]) -> None:
    """Raise DataError if configuration or state of a trained run have another SHA-256 than its summary keeps.

    This finds damage, not forgery: whoever changes a file can change the summary, too.
    """
    for file, key in ((folder / CONFIG, "config_sha256"), (folder / STATE, "state_sha256")):
        if key in summary and summary[key] != sha256(file):
            raise DataError(f"{file} has changed since training: its SHA-256 is not the one in summary.json")


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Append the log of seqkit and Lightning to a file inside this context."""
    handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(LogFormatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    watched = [logging.getLogger(name) for name in ("seqkit", "pytorch_lightning")]
    log.setLevel(logging.INFO)
    for logger in watched:
        logger.addHandler(handler)
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception):
            log.exception("the run stopped")
        else:
            log.info("the run stopped: %s", error)
        raise
    finally:
        for logger in watched:
            logger.removeHandler(handler)
        with suppress(OSError):
            handler.close()


class _LogFile(logging.FileHandler):
    """Log file that shows warnings on stderr, too, and whatever cannot be written, such as that the disk is full."""

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(BufferedWriter(open_to_append(Path(self.baseFilename))), encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        # an error with a traceback ends the run, and the command says why
        if record.name == "seqkit" and not record.exc_info:
            _show(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
        elif record.name != "seqkit":  # `emit` shows ours, and the command says why a run ends
            _show(record)


def _show(record: logging.LogRecord) -> None:
    shown = logging.lastResort
    if shown is not None and record.levelno >= shown.level:
        shown.handle(record)


def _unmakeable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"the run folder {folder} cannot be made ({error.strerror}); give another --out")


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # not empty: another run has made its folder there
            folder.rmdir()
