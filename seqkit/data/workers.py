"""Processes and threads that prepare data beside the training."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from seqkit.errors import SIGNALS

MAX_WORKERS = 16

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processor time in a period, and the period."""


def available_cores() -> int:
    """Cores that this process may use: its affinity (SLURM sets it), within a container's quota (cgroup v2)."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or its quota is "max"
        return cores


def num_workers() -> int:
    """Processes that encode beside this one: a core each; 0 where there is one, or this process may start none."""
    cores = available_cores()
    if cores == 1 or multiprocessing.current_process().daemon:
        return 0
    return min(cores, MAX_WORKERS)


def loader_options(number: int) -> dict[str, Any]:
    """Arguments of a torch DataLoader with so many worker processes that yields the items of its data set unchanged."""
    return {
        "batch_size": None,
        "num_workers": number,
        "collate_fn": _unchanged,
        "pin_memory": torch.cuda.is_available(),
        "worker_init_fn": heed_parent_alone if number else None,
        # torch draws a seed for workers in each pass: not from dropout's numbers
        "generator": torch.Generator(),
    }


def heed_parent_alone(_: int = 0) -> None:
    """Let this worker process end at a SIGTERM of its parent (on Linux), and at no other signal that stops a run.

    Terminals and batch systems signal every process of a run; a worker that ended then would make torch raise in the
    middle of the last step. torch ends workers whose parent has ended, even by kill -9, within 5 seconds.
    """
    for number in SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_at_parents_word, daemon=True).start()


def _end_at_parents_word() -> None:
    """Wait for a SIGTERM of the parent, which ends its workers so when it exits with an error."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch's CPU operations use one thread; afterwards as many as before.

    Encoding a clip of 4,000 samples takes 0.2 ms with one thread; with two, on a busy machine of two cores, 14 ms: the
    threads wait for each other.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _unchanged(item: Any) -> Any:
    return item
