"""Runs of two processes on the CPU: one folder, the arithmetic of one process, and an end for all when one fails."""

import signal
import sys

import pytest
import torch
from runs.stopping import Kick
from runs.two_processes import (
    DDP,
    SMALL,
    WORDS,
    check_alike,
    end_of,
    fitted,
    logged,
    needs_forks,
    sends,
    start,
    stopped,
    weights,
)

from seqkit.files import read_mapping

WORDS = [*WORDS, *SMALL]


@pytest.fixture(scope="module")
def runs(text_file, tmp_path_factory):
    """A run of two processes, and one that takes two micro-batches for each step of theirs, on one process."""
    folder = tmp_path_factory.mktemp("distributed") / "runs"
    words = [*WORDS, "--data", text_file, "--trainer.max_steps", "-1", "--trainer.max_epochs", "2"]
    words += ["--trainer.val_check_interval", "null", "--trainer.check_val_every_n_epoch", "1"]
    words += ["--optimizer", "torch.optim.SGD", "--optimizer.lr", "0.1"]
    fitted([*words, *DDP, "--out", str(folder / "two")])
    fitted(
        [*words, "--trainer.accumulate_grad_batches", "2", "--out", str(folder / "one")], number=1
    )
    return folder


@needs_forks
def test_two_processes_fill_one_folder_and_count_what_both_have_seen(runs):
    assert sorted(path.name for path in runs.iterdir()) == ["one", "two"]
    summary = read_mapping(runs / "two" / "summary.json")
    assert summary["steps"] == 2 * 4  # 32 windows in batches of 4, dealt to 2
    assert summary["tokens_seen"] == 2 * 32 * 9


@needs_forks
def test_two_processes_take_the_steps_of_as_many_micro_batches(runs):
    """Batches k and k + 1 of one process are those of the two; the validation covers each window once."""
    check_alike(weights(runs / "two"), weights(runs / "one"))
    one_log, two_log = logged(runs / "one"), logged(runs / "two")
    assert any(name == "valid/loss" for _, name in one_log)
    assert two_log == pytest.approx(one_log, rel=1e-4)


@needs_forks
@pytest.mark.slow
def test_two_processes_that_compile_end_as_two_that_do_not(text_file, tmp_path, monkeypatch):
    compile_function = torch.compile
    monkeypatch.setattr(
        torch,
        "compile",
        lambda function, **more: compile_function(function, backend="eager", **more),
    )
    words = [*WORDS, "--data", text_file, *DDP, "--trainer.max_steps", "6"]
    words += ["--optimizer", "torch.optim.SGD", "--optimizer.lr", "0.1"]
    fitted([*words, "--trainer.compile", "true", "--out", str(tmp_path / "compiled")])
    fitted([*words, "--out", str(tmp_path / "plain")])
    assert "compiled model and loss" in (tmp_path / "compiled" / "log.txt").read_text(
        encoding="utf-8"
    )
    check_alike(weights(tmp_path / "compiled"), weights(tmp_path / "plain"))


@needs_forks
@pytest.mark.slow
def test_a_signal_to_one_stops_both_processes_and_the_resumed_run_ends_as_the_whole_one(
    text_file, tmp_path
):
    """It is the second process; in test_sharded.py it is the first one."""
    words = [
        *WORDS,
        "--data",
        text_file,
        "--trainer.max_steps",
        "12",
        "--trainer.checkpoint_every_n_steps",
        "3",
        *DDP,
    ]
    fitted([*words, "--out", str(tmp_path / "whole")])
    code, said = stopped([*words, "--out", str(tmp_path / "stopped")], 1, Kick(5))
    assert code == 128 + signal.SIGTERM, said
    assert f"--resume {tmp_path / 'stopped'}" in said
    fitted(["--resume", str(tmp_path / "stopped")])
    whole, resumed = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.skipif(sys.platform != "linux", reason="the run starts its second process as on Linux")
@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_others(text_file, tmp_path):
    """How soon, docs/reliability.md says. The first process starts the second."""
    words = [
        *WORDS,
        "--data",
        text_file,
        "--trainer.max_steps",
        "100000",
        "--trainer.checkpoint_every_n_steps",
        "2",
    ]
    words += [*DDP, *sends(tmp_path), "--out", str(tmp_path / "run")]
    code, said = end_of(start(words, tmp_path, SENT="SIGKILL", SENT_TO="1"))
    assert code == 4, said
    (line,) = [line for line in said.splitlines() if "another process" in line]
    assert line.endswith(f"--resume {tmp_path / 'run'} --plugin sends.py")
    assert "Traceback" not in said
    assert "Traceback" in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
