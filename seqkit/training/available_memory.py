"""Memory that is left: of the machine, of the process's container, or of a GPU."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
"""Control group of version 2, which a container sees as the root of all."""


def available_memory(accelerator: str = "auto") -> tuple[str, int]:
    """Name of the memory that a training would take, and the bytes that are left of it now.

    accelerator: as in a recipe's trainer. On the CPU it is the least of what the machine could give without swapping,
    and of what the limits on the address space and on the container leave: the kernel kills a process that takes more,
    and no error can be caught. Cached files that were not used lately count as left.
    """
    import torch

    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "the GPU", int(torch.cuda.mem_get_info()[0])
    left = [2**62]
    if known := _number(MEMINFO, "MemAvailable:"):
        left.append(1024 * known)
    with suppress(OSError, ValueError):  # "max" is no number: no limit
        limit, used = (int((CGROUP / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
        left.append(limit - used + _number(CGROUP / "memory.stat", "inactive_file"))
    with suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            left.append(limit - pages * os.sysconf("SC_PAGE_SIZE"))
    return "this machine", max(0, min(left))


def _number(path: Path, key: str) -> int:
    """Number behind a key in a file of keys and numbers; 0 if there is none."""
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text(encoding="ascii").splitlines():
            if line.startswith(f"{key} "):
                return int(line.split()[1])
    return 0
