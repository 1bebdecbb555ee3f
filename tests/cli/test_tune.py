"""`seqkit tune` prints keys that set a learning rate, and writes no file."""

import re

import pytest

from seqkit.cli.main import main
from seqkit.config import complete


def tuned(capsys, *words):
    assert main(["tune", *words, "--trainer.accelerator", "cpu"]) == 0
    return re.search(r"use: (.*)", capsys.readouterr().out)[1].split()


@pytest.mark.slow
def test_the_keys_set_all_rates_of_the_optimizer_and_no_file_is_written(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    keys = tuned(
        capsys,
        "image/digits",
        "--preset",
        "debug",
        "--optimizer",
        "{type: Muon, lr: 5, adamw: {lr: 7}}",
    )
    found = complete("image/digits", "debug", keys)["optimizer"]
    assert found["lr"] == found["adamw"]["lr"]
    assert 1e-4 < found["lr"] < 0.3
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_number_of_predictions_of_a_batch_does_not_change_the_loss(capsys):
    """By sums, the full batches of an epoch would look worse than its last one, and end the search."""
    keys = tuned(
        capsys, "image/digits", "--preset", "debug", "--data.limit", "70", "--data.batch_size", "64"
    )
    assert 1e-4 < float(keys[1]) < 0.3


@pytest.mark.slow
def test_a_schedule_that_sets_the_rate_gets_it(capsys):
    schedule = "{type: torch.optim.lr_scheduler.OneCycleLR, max_lr: 0.02, total_steps: 10}"
    assert (
        tuned(capsys, "image/digits", "--preset", "debug", "--schedule", schedule)[0]
        == "--schedule.max_lr"
    )


def test_a_wrong_command_is_said_in_one_line(capsys):
    assert main(["tune", "image/digits", "--sed", "3"]) == 2
    error = capsys.readouterr().err
    assert "did you mean seed" in error
    assert error.count("\n") == 1
