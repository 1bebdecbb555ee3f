"""The watch over a training's losses survives a resume, and says what happens when it does."""

import csv
import logging
from types import SimpleNamespace

import pytest
import torch

from seqkit.config import complete
from seqkit.runs.run import run
from seqkit.training.health import GradientNorms, LossSpikes, total_norm

WORDS = {
    "data.augment": None, "data.limit": 40, "data.batch_size": 8, "model.backbone.dim": 16, "model.backbone.depth": 1,
    "model.backbone.num_heads": 2, "trainer.max_epochs": 2,
    "trainer.enable_progress_bar": False, "trainer.accelerator": "cpu", "trainer.log_every_n_steps": 1,
}  # fmt: skip
STEADY = [2.0 + 0.01 * (i % 3) for i in range(23)]


def config(**words):
    return complete("image/digits", "debug", WORDS | {name.replace("__", "."): value for name, value in words.items()})


def watched(callback, losses, *, start=0, every=1, is_first=True):
    """The callback after steps with these losses."""
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(_should_accumulate=lambda: False))
    module = SimpleNamespace()
    for step, loss in enumerate(losses, start=start):
        trainer = SimpleNamespace(fit_loop=loop, global_step=step + 1, log_every_n_steps=every, is_global_zero=is_first)
        module.step_loss = torch.tensor(loss)
        callback.on_train_batch_end(trainer, module, None, None, 0)
    return callback


def told(caplog):
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("at", [16, 22, 23])
def test_losses_that_jump_and_stay_as_high_are_said_once_with_step_and_losses(caplog, every, at):
    watched(LossSpikes(), STEADY[:at] + [9.0] * 40 + STEADY + [30.0] * 40, every=every)
    (line,) = told(caplog)
    step = int(line.split()[1].rstrip(":"))
    assert at - 4 <= step <= at
    assert "from 2.01 to 9" in line
    assert "gradient_clip_val" in line


def test_a_hard_batch_that_comes_down_again_is_not_said(caplog):
    """Batches of long examples come again in every epoch; the losses are of a training that has learned."""
    losses = [0.0036 + 0.0001 * (i % 3) for i in range(120)]
    losses[23::20] = [0.138] * len(losses[23::20])
    watched(LossSpikes(), losses)
    assert not told(caplog)


@pytest.mark.parametrize("every", [1, 7])
def test_a_resumed_watch_says_what_an_uninterrupted_one_says(caplog, every):
    losses = [2.0 - 0.01 * i for i in range(60)]
    losses[17:33] = [9.0] * 16
    watched(LossSpikes(), losses, every=every)
    whole = told(caplog)
    assert len(whole) == 1
    for cut in range(5, 60, 9):
        caplog.clear()
        first, second = LossSpikes(), LossSpikes()
        watched(first, losses[:cut], every=every)
        second.load_state_dict(first.state_dict())
        watched(second, losses[cut:], start=cut, every=every)
        assert told(caplog) == whole


def test_other_processes_than_the_first_are_silent(caplog):
    watched(LossSpikes(), STEADY + [9.0] * 40, is_first=False)
    assert not caplog.records


def test_a_run_watches_its_loss_without_being_asked(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("seqkit.training.health.SPIKE_WINDOW", 4)
    monkeypatch.setattr("seqkit.training.health.is_spike", lambda before, loss: True)
    with caplog.at_level(logging.WARNING, logger="seqkit"):
        run(config(), tmp_path / "run")
    assert "the loss jumps from" in (tmp_path / "run" / "log.txt").read_text()


def test_the_norm_of_nothing_is_zero():
    assert total_norm({}) == 0.0


@pytest.mark.parametrize("accumulate", [1, 2])
def test_norms_by_layer_add_up_to_the_norm_of_the_gradient(tmp_path, accumulate):
    callback = {"type": "GradientNorms", "every_n_steps": 2}
    run(config(trainer__callbacks=[callback], trainer__accumulate_grad_batches=accumulate), tmp_path / "run")
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    layers = [name for name in rows[0] if name.startswith("grad_norm/")]
    assert "grad_norm/backbone.blocks.0" in layers
    wholes = {row["step"]: float(row["train/grad_norm"]) for row in rows if row["train/grad_norm"]}
    logged = [row for row in rows if row[layers[0]]]
    assert len(logged) >= 2
    for row in logged:
        assert sum(float(row[name]) ** 2 for name in layers) ** 0.5 == pytest.approx(wholes[row["step"]], rel=1e-4)


def test_an_interval_of_no_step_is_refused():
    with pytest.raises(ValueError, match="every_n_steps is 0"):
        GradientNorms(every_n_steps=0)
