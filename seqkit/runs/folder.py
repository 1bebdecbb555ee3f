"""Run folders: new ones, unfinished ones, and what stands in the way of either."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from seqkit.errors import LogFormatter, UsageError
from seqkit.files import read_mapping
from seqkit.training.checkpoint_files import FOLDER, checkpoints

log = logging.getLogger("seqkit")

FOLDER_OF_RANKS = "SEQKIT_RUN_FOLDER"
"""Environment variable by which the first process tells the others of a distributed run its folder."""

CONFIG, STATE, SUMMARY = "config.yaml", "state.json", "summary.json"


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

    Raises UsageError where it cannot be made.
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
    """Raise UsageError where a run would overwrite something; an unfinished run is offered to go on with."""
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


def newest_unfinished(recipe: str, root: Path = Path("runs")) -> Path | None:
    """The unfinished run of a recipe in `root/recipe` that began last, and has a checkpoint."""
    folders = [path.parent for path in (root / recipe).glob(f"*/{CONFIG}")]
    waiting = [folder for folder in folders if is_unfinished(folder) and checkpoints(folder / FOLDER)]
    return max(waiting, key=lambda folder: (folder / CONFIG).stat().st_mtime, default=None)


@contextmanager
def opened(folder: Path, is_started: Callable[[], bool]) -> Iterator[None]:
    """Hold a run's folder, which is made where it is missing, against other processes.

    What was made is removed where an error comes before `is_started()`. Raises UsageError where another process has
    it, or it cannot be made.
    """
    parents = [path for path in folder.parents if not path.exists()]
    was_there = (folder / CONFIG).exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        _remove_empty(parents)
        raise _unmakeable(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"{folder} is in use by another process; wait for it, or stop it") from error
        try:
            yield
        except BaseException:
            if not was_there and not is_started():
                shutil.rmtree(folder, ignore_errors=True)
                _remove_empty(parents)
            raise
        finally:
            (folder / ".lock").unlink(missing_ok=True)


def is_held(lock: Path) -> bool:
    """Whether a process holds the lock of a run's folder."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def sha256(path: Path) -> str:
    """Of a small file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
    """Shows warnings on stderr, too, and whatever cannot be written, such as that the disk is full."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        # an error with a traceback ends the run, and the command says why
        if record.name == "seqkit" and not record.exc_info:
            _show(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
        elif record.name != "seqkit" or record.exc_info:  # `emit` shows the others
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
