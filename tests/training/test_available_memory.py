"""The memory that is left is the least of what the machine, the container and the process may have."""

import subprocess
import sys

import pytest

from seqkit.training import available_memory as memory
from seqkit.training.available_memory import available_memory


@pytest.fixture
def files(tmp_path, monkeypatch):
    """`/proc/meminfo` of a machine with 9,000 kB left, and an empty folder for its control group."""
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal: 10000 kB\nMemAvailable: 9000 kB\n")
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "left"), [("max", 9_000 * 1024), ("5000", 5000 - 1200 + 300), ("99999999", 9_000 * 1024), ("700", 0)]
)
def test_memory_that_is_left(files, limit, left):
    (files / "memory.max").write_text(limit)
    (files / "memory.current").write_text("1200")
    (files / "memory.stat").write_text("anon 900\ninactive_file 300\n")
    assert available_memory("cpu") == ("this machine", left)


def test_a_machine_that_says_nothing_has_no_limit(files):
    (files / "meminfo").unlink()
    assert available_memory("cpu") == ("this machine", 2**62)


@pytest.mark.skipif(sys.platform == "win32", reason="ulimit")
def test_the_limit_on_the_address_space_counts():
    code = """
import resource, torch
from seqkit.training.available_memory import available_memory
limit = 2**34
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(available_memory("cpu")[1] < limit)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
