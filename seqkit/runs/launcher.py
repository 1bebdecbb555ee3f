"""Processes that torchrun or srun started, against those that a trainer's settings ask for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from seqkit.errors import UsageError


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


def _launched() -> tuple[str, int, int]:
    """What started the processes of this command ("": nothing), how many there are, and on how many hosts."""
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
