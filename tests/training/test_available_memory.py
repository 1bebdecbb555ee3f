"""Memory is bounded by the machine, by the limit of the process, and by every control group around it."""

import sys
from pathlib import Path

import pytest
from reliability.forked import forked

from seqkit.training import available_memory as memory
from seqkit.training.available_memory import available_memory, total_memory

LARGE = 2**50


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A machine of 1 PB in files; makes control groups: folder, limit and what is used, of version 1 or 2."""
    (tmp_path / "meminfo").write_text(f"MemTotal: {2 * LARGE // 1024} kB\nMemAvailable: {LARGE // 1024} kB\n")
    (tmp_path / "own").write_text("4:cpu,memory:/outer/inner\n1:name=systemd:/x\n0::/slice/job\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "groups")

    def group(path, limit, used, cached=0, old=False):
        folder = tmp_path / "groups" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ("memory.limit_in_bytes" if old else "memory.max")).write_text(f"{limit}\n")
        (folder / ("memory.usage_in_bytes" if old else "memory.current")).write_text(f"{used}\n")
        name = "total_inactive_file" if old else "inactive_file"
        (folder / "memory.stat").write_text(f"anon 5\n{name} {cached}\n")

    return group


def test_without_a_limit_it_is_what_the_machine_has_left(files):
    assert available_memory("cpu") == ("this machine", LARGE)
    files("", "max", 7)
    files("memory", 9223372036854771712, 7, old=True)
    assert available_memory("cpu") == ("this machine", LARGE)


@pytest.mark.parametrize(
    ("path", "old"),
    [("", False), ("slice", False), ("slice/job", False), ("memory", True), ("memory/outer", True),
     ("memory/outer/inner", True)],
)  # fmt: skip
def test_every_group_around_the_process_bounds_it(files, path, old):
    files(path, 10_007, 1_000, old=old)
    assert available_memory("cpu") == ("this machine", 9_007)
    assert total_memory() == 10_007
    files(path, 10_007, 1_000, cached=300, old=old)
    assert available_memory("cpu") == ("this machine", 9_307)


def test_a_group_that_the_process_is_not_in_bounds_nothing(files):
    files("slice/other", 10_007, 1_000)
    assert available_memory("cpu") == ("this machine", LARGE)


def test_a_group_over_its_limit_leaves_nothing(files):
    files("", 1_000, 1_013)
    assert available_memory("cpu") == ("this machine", 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking where torch's threads wait
@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited on Linux")
def test_a_limit_on_the_address_space_bounds_both(tmp_path):
    def work():
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + 2**30
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        print(available_memory("cpu")[1] <= 2**30, total_memory() <= limit)

    assert forked(work, tmp_path).said.split() == ["True", "True"]
