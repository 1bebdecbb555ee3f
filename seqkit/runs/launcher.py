"""Processes of a distributed run: which one this is, and how many torchrun or srun started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqkit.errors import LostProcessError, UsageError
from seqkit.registry.commands import command

TORCHRUN = "TORCHELASTIC_RUN_ID"
"""Variable by which torchrun is known, to Lightning as to us."""


def rank() -> int:
    """Number of this process in a distributed run, as Lightning takes it, before torch knows of one; 0 otherwise.

    Raises UsageError for numbers of other processes that no launcher of Lightning's set, as in a stale shell: they
    would be believed by some and not by others.
    """
    if TORCHRUN in os.environ:
        return _number("RANK")
    if _is_task_of_srun():
        return _number("SLURM_PROCID")
    stray = {"RANK": 0}
    # else Lightning started this process itself
    if not {"LOCAL_RANK", "MASTER_PORT"} <= os.environ.keys():
        stray |= {"LOCAL_RANK": 0, "WORLD_SIZE": 1}
    if not _is_interactive():
        stray |= {"SLURM_NTASKS": 1}
    if wrong := [name for name, most in stray.items() if _number(name) > most]:
        said = ", ".join(f"{name}={os.environ[name]}" for name in wrong)
        raise UsageError(
            f"{said} in the environment, but neither torchrun nor srun started this process; start it with one of "
            f"them (docs/devices.md), or first type: unset {' '.join(wrong)}"
        )
    return _number("LOCAL_RANK")


def check_world(num_processes: int) -> None:
    """Raise UsageError if torchrun or srun started another number of processes than a trainer expects.

    Each process would train alone, and all of them write one folder.
    """
    started = num_processes
    if TORCHRUN in os.environ:
        started = _number("WORLD_SIZE", 1)
    elif _is_task_of_srun():
        started = _number("SLURM_NTASKS", num_processes)
    if started != num_processes:
        raise UsageError(
            f"{started} processes were started, and trainer.devices x trainer.num_nodes is {num_processes}; "
            "give --trainer.devices (of a host) and --trainer.num_nodes for as many"
        )


def _number(name: str, default: int = 0) -> int:
    """A number of the environment."""
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else default


def _is_task_of_srun() -> bool:
    """Whether srun started this process; a batch script that calls no srun has SLURM_NTASKS, too, and is no task."""
    return "SLURM_STEP_ID" in os.environ and not _is_interactive()


def _is_interactive() -> bool:
    return os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")


LOST = (
    "closed by peer",
    "reset by peer",
    "Broken pipe",
    "NCCL communicator was aborted",
    "remote process exited",
)
"""Words by which gloo and NCCL say that another process is gone; those of NCCL are from its documentation, untested."""


@contextmanager
def telling_of_lost_processes(folder: Path) -> Iterator[None]:
    """Raises LostProcessError, in one line, for what gloo or NCCL raise if another process of a run died."""
    try:
        yield
    except RuntimeError as error:
        if not any(words in str(error) for words in LOST):
            raise
        raise LostProcessError(
            f"another process of this run died; go on with: {command('fit', '--resume', folder)}"
        ) from error
