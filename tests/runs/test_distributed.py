"""Runs of two processes on the CPU: one folder, the arithmetic of one process, and an end for all when one fails."""

import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest
import torch
from reliability.forked import command, started
from reliability.in_processes import ranks

from seqkit.files import read_mapping
from seqkit.runs.mixture import load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or (os.cpu_count() or 1) < 2, reason="needs two cores on Linux"),
]

WORDS = [
    "text/char-lm", "--preset", "debug", "--data.window", "9", "--data.batch_size", "4", "--data.limit", "32",
    "--data.valid_fraction", "0.1", "--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false",
    "--model.backbone.dim", "16", "--model.backbone.depth", "1", "--trainer.log_every_n_steps", "1",
]  # fmt: skip
TWO = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
SECONDS = 240
HAS_ACCELERATOR = torch.accelerator.is_available()
"""Where there is one, torch refuses a backward pass in a process that is forked from one that had a backward pass."""


def without(words, *keys):
    """Words without some keys and their values; the first is the recipe."""
    return words[:1] + [
        word for key, value in zip(words[1::2], words[2::2]) if key not in keys for word in (key, value)
    ]


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text("To be, or not to be, that is the question.\n" * 60, encoding="utf-8")
    return str(tmp_path / "text.txt")


def start(*words, torchrun=False):
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK")}
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if torchrun else []
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "seqkit", "fit", *words], env=environment | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    )  # fmt: skip


def finished(process):
    _, said = process.communicate(timeout=SECONDS)
    return process.returncode, said


def fitted(*words, **more):
    code, said = finished(start(*words, **more))
    assert code == 0, said
    return said


def fit(words):
    """`seqkit fit` in a process that was forked from this one."""
    torch.set_num_threads(1)
    warnings.simplefilter("default")  # a test runner makes them errors
    return command("fit", *words)()


def fork(work, said):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking where torch's threads wait
        return started(work, said)


def forked(said, *words, number=2):
    """Processes of one `seqkit fit`, forked from this one, so that they import nothing.

    number: of processes that are told their ranks as torchrun tells them; 1: a process alone. said: folder of what
    they say.
    """
    if number == 1:
        return [fork(lambda: fit(words), said / "said-0")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return ranks(lambda rank: fit(words), number, said)


def fitted_by_forks(*words, number=2):
    if HAS_ACCELERATOR:
        return fitted(*words)
    with tempfile.TemporaryDirectory() as said:
        ended = [process.ended(SECONDS) for process in forked(Path(said), *words, number=number)]
    assert [one.code for one in ended] == [0] * number, ended
    return ended[0].said


def stopped_by_fork(whom, run, *words, signum=signal.SIGTERM):
    """How the first of two forked processes ended when one of them got a signal after the first checkpoint.

    whom: rank of that one. run: the folder of the run.
    """
    if HAS_ACCELERATOR:
        return stopped_by_start(whom, run, *words, signum=signum)
    with tempfile.TemporaryDirectory() as said:
        processes = forked(Path(said), *words)
        wait_for(lambda: list(run.glob("checkpoints/resume-*.json")))
        os.kill(processes[whom].pid, signum)
        ended = [process.ended(SECONDS) for process in processes]
    return ended[0]


def stopped_by_start(whom, run, *words, signum=signal.SIGTERM):
    """The same of processes of which the first starts the second."""
    process = start(*words)
    wait_for(lambda: list(run.glob("checkpoints/resume-*.json")), process)
    os.kill(child_of(process) if whom else process.pid, signum)
    return finished(process)


def weights(folder):
    return load(folder).model.state_dict()


def logged(folder):
    """What was logged of loss and gradient, by step and column."""
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = ("train/loss", "train/grad_norm", "valid/loss", "valid/accuracy")
    return {(int(row["step"]), name): float(row[name]) for row in rows for name in columns if row[name]}


def child_of(process):
    """The second process of a run that the first one started."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def wait_for(condition, process=None):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process is None or process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_processes_share_one_run_and_take_the_steps_of_as_many_micro_batches(text, tmp_path):
    """Batches k and k + 1 of one process are those of the two; the validation covers each window once.

    They are started by torchrun; in the other tests by the first of them, or forked.
    """
    words = [*WORDS, "--data", text, "--trainer.max_steps", "-1", "--trainer.max_epochs", "2"]
    words += ["--trainer.val_check_interval", "null", "--trainer.check_val_every_n_epoch", "1"]
    words += ["--optimizer", "torch.optim.SGD", "--optimizer.lr", "0.1"]
    fitted(*words, *TWO, "--out", str(tmp_path / "two"), torchrun=True)
    fitted_by_forks(*words, "--trainer.accumulate_grad_batches", "2", "--out", str(tmp_path / "one"), number=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "text.txt", "two"]
    summary = read_mapping(tmp_path / "two" / "summary.json")
    assert summary["steps"] == 2 * 4  # 32 windows in batches of 4, dealt to 2
    assert summary["tokens_seen"] == 2 * 32 * 9
    one, two = (weights(tmp_path / name) for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-5, msg=name)
    one_log, two_log = logged(tmp_path / "one"), logged(tmp_path / "two")
    assert two_log.keys() == one_log.keys()
    assert any(name == "valid/loss" for _, name in one_log)
    assert two_log == pytest.approx(one_log, rel=1e-4)


def test_a_signal_to_either_stops_both_processes_and_the_resumed_run_ends_as_the_whole_one(text, tmp_path):
    words = [*WORDS, "--data", text, "--trainer.max_steps", "60", "--trainer.checkpoint_every_n_steps", "7", *TWO]
    fitted_by_forks(*words, "--out", str(tmp_path / "whole"))
    whole = weights(tmp_path / "whole")
    for whom, stop in enumerate((stopped_by_start, stopped_by_fork)):  # the first starts the second; both are forked
        stopped = tmp_path / f"stopped-{whom}"
        code, said = stop(whom, stopped, *words, "--out", str(stopped))
        assert code == 128 + signal.SIGTERM, said
        assert f"go on with: seqkit fit --resume {stopped}" in said
        fitted_by_forks("--resume", str(stopped))
        resumed = weights(stopped)
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_process_that_is_killed_ends_the_others(text, tmp_path):
    words = [*WORDS, "--data", text, "--trainer.max_steps", "100000", "--trainer.checkpoint_every_n_steps", "5", *TWO]
    process = start(*words, "--out", str(tmp_path / "run"))
    wait_for(lambda: list(tmp_path.glob("run/checkpoints/resume-*.json")), process)
    os.kill(child_of(process), signal.SIGKILL)
    try:
        code = process.wait(SECONDS)  # how soon, docs/reliability.md says
    finally:
        process.kill()
        _, said = process.communicate()
    assert code == 4, said
    (line,) = [line for line in said.splitlines() if "another process of this run died" in line]
    assert line.endswith(f"go on with: seqkit fit --resume {tmp_path / 'run'}")
    assert "Traceback" not in said
    assert "Traceback" in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
