"""Memory of the machine, of the process's container, or of a GPU: all of it, and what is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
"""Limits of control groups on Linux: version 2 here, version 1 in the folder `memory`."""

OWN_CGROUPS = Path("/proc/self/cgroup")
"""Control groups of this process, one a line: number:controllers:path; version 2 has no controllers."""

MEMINFO = Path("/proc/meminfo")

FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Names of limit, use, and cached files in use, by version (the controllers of its line)."""


def total_memory() -> float:
    """Bytes that this process may have on the CPU: the machine's, or fewer by a limit; inf if unknown."""
    try:
        machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows
        machine = inf
    return min(machine, _process_limit()[0], *(limit for limit, _ in _container_limits()), inf)


def available_memory(accelerator: str = "auto") -> tuple[str, int]:
    """Name of the memory that a training would take, and the bytes that are left of it now.

    accelerator: as in a recipe's trainer. On the CPU it is the least of what the machine could give without swapping,
    what the limit on the address space leaves, and what the limits of its control group and of all around it leave:
    the kernel kills a process that takes more, and no error can be caught.
    """
    import torch

    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "the GPU", int(torch.cuda.mem_get_info()[0])
    machine = _number(MEMINFO, "MemAvailable:", 1024) or total_memory()
    left = min(machine, _process_limit()[1], *(left for _, left in _container_limits()), 2.0**62)
    return "this machine", int(max(0, left))


def _number(path: Path, key: str, unit: int = 1) -> int:
    """Number behind a key in a file of keys and numbers; 0 if there is none."""
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text(encoding="ascii").splitlines():
            if line.startswith(f"{key} "):
                return int(line.split()[1]) * unit
    return 0


def _process_limit() -> tuple[float, float]:
    """Limit on the address space and what it leaves (Linux, `ulimit -v`)."""
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            return limit, limit - pages * os.sysconf("SC_PAGE_SIZE")
    return inf, inf


def _container_limits() -> Iterator[tuple[float, float]]:
    """(limit, what is left below it) of this process's control groups, from its own to the root.

    Cached files that were not used lately count as left: the kernel gives them back first. A container usually sees its
    own group as the root, and then no folder of the path in /proc exists but that.
    """
    own = dict.fromkeys(FILES, "")
    with suppress(OSError, ValueError):
        for line in OWN_CGROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            for version in FILES:
                if version in controllers.split(",") and ".." not in path:
                    own[version] = path.strip("/")
    for version, (limit, used, cache) in FILES.items():
        root = CGROUPS / version
        for group in (root / own[version], *(root / own[version]).parents):
            with suppress(OSError, ValueError):  # "max" is no number: no limit
                most = int((group / limit).read_text(encoding="ascii"))
                now = int((group / used).read_text(encoding="ascii"))
                yield most, most - now + _number(group / "memory.stat", cache)
            if group == root:
                break
