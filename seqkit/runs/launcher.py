"""Processes that torchrun or srun started, and started again, against those that settings ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqkit.errors import LostProcessError, UsageError
from seqkit.training.checkpoint_files import FOLDER, checkpoints


def check_world(trainer: Mapping[str, Any], *, resume: bool = False) -> None:
    """Raise UsageError if torchrun or srun started another number of processes than the settings of a trainer say.

    Each process would train alone, and all of them write one folder. resume: the settings are those of a run that
    began, which cannot change.
    """
    launcher, started, num_nodes = _launched()
    devices, hosts = trainer.get("devices", "auto"), trainer.get("num_nodes", 1)
    if not launcher or started == (given := _number_of(devices, trainer.get("accelerator", "auto")) * hosts):
        return
    told = f"{launcher} started {started} process{'es' if started > 1 else ''}, "
    told += f"and trainer.devices {devices} x trainer.num_nodes {hosts} is {given}"
    if resume:
        raise UsageError(f"{told} in this run; start {given} to resume it")
    words = f"--trainer.devices {started // num_nodes}"
    words += f" --trainer.num_nodes {num_nodes}" if num_nodes != hosts else ""
    raise UsageError(f"{told}; add {words}")


LOST = (
    "closed by peer", "reset by peer", "Broken pipe",
    "NCCL communicator was aborted", "remote process exited", "remote error",
)  # fmt: skip
"""Words by which gloo and NCCL say that another process is gone; those of NCCL are from its documentation, untested."""


@contextmanager
def telling_of_lost_processes(folder: Path) -> Iterator[None]:
    """Raises LostProcessError, in one line, for what gloo or NCCL raise if another process of a run died."""
    try:
        yield
    except RuntimeError as error:
        if not any(words in str(error) for words in LOST):
            raise
        has_checkpoint = bool(checkpoints(folder / FOLDER))
        advice = (
            f"go on with: seqkit fit --resume {folder}" if has_checkpoint else "there is no checkpoint; train again"
        )
        raise LostProcessError(f"another process of this run died; {advice}") from error


def is_restarted() -> bool:
    """Whether SLURM requeued the job of this command, or torchrun started it again."""
    return _count("SLURM_RESTART_COUNT", 0) > 0 or _count("TORCHELASTIC_RESTART_COUNT", 0) > 0


def _launched() -> tuple[str, int, int]:
    """Launcher of the processes of this command ("": none), their number, and the number of hosts."""
    by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    started = _count("WORLD_SIZE")
    if by_torchrun or ("LOCAL_RANK" in os.environ and started > 1):
        return "torchrun" if by_torchrun else "the launcher", started, started // _count("LOCAL_WORLD_SIZE", started)
    is_interactive = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    # a batch script that calls no srun has SLURM_NTASKS, too, and is one process
    if _count("SLURM_NTASKS") > 1 and "SLURM_STEP_ID" in os.environ and not is_interactive:
        return "srun", _count("SLURM_NTASKS"), _count("SLURM_NNODES")
    return "", 1, 1


def _count(name: str, default: int = 1) -> int:
    """Environment variable that holds a number from 1; the default if it holds none."""
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() and int(value) else default


def _number_of(devices: Any, accelerator: str) -> int:
    """Devices of a host that `trainer.devices` asks for, as Lightning counts them."""
    if isinstance(devices, list):
        return len(devices)
    if isinstance(devices, str) and "," in devices:
        return len([one for one in devices.split(",") if one.strip()])
    if str(devices) not in ("auto", "-1"):
        return int(devices) if str(devices).isdigit() else 1
    import torch

    return torch.accelerator.device_count() if accelerator != "cpu" and torch.accelerator.is_available() else 1
