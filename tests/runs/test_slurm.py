"""Two processes that get the environment that `srun` gives its tasks; no SLURM is needed."""

import os
import signal
import socket
import subprocess
import sys
from functools import partial

import pytest
from runs.test_distributed import HAS_ACCELERATOR, SECONDS, WORDS, finished, fit, fork, text, wait_for

from seqkit.files import read_mapping

__all__ = ["text"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or (os.cpu_count() or 1) < 2, reason="needs two cores on Linux"),
]


def variables():
    """What `srun --ntasks-per-node 2` gives each of its two tasks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NAME": "train", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost",
    }  # fmt: skip
    return [common | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(2)]


def tasks(words, folder):
    """The tasks of `srun … seqkit fit …`, started in a folder."""
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK")}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "seqkit", "fit", *words], cwd=folder, env=environment | own,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for own in variables()
    ]  # fmt: skip


def ends_of_tasks(words, folder):
    """Exit codes of the tasks and what they said; they are forked from this process, so that they import nothing."""
    if HAS_ACCELERATOR:
        return [finished(task) for task in tasks(words, folder)]

    def work(own):
        os.environ |= own
        os.chdir(folder)
        return fit(words)

    processes = [fork(partial(work, own), folder / f"said-{rank}") for rank, own in enumerate(variables())]
    return [process.ended(SECONDS) for process in processes]


def test_the_signal_before_the_time_limit_is_code_138_and_the_same_command_goes_on(text, tmp_path):
    """SLURM's `--signal USR1@…` reaches all tasks; Lightning's own requeueing does not take the signal from us."""
    words = [*WORDS, "--data", text, "--trainer.max_steps", "60", "--trainer.checkpoint_every_n_steps", "7"]
    words += ["--trainer.devices", "2", "--trainer.strategy", "fsdp", "--resume", "auto"]
    first, second = tasks(words, tmp_path)
    wait_for(lambda: list(tmp_path.glob("runs/*/*/*/checkpoints/resume-*.json")), first)
    for task in (first, second):
        task.send_signal(signal.SIGUSR1)
    code, said = finished(first)
    assert code == 128 + signal.SIGUSR1 == 138, said
    assert finished(second)[0] == 0
    codes = ends_of_tasks(words, tmp_path)
    assert [code for code, _ in codes] == [0, 0], codes
    (summary,) = tmp_path.glob("runs/*/*/*/summary.json")
    assert read_mapping(summary)["state"] == "finished"
    assert read_mapping(summary)["steps"] == 60
