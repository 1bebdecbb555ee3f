"""Two processes that get the environment that `srun` gives its tasks; no SLURM is needed."""

import os
import signal
import socket
import warnings

import pytest
import torch
from reliability.forked import command, started
from runs.two_processes import FSDP, SMALL, WORDS, end_of, needs_forks, sends, start

from seqkit.files import read_mapping

pytestmark = [pytest.mark.slow, needs_forks]


def variables():
    """What `srun --ntasks-per-node 2` gives each of its two tasks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train",
        "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1",
        "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost",
    }  # fmt: skip
    return [common | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(2)]


def forked_task(words, folder, rank, own):
    """A task that is forked from this process, so that it imports nothing."""

    def work():
        torch.set_num_threads(1)
        warnings.simplefilter("default")
        os.environ |= own
        os.chdir(folder)
        return command("fit", *words)()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking where torch's threads wait
        return started(work, folder / f"said-{rank}")


def test_the_signal_before_the_time_limit_is_code_138_and_the_same_command_goes_on(
    text_file, tmp_path
):
    """SLURM's `--signal USR1@…` reaches all tasks; Lightning's own requeueing does not take the signal from us."""
    words = [
        *WORDS,
        *SMALL,
        *FSDP,
        *sends(tmp_path),
        "--data",
        text_file,
        "--trainer.max_steps",
        "12",
    ]
    words += ["--trainer.checkpoint_every_n_steps", "3", "--resume", "auto", "--out", "mine"]
    limit = {"SENT": "SIGUSR1", "SENT_TO": "01"}
    first, second = [start(words, tmp_path, **own, **limit) for own in variables()]
    first, second = end_of(first), end_of(second)
    assert (first.code, second.code) == (128 + signal.SIGUSR1, 0) == (138, 0), (
        first.said,
        second.said,
    )
    again = [forked_task(words, tmp_path, rank, own) for rank, own in enumerate(variables())]
    ended = [task.ended() for task in again]
    assert [one.code for one in ended] == [0, 0], ended
    summary = tmp_path / "mine" / "summary.json"
    assert read_mapping(summary)["state"] == "finished"
    assert read_mapping(summary)["steps"] == 12
