"""The line that says how long a training takes."""

from types import SimpleNamespace

import pytest

from seqkit.training.progress import StepProgress


@pytest.mark.parametrize(
    ("before", "step_seconds", "line"),
    [
        (0, 0.01, "training takes about 0:06 on this machine: 600 steps"),
        (0, 0.5, "training takes about 5:00 on this machine: 600 steps"),
        (400, 0.5, "training takes about 1:40 on this machine: 200 steps"),  # resumed
    ],
)
def test_how_long_a_training_takes_is_said_once_after_a_few_steps(monkeypatch, capsys, before, step_seconds, line):
    now, bar, module = 100.0, StepProgress("mine"), SimpleNamespace(num_steps=600, task="")
    monkeypatch.setattr("seqkit.training.progress.time.monotonic", lambda: now)
    bar.on_train_start(None, module)
    now += 7.0  # the first step sets things up
    said = ""
    for step in range(before + 1, before + 31):
        bar.on_train_batch_end(SimpleNamespace(global_step=step, callback_metrics={}), module, None, None, 0)
        now += step_seconds
        said += capsys.readouterr().err
        assert (line in said) == (step >= before + (5 if step_seconds == 0.5 else 11))
    bar.on_train_end(None, module)
    assert said.count("takes about") == 1
