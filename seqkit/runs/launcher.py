"""Processes of a distributed run: which one this is, and how many torchrun or srun started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqkit.errors import LostProcessError, UsageError


def rank() -> int:
    """Number of this process in a distributed run, before torch knows of one; 0 otherwise."""
    known = [
        value for name in ("RANK", "LOCAL_RANK") if (value := os.environ.get(name, "")).isdigit()
    ]
    return int(known[0]) if known else _of_srun("SLURM_PROCID", 0)


def check_world(num_processes: int) -> None:
    """Raise UsageError if torchrun or srun started another number of processes than a trainer expects.

    Each process would train alone, and all of them write one folder.
    """
    by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    if by_torchrun:
        started = int(os.environ.get("WORLD_SIZE", "1"))
    else:
        started = _of_srun("SLURM_NTASKS", num_processes)
    if started != num_processes:
        raise UsageError(
            f"{started} processes were started, and trainer.devices x trainer.num_nodes is {num_processes}; "
            "give --trainer.devices (of a host) and --trainer.num_nodes for as many"
        )


def _of_srun(name: str, default: int) -> int:
    """A number that srun gives each task; a batch script that calls no srun has SLURM_NTASKS, too, and is no task."""
    is_task = "SLURM_STEP_ID" in os.environ and os.environ.get("SLURM_JOB_NAME") not in (
        "bash",
        "interactive",
    )
    value = os.environ.get(name, "")
    return int(value) if is_task and value.isdigit() else default


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
            f"another process of this run died; go on with: seqkit fit --resume {folder}"
        ) from error
