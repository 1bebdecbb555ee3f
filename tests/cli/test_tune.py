"""`seqkit tune`: a table, a suggestion with the keys to use it, and pictures; no other file."""

import re

import pytest

from seqkit.cli.main import main
from seqkit.cli.tune import rate_keys
from seqkit.config import complete

SMALL = ["--preset", "debug", "--data.limit", "24", "--data.batch_size", "8", "--trainer.accelerator", "cpu"]


def said(capsys, *words):
    code = main(["tune", *words])
    return code, " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_both_are_suggested_with_keys_that_a_recipe_takes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, text = said(capsys, "image/digits", *SMALL, "--steps", "40")
    assert code == 0
    keys = re.search(r"use: (--data\.batch_size \d+ --optimizer\.lr \S+ --optimizer\.adamw\.lr \S+)", text)[1]
    config = complete("image/digits", "debug", keys.split())
    assert config["optimizer"]["adamw"]["lr"] == pytest.approx(config["optimizer"]["lr"] * 0.3, rel=0.1)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["runs/tune/image-digits-batch-size.png", "runs/tune/image-digits-lr.png"]
    assert "learning rate" in text
    assert "ms per example" in text


def test_only_what_is_asked_for_is_tuned(tmp_path, capsys):
    code, text = said(capsys, "graph/karate", "--preset", "debug", "--lr", "--steps", "30", "--out", str(tmp_path))
    assert code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["graph-karate-lr.png"]
    assert "batch_size" not in text
    assert "30 learning rates" in text or "has risen" in text


@pytest.mark.slow
def test_a_loss_that_does_not_fall_gets_no_suggestion(tmp_path, capsys):
    words = ["--lr", "--min-lr", "1e-15", "--max-lr", "1e-14", "--steps", "20", "--out", str(tmp_path)]
    code, text = said(capsys, "image/digits", *SMALL, *words)
    assert code == 1
    assert "no suggestion" in text


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("optimizer={type: AdamW, lr: 0.02}", {"optimizer.lr": 0.003}),
        ("optimizer={type: Muon, lr: 0.02, adamw: {lr: 0.01}}", {"optimizer.lr": 0.003, "optimizer.adamw.lr": 0.0015}),
        ("schedule={type: torch.optim.lr_scheduler.OneCycleLR, max_lr: 0.02}", {"schedule.max_lr": 0.003}),
    ],
)
def test_the_keys_are_those_that_set_the_rate(words, keys):
    expected = " ".join(f"--{key} {value}" for key, value in keys.items())
    assert rate_keys(complete("image/digits", "debug", [f"--{words}"]), 0.003, 0.02) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["image/digits", "--sed", "3"], "did you mean seed"),
        (["image/digits", "--lr", "--min-lr", "2", "--max-lr", "1"], "the learning rates go from 2 to 1"),
        (["image/digits", "--out", "README.md"], "--out README.md is a file"),
    ],
)
def test_a_wrong_command_is_said_in_one_line(words, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("")
    assert main(["tune", *words, *(["--preset", "debug"] if "--lr" in words else [])]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
