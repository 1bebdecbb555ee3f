"""Runs of two processes on the CPU, forked from the one that tests so that they import nothing."""

import csv
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
from reliability.forked import SECONDS, Ended, command
from reliability.in_processes import ranks
from runs.stopping import with_callback

from seqkit.runs.mixture import load

needs_forks = pytest.mark.skipif(
    sys.platform != "linux" or torch.accelerator.is_available(),
    reason="forks, and torch refuses a backward pass in a fork where there is an accelerator",
)

WORDS = [
    "text/char-lm", "--preset", "debug", "--data.window", "9", "--data.limit", "32", "--trainer.accelerator", "cpu",
    "--trainer.enable_progress_bar", "false", "--model.backbone.dim", "16", "--trainer.log_every_n_steps", "1",
]  # fmt: skip
SMALL = ["--data.batch_size", "4", "--data.valid_fraction", "0.1", "--model.backbone.depth", "1"]
DDP = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
FSDP = ["--trainer.devices", "2", "--trainer.strategy", "fsdp"]


def forked_fits(words, number=2, callbacks=()):
    """How the processes of one `seqkit fit` ended, which are told their ranks as torchrun tells them.

    callbacks: of the processes, by rank.
    """

    def work(rank):
        torch.set_num_threads(1)
        warnings.simplefilter("default")  # a test runner makes them errors
        if rank not in dict(callbacks):
            return command("fit", *words)()
        with with_callback(dict(callbacks)[rank]):
            return command("fit", *words)()

    with tempfile.TemporaryDirectory() as said, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking where torch's threads wait
        return [process.ended() for process in ranks(work, number, Path(said))]


def fitted(words, number=2) -> str:
    """What the first process said of a run that went well."""
    ended = forked_fits(words, number)
    assert [one.code for one in ended] == [0] * number, ended
    return ended[0].said


def stopped(words, whom, kick) -> Ended:
    """How the first process ended where that one of the two sent itself a signal."""
    return forked_fits(words, callbacks={whom: kick})[0]


def weights(folder):
    return load(folder).model.state_dict()


def check_alike(one, other):
    """Two state dicts that differ by the order of sums alone."""
    assert one.keys() == other.keys()
    for name in one:
        difference, size = (one[name] - other[name]).abs().max(), one[name].abs().max()
        assert float(difference) <= 1e-4 * max(float(size), 1e-2), name


def logged(folder):
    """What was logged of loss and gradient, by step and column."""
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = ("train/loss", "train/grad_norm", "valid/loss", "valid/accuracy")
    return {
        (int(row["step"]), name): float(row[name]) for row in rows for name in columns if row[name]
    }


SENDS = """
import os
import signal
import time
from pathlib import Path

from pytorch_lightning import Callback

from seqkit.registry import register


@register("callback")
class Sends(Callback):
    def on_before_optimizer_step(self, trainer, module, optimizer):
        if trainer.global_step == 6 and str(trainer.global_rank) in os.environ.get("SENT_TO", ""):
            number = signal.Signals[os.environ["SENT"]]
            if "WORKERS" in os.environ:
                children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
                assert len(children) >= 2
                for child in children:
                    os.kill(int(child), number)
                time.sleep(0.3)  # a worker that dies of it is noticed before this process has its own
            os.kill(os.getpid(), number)
"""
"""A plug-in: in the seventh step, the processes of the ranks in SENT_TO get the signal SENT, by themselves."""


def sends(folder):
    """Words that give a run the callback above."""
    (folder / "sends.py").write_text(SENDS)
    return ["--plugin", str(folder / "sends.py"), "--trainer.callbacks", "[Sends]"]


def start(words, folder, **variables):
    """`seqkit fit` in a process of its own, with the default handlers of signals and these environment variables."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK")}
    return subprocess.Popen(
        [sys.executable, "-m", "seqkit", "fit", *words], cwd=folder, env={**kept, "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGTERM, signal.SIGINT)],
    )  # fmt: skip


def end_of(process) -> Ended:
    """Of a process that was started."""
    try:
        said = process.communicate(timeout=SECONDS)[1]
    finally:
        process.kill()
    return Ended(process.returncode, said)
