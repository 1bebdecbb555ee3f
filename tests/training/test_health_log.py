"""The callbacks of a training's health: they change nothing, survive a resume, and say what happens when it does."""

import csv
import itertools
import logging
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from runs.stopping import Kick, with_callback

from seqkit.backbones import Transformer
from seqkit.config import complete
from seqkit.errors import DivergedError, Interrupted, UsageError
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.attention.scaled_dot_product import ScaledDotProductAttention
from seqkit.nn.block import PostNormBlock, PreNormBlock
from seqkit.runs.mixture import load
from seqkit.runs.run import resume_run, run
from seqkit.training.health import SPIKE_WINDOW, HeadEntropy, gradient_norms, total_norm
from seqkit.training.health_log import LossSpikes, TrainingHealth, _bounds_scores
from seqkit.training.module import TrainingModule

WORDS = {
    "data.augment": None, "data.limit": 40, "data.batch_size": 8, "model.backbone.dim": 16, "model.backbone.depth": 2,
    "model.backbone.num_heads": 2, "model.backbone.dropout": 0.1, "trainer.max_epochs": 2,
    "trainer.enable_progress_bar": False, "trainer.accelerator": "cpu", "trainer.log_every_n_steps": 1,
}  # fmt: skip
EVERY_STEP = [{"type": "TrainingHealth", "every_n_steps": 1}]


def config(**words):
    return complete("image/digits", "debug", WORDS | {name.replace("__", "."): value for name, value in words.items()})


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def column(folder, name):
    return [float(row[name]) for row in rows(folder) if row.get(name)]


def watched(callback, losses, *, start=0, device="cpu", every=1, valid=None, clip=None, warmup=0, num_steps=10**9):
    """The callback after steps with these losses. valid: validation loss after a step; None: nothing validates."""
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(_should_accumulate=lambda: False))
    module = SimpleNamespace(device=torch.device(device), num_steps=num_steps)
    module.trainer = SimpleNamespace(gradient_clip_val=clip)
    module.schedule = SimpleNamespace(warmup_steps=warmup)
    module.stabilizers = lambda: TrainingModule.stabilizers(module)
    for step, loss in enumerate(losses, start=start):
        trainer = SimpleNamespace(
            fit_loop=loop, global_step=step + 1, log_every_n_steps=every, is_global_zero=True, current_epoch=0,
            enable_validation=valid is not None, sanity_checking=False, callback_metrics={},
        )  # fmt: skip
        module.step_loss = torch.tensor(loss)
        callback.on_train_batch_end(trainer, module, None, None, 0)
        if valid is not None and step in valid:
            trainer.callback_metrics["valid/loss"] = torch.tensor(valid[step])
            callback.on_validation_end(trainer, module)
    return callback


def told(caplog):
    return [record.getMessage() for record in caplog.records]


# ── spikes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("device", "every"), [("cpu", 1), ("meta", 5)])
def test_a_jump_with_which_the_validation_loss_rises_is_said_with_its_step_and_losses(caplog, device, every):
    losses = [2.0 + 0.01 * (i % 3) for i in range(23)] + [9.0] * 17
    watched(LossSpikes(), losses, device=device, every=every, valid={19: 2.0, 39: 5.0})
    (line,) = told(caplog)
    assert line.startswith("step 23: the loss jumps from 2.01 to 9, and the validation loss rises from 2 to 5;")


@pytest.mark.parametrize(
    "valid", [{19: 0.005, 39: 0.0045}, {19: 0.005, 39: 0.3}, {39: 0.3}, {19: 0.3, 23: 3.0, 39: 30.0}, None]
)
def test_a_hard_batch_that_comes_down_again_is_not_said_whatever_validation_does(caplog, valid):
    """Batches of long examples come again in every epoch; the losses are of a training that has learned."""
    losses = [0.0036 + 0.0001 * (i % 3) for i in range(120)]
    losses[23::20] = [0.138] * len(losses[23::20])
    watched(LossSpikes(), losses, valid=valid)
    assert not told(caplog)


@pytest.mark.parametrize("valid", [{19: 2.0, 39: 1.9}, {19: 2.0, 39: 2.1}])
def test_losses_that_stay_high_with_which_validation_gets_no_worse_are_not_said(caplog, valid):
    watched(LossSpikes(), [2.0 + 0.01 * (i % 3) for i in range(23)] + [9.0] * 17, valid=valid)
    assert not told(caplog)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("valid", "at"), [({99: 9.0}, 23), ({25: 9.0, 99: 9.0}, 23), ({}, 23)])
def test_a_divergence_before_the_first_validation_is_said(caplog, device, valid, at):
    losses = [2.0 + 0.01 * (i % 3) for i in range(at)] + [9.0] * 80
    watched(LossSpikes(), losses, device=device, every=7, valid=valid)
    (line,) = told(caplog)
    assert line.startswith(f"step {at}: the loss jumps from 2.01 to 9, and stays at 9;")


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("at", [19, 20, 24, 26, 27, 28, 38, 39])
def test_a_divergence_at_any_step_around_validations_is_said_once(caplog, device, at):
    losses = [2.0 + 0.01 * (i % 3) for i in range(at)] + [9.0] * 60
    valid = {19: 2.0, 27: 2.0 if at > 26 else 8.0, 39: 8.0, 59: 8.0, 79: 8.0}
    watched(LossSpikes(), losses, device=device, every=7, valid=valid)
    (line,) = told(caplog)
    assert line.startswith(f"step {at}: the loss jumps from 2")


def test_a_divergence_shortly_before_the_end_is_said_by_the_last_validation(caplog):
    losses = [2.0 + 0.01 * (i % 3) for i in range(36)] + [9.0] * 4
    for last, said in ((8.0, 1), (2.0, 0)):
        caplog.clear()
        watched(LossSpikes(), losses, valid={19: 2.0, 39: last}, num_steps=40)
        assert len(told(caplog)) == said


def test_without_validation_losses_that_stay_high_are_said(caplog):
    watched(LossSpikes(), [2.0 + 0.01 * (i % 3) for i in range(23)] + [9.0] * 40)
    (line,) = told(caplog)
    assert line.startswith("step 23: the loss jumps from 2.01 to 9, and stays at 9;")


def test_what_is_set_already_is_not_advised(caplog):
    losses = [2.0 + 0.01 * (i % 3) for i in range(23)] + [9.0] * 40
    watched(LossSpikes(), losses)
    watched(LossSpikes(), losses, clip=1.0, warmup=100)
    for word in ("gradient_clip_val", "warmup_steps"):
        assert [word in line for line in told(caplog)] == [True, False]
    assert all("learning rate" in line for line in told(caplog))


def test_an_unstable_training_does_not_fill_the_log(caplog):
    losses = [50.0 if i % 60 >= 30 else 2.0 for i in range(2_000)]
    watched(LossSpikes(), losses, valid={i: 2.0 + i for i in range(0, 2_000, 10)})
    said = [int(line.split()[1].rstrip(":")) for line in told(caplog)]
    assert 2 <= len(said) <= 8
    assert all(later - earlier >= SPIKE_WINDOW for earlier, later in itertools.pairwise(said))


@pytest.mark.parametrize(("device", "every"), [("cpu", 1), ("meta", 7)])
@pytest.mark.parametrize("valid", [{15: 1.0, 31: 2.0, 55: 3.0}, {21: 1.0, 31: 2.0}, None])
def test_a_resumed_watch_says_what_an_uninterrupted_one_says(caplog, device, every, valid):
    losses = [2.0 - 0.01 * i for i in range(60)]
    losses[17:33] = [9.0] * 16
    watched(LossSpikes(), losses, device=device, every=every, valid=valid)
    whole = told(caplog)
    assert len(whole) == 1
    caplog.clear()
    for cut in range(5, 60, 9):
        first, second = LossSpikes(), LossSpikes()
        watched(first, losses[:cut], device=device, every=every, valid=valid)
        second.load_state_dict(first.state_dict())
        watched(second, losses[cut:], start=cut, device=device, every=every, valid=valid)
        assert told(caplog) == whole
        caplog.clear()


def test_other_processes_than_the_first_are_silent(caplog):
    spikes = LossSpikes()
    spikes.jump = [3, 2.0, 9.0, 4.0]
    other = SimpleNamespace(is_global_zero=False, current_epoch=0)
    spikes._say(other, SimpleNamespace(stabilizers=str), 5, "stays")
    TrainingHealth()._say(other, 3, "x", "x")
    assert not caplog.records


def test_a_run_watches_its_loss_without_being_asked(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("seqkit.training.health_log.is_spike", lambda before, loss: len(before) >= 6)
    monkeypatch.setattr("seqkit.training.health_log.highest_usual", lambda before: -1.0)
    monkeypatch.setattr("seqkit.training.health_log.RISE", -10.0)
    with caplog.at_level(logging.WARNING, logger="seqkit"):
        run(config(trainer__max_epochs=2, trainer__gradient_clip_val=None), tmp_path / "run")
    line = next(one for one in (tmp_path / "run" / "log.txt").read_text().splitlines() if "the loss jumps from" in one)
    assert "and the validation loss rises from" in line
    assert "gradient_clip_val" in line


# ── norms and entropy ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def watched_run(tmp_path_factory):
    """A run that is watched in every step."""
    folder = tmp_path_factory.mktemp("watched") / "run"
    run(config(trainer__callbacks=EVERY_STEP), folder)
    return folder


@pytest.mark.slow
def test_watching_changes_no_weight(watched_run, tmp_path):
    run(config(), tmp_path / "plain")
    watched_weights, plain = (load(folder).model.state_dict() for folder in (watched_run, tmp_path / "plain"))
    assert all(torch.equal(watched_weights[name], plain[name]) for name in plain)
    assert column(watched_run, "train/loss") == column(tmp_path / "plain", "train/loss")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_norms_by_layer_add_up_to_the_norm_of_the_gradient_and_heads_have_entropies(watched_run, tmp_path, accumulate):
    folder = watched_run if accumulate == 1 else tmp_path / "run"
    if accumulate > 1:
        run(config(trainer__callbacks=EVERY_STEP, trainer__accumulate_grad_batches=accumulate), folder)
    columns = set(rows(folder)[0])
    layers = [name for name in columns if name.startswith("grad_norm/")]
    assert {"grad_norm/backbone.blocks.0", "grad_norm/backbone.blocks.1"} < set(layers)
    by_step = zip(*(column(folder, name) for name in layers))
    sums = [sum(norm**2 for norm in norms) ** 0.5 for norms in by_step]
    assert sums == pytest.approx(column(folder, "train/grad_norm"), rel=1e-4)
    heads = {f"entropy/backbone.blocks.{block}.attention/{head}" for block in (0, 1) for head in (0, 1)}
    assert {name for name in columns if name.startswith("entropy/")} == heads
    for name in heads:
        assert len(column(folder, name)) == len(sums)
        assert all(0 < value <= 1 for value in column(folder, name))


def test_rows_come_every_so_many_steps_and_in_the_last(tmp_path):
    run(config(trainer__callbacks=[{"type": "TrainingHealth", "every_n_steps": 4}]), tmp_path / "run")
    steps = [int(row["step"]) for row in rows(tmp_path / "run") if row["grad_norm/backbone.blocks.0"]]
    assert steps == [3, 7, 9]


@pytest.mark.slow
def test_a_resumed_run_logs_what_the_uninterrupted_one_logs(tmp_path):
    words = {"trainer__callbacks": [{"type": "TrainingHealth", "every_n_steps": 3}]}
    run(config(**words), tmp_path / "whole")
    with with_callback(Kick(7)), pytest.raises(Interrupted):
        run(config(**words), tmp_path / "run")
    resume_run(tmp_path / "run", {})
    kept = [name for name in rows(tmp_path / "whole")[0] if name.startswith(("grad_norm/", "entropy/", "train/loss"))]
    for name in kept:
        assert column(tmp_path / "run", name) == column(tmp_path / "whole", name), name


@pytest.mark.parametrize(
    ("norms", "said"),
    [
        ({"blocks.0": 900.0, "blocks.1": 900.0}, "the norm of the gradient is 1.27e+03"),
        ({"blocks.0": 1e-6, "blocks.1": 0.5}, "the gradient of blocks.0 has vanished"),
        ({"blocks.0": 0.1, "blocks.1": 0.5}, None),
    ],
)
def test_gradients_that_explode_or_vanish_are_said_once(caplog, norms, said):
    trainer, callback = SimpleNamespace(is_global_zero=True, current_epoch=2), TrainingHealth()
    module = SimpleNamespace(stabilizers=str, model=torch.nn.Linear(1, 1))
    callback._say_gradients(trainer, 7, norms, module)
    callback._say_gradients(trainer, 8, norms, module)
    again = TrainingHealth()
    again.load_state_dict(callback.state_dict())
    again._say_gradients(trainer, 9, norms, module)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (said is not None)
    assert all(message.startswith(f"step 7 (epoch 2): {said}") for message in messages)


@pytest.mark.parametrize(
    ("block", "advice"),
    [(PreNormBlock, "; use fewer layers"), (PostNormBlock, "; use PreNormBlock, or fewer layers")],
)
def test_pre_norm_blocks_are_advised_to_a_model_with_post_norm_alone(caplog, block, advice):
    trainer = SimpleNamespace(is_global_zero=True, current_epoch=2)
    module = SimpleNamespace(model=Transformer(4, 2, num_heads=2, block=block))
    TrainingHealth()._say_gradients(trainer, 7, {"blocks.0": 1e-6, "blocks.1": 0.5}, module)
    (line,) = told(caplog)
    assert line.endswith(advice)


@pytest.mark.parametrize(("softcap", "is_bounded"), [(None, False), (30.0, True)])
def test_scores_under_a_softcap_are_bounded(softcap, is_bounded):
    attention = MultiHeadAttention(4, 2, mechanism=partial(ScaledDotProductAttention, softcap=softcap))
    assert _bounds_scores(attention) is is_bounded


@pytest.mark.parametrize(
    ("entropy", "divergence", "said"),
    [(0.01, 0.9, "has collapsed"), (1.0, 1e-10, "no longer looks at the content"), (0.5, 0.4, None)],
)
def test_a_collapse_of_attention_is_said_once(caplog, entropy, divergence, said):
    trainer, callback = SimpleNamespace(is_global_zero=True, current_epoch=0), TrainingHealth()
    heads = [HeadEntropy("blocks.0.attention", torch.tensor([entropy] * 3), torch.tensor([divergence] * 3))]
    callback._say_attention(trainer, 7, heads, False)
    callback._say_attention(trainer, 8, heads, False)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (said is not None)
    assert all(said in message for message in messages)


def test_attention_that_collapses_in_a_run_is_in_its_log(tmp_path):
    temperature = {"model__backbone__block__attention__mechanism__temperature": 1e-4}
    run(config(trainer__callbacks=EVERY_STEP, **temperature), tmp_path / "run")
    text = (tmp_path / "run" / "log.txt").read_text()
    assert text.count("the attention of backbone.blocks.0.attention has collapsed") == 1


def test_hooks_are_gone_after_a_step_and_after_a_failure(tmp_path, monkeypatch):
    models = []
    monkeypatch.setattr(
        "seqkit.training.health_log.gradient_norms", lambda model: models.append(model) or gradient_norms(model)
    )
    with pytest.raises(DivergedError):
        run(
            config(trainer__callbacks=EVERY_STEP, optimizer={"type": "torch.optim.SGD", "lr": 1e25},
                   trainer__gradient_clip_val=None),
            tmp_path / "run",
        )  # fmt: skip
    assert models
    assert not any(module._forward_hooks for module in models[-1].modules())


def test_compiled_attention_is_refused(tmp_path, monkeypatch):
    call = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **options: call(module, backend="eager", **options))
    with pytest.raises(UsageError, match=r"--trainer\.compile false"):
        run(config(trainer__callbacks=EVERY_STEP, trainer__compile=True), tmp_path / "run")


@pytest.mark.parametrize("words", [{"every_n_steps": 0}, {"gradients": False, "attention": False}])
def test_arguments_that_log_nothing_are_refused(words):
    with pytest.raises(ValueError, match=r"every_n_steps is 0|nothing to log"):
        TrainingHealth(**words)


def test_the_norm_of_nothing_is_zero():
    assert total_norm({}) == 0.0
