"""Worker processes end with their parent, however it ends."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from seqkit.data import workers
from seqkit.data.workers import available_cores, heed_parent_alone
from seqkit.errors import SIGNALS

STUCK = """
import os, sys, time
from pathlib import Path
from torch.utils.data import Dataset
from seqkit.data.batching import BatchLoader, LengthGroupedBatchSampler
from seqkit.data import encoding

class Stuck(Dataset):
    samples, split, lengths = [0] * 700, "training", [1] * 8
    def __len__(self): return 8
    def __getitem__(self, key): return self(key)
    def __call__(self, index):
        (Path(sys.argv[1]) / str(os.getpid())).touch()
        time.sleep(4 if sys.argv[2] == "loader" else 4 / 64)

stuck = Stuck()
if sys.argv[2] == "encoder":
    encoding.num_workers = lambda: 2
    next(encoding._chunks(stuck))
next(iter(BatchLoader(stuck, LengthGroupedBatchSampler(stuck.lengths, 2, shuffle=False), 2)))
"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait(for_what):
    deadline = time.monotonic() + 60
    while not for_what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("9000000 100000", 8)],
)
def test_a_containers_quota_bounds_the_cores(tmp_path, monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(workers, "QUOTA", tmp_path / "cpu.max")
    assert available_cores() == 8
    workers.QUOTA.write_text(quota + "\n")
    assert available_cores() == cores


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("of", ["encoder", "loader"])
def test_workers_of_a_killed_or_interrupted_parent_end_within_seconds(tmp_path, of, number):
    parent = subprocess.Popen(
        [sys.executable, "-c", STUCK, str(tmp_path), of],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait(lambda: len(list(tmp_path.iterdir())) == 2)
        pids = [int(path.name) for path in tmp_path.iterdir()]
        assert all(map(alive, pids))
        if number == signal.SIGINT:  # as a terminal sends it
            os.killpg(parent.pid, number)
        else:
            parent.send_signal(number)
        parent.wait(60)
        wait(lambda: not any(map(alive, pids)))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


def busy(ready):
    heed_parent_alone()
    ready.set()
    time.sleep(600)


@pytest.mark.skipif(sys.platform != "linux", reason="the sender of a signal is known on Linux")
def test_a_worker_ends_when_its_parent_asks_and_for_nobody_else():
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    worker = context.Process(target=busy, args=(ready,), daemon=True)
    worker.start()
    try:
        assert ready.wait(60)
        for number in SIGNALS:
            subprocess.run(["kill", f"-{int(number)}", str(worker.pid)], check=True)
        worker.join(0.5)
        assert worker.is_alive()
        worker.terminate()
        worker.join(10)
        assert not worker.is_alive()
    finally:
        worker.kill()
