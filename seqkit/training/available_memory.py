"""Memory of the machine, of the container that the process is in, or of a GPU: all of it, and what is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
"""Where Linux says how much memory a container may take: version 2 here, version 1 in the folder `memory`."""

OWN_CGROUPS = Path("/proc/self/cgroup")
"""Which of them this process is in, one a line: number:controllers:path; version 2 has no controllers."""

MEMINFO = Path("/proc/meminfo")

FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""By version (the controllers of its line): the limit, what is used, and what of that is cached files."""


def total_memory() -> float:
    """Bytes that this process may have on the CPU: the machine's, or fewer by a limit; inf where nothing says it."""
    try:
        machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows
        machine = inf
    limits = (limit for limit, _ in _container_limits())
    return min(machine, _process_limit()[0], *limits, inf)


def available_memory(accelerator: str = "auto") -> tuple[str, int]:
    """Which memory a training would take, and the bytes that are left of it now.

    accelerator: as in a recipe's trainer. On the CPU it is what the machine could give without swapping, what the limit
    on the address space leaves, and what the limits of its control group and of all around it leave, whichever is
    least: the kernel kills a process that takes more, and no error can be caught.
    """
    import torch

    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "the GPU", int(torch.cuda.mem_get_info()[0])
    left = (left for _, left in _container_limits())
    return "this machine", int(max(0, min(_machine_left(), _process_limit()[1], *left, 2.0**62)))


def _machine_left() -> float:
    with suppress(OSError, ValueError, IndexError):  # Linux: what could be had without swapping, caches included
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return total_memory()


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
    """(limit, what is left below it) of the own control group and of those around it.

    Cached files that were not used lately count as left: the kernel gives them back first.
    """
    for folder, (limit, used, cache) in _groups():
        with suppress(OSError, ValueError):  # "max" is no number: no limit
            most = int((folder / limit).read_text(encoding="ascii"))
            now = int((folder / used).read_text(encoding="ascii"))
            yield most, most - now + _cached(folder, cache)


def _cached(folder: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def _groups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Folders of this process's control groups, from its own to the root, and the names of their files.

    A container usually sees its own group as the root, and then no folder of the path in /proc exists but that.
    """
    own = dict.fromkeys(FILES, "")
    with suppress(OSError, ValueError):
        for line in OWN_CGROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            for version in FILES:
                if version in controllers.split(",") and ".." not in path:
                    own[version] = path.strip("/")
    for version, files in FILES.items():
        root = CGROUPS / version
        folder = root / own[version]
        for group in (folder, *folder.parents):
            yield group, files
            if group == root:
                break
