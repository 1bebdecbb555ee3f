"""Settings of the trainer, the number of steps, and how an interrupted training ends."""

import inspect
import subprocess
import sys
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning import Trainer

from seqkit.errors import UsageError
from seqkit.training.trainer import (
    TrainerSettings,
    count_steps,
    make_trainer,
    resolved_precision,
    train,
)

QUIET = {"accelerator": "cpu", "enable_progress_bar": False}


DIFFERENT = {"devices": 1, "max_epochs": None, "log_every_n_steps": 20, "precision": "auto"}
OURS = {
    "activation_checkpointing",
    "allow_broken_laws",
    "compile",
    "cuda_graph",
    "fine_tuning",
    "skip_nonfinite",
    "weights",
} | {f"checkpoint_{name}" for name in ("every_minutes", "every_n_steps", "keep")}


def test_settings_are_arguments_of_lightnings_trainer_with_its_defaults_but_ours():
    import pytorch_lightning as pl

    theirs = {
        name: p.default for name, p in inspect.signature(pl.Trainer).parameters.items()
    } | DIFFERENT
    ours = {
        field.name: field.default for field in fields(TrainerSettings) if field.name not in OURS
    }
    assert ours == {name: theirs[name] for name in ours}


def test_settings_reach_the_trainer():
    settings = TrainerSettings(**QUIET, max_steps=3, gradient_clip_val=0.5)
    for given in (settings, {**QUIET, "max_steps": 3, "gradient_clip_val": 0.5}):
        trainer = make_trainer(given, logger=False)
        assert (trainer.max_steps, trainer.gradient_clip_val, trainer.log_every_n_steps) == (
            3,
            0.5,
            20,
        )
        assert trainer.checkpoint_callback is None
        assert trainer.logger is None


def test_settings_import_neither_torch_nor_lightning():
    code = "import sys, seqkit.training.trainer; print({'torch', 'pytorch_lightning'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("settings", "num_steps"),
    [
        ({"max_steps": 5, "max_epochs": None}, 5),
        ({"max_epochs": 3}, 21),
        ({"max_epochs": 3, "max_steps": 20}, 20),
        ({"max_epochs": 3, "accumulate_grad_batches": 2}, 12),
        ({"max_epochs": 3, "min_steps": 22}, 28),
        ({"max_epochs": 3, "min_steps": 20}, 21),
        ({"max_epochs": 3, "min_steps": 22, "accumulate_grad_batches": 2}, 24),
        ({"max_epochs": 3, "min_steps": 22, "max_steps": 25}, 25),
        ({"max_steps": 25, "min_steps": 22}, 25),
    ],
    ids=str,
)
def test_steps_are_counted_over_epochs_and_accumulated_batches(settings, num_steps):
    assert count_steps(settings, num_batches=7) == num_steps
    assert count_steps(TrainerSettings(**settings), num_batches=7) == num_steps


@pytest.mark.parametrize(
    ("settings", "num_steps"),
    [
        ({"max_epochs": 3}, 9),
        ({"max_epochs": 3, "max_steps": 8}, 8),
        ({"max_epochs": 3, "accumulate_grad_batches": 2}, 6),
    ],
    ids=str,
)
def test_two_processes_share_the_batches_of_an_epoch_and_drop_the_odd_one(settings, num_steps):
    assert count_steps(settings, num_batches=7, world_size=2) == num_steps
    with pytest.raises(UsageError, match="1 batches, too few for 2 devices"):
        count_steps(settings, num_batches=1, world_size=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_steps": 0}, "max_steps is 0"),
        ({"max_epochs": 0}, "max_epochs is 0"),
        ({"max_epochs": -5}, "-5"),
        ({"max_epochs": -1}, "no end"),
        ({"max_epochs": 1, "accumulate_grad_batches": 0}, "accumulate_grad_batches is 0"),
        ({"max_epochs": 1, "gradient_clip_val": -1.0}, "gradient_clip_val is -1.0"),
        ({"accelerator": "abacus"}, "abacus"),
        ({"devices": 0}, "trainer: "),
        ({"devices": 10**6}, "trainer.devices is 1000000"),
        ({"max_steps": 5, "min_steps": 6}, "min_steps is 6, but trainer.max_steps 5"),
        ({"val_check_interval": 0}, "trainer.val_check_interval is 0:"),
        ({"val_check_interval": 0.0}, "trainer.val_check_interval is 0.0"),
        ({"val_check_interval": -3}, "-3"),
        ({"val_check_interval": "abc"}, "'abc'"),
        ({"check_val_every_n_epoch": 0}, "trainer.check_val_every_n_epoch is 0"),
        ({"log_every_n_steps": -1}, "trainer.log_every_n_steps is -1"),
        ({"precision": "foo"}, "trainer.precision is 'foo'"),
        ({"precision": "16-true"}, "trainer.precision is '16-true'"),
        ({"precision": 64}, "trainer.precision is 64"),
        ({"precision": "bf16"}, "trainer.precision is 'bf16': .*bf16-mixed"),
        ({"accelerator": "tpu"}, "trainer: "),
        ({"barebones": True}, "trainer.barebones"),
        ({}, "no end"),
        ({"max_step": 3}, "trainer.max_step "),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(UsageError, match=message) as caught:
        make_trainer(QUIET | settings, logger=False)
        count_steps(settings, num_batches=7)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"log_every_n_steps": 0},
        {"check_val_every_n_epoch": None},
        {"val_check_interval": 1},
        {"precision": "bf16-mixed"},
        {"precision": 32},
        {"precision": "auto"},
    ],
    ids=str,
)
def test_the_least_and_the_most_of_a_setting_are_taken(settings):
    assert isinstance(make_trainer(QUIET | settings, logger=False), Trainer)


def test_there_may_be_a_device_for_each_core_and_no_more(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    assert make_trainer(QUIET | {"devices": 3}, logger=False).num_devices == 3
    with pytest.raises(UsageError, match=r"trainer\.devices is 4"):
        make_trainer(QUIET | {"devices": 4}, logger=False)


class Failing:
    """Raises from a module of that name, as if that module's code were at fault."""

    strategy = SimpleNamespace(root_device=torch.device("cpu"))

    def __init__(self, error, module, global_step):
        self.global_step = global_step
        space = {"__name__": module, "error": error}
        exec("def fit(*args, **kwargs): raise error", space)
        self.fit = space["fit"]


def misconfigured():
    from pytorch_lightning.utilities.exceptions import MisconfigurationException

    return MisconfigurationException("two\nlines")


@pytest.mark.parametrize(
    ("error", "module", "global_step", "becomes"),
    [
        (misconfigured(), "pytorch_lightning.loops", 0, UsageError),
        (misconfigured(), "lightning_fabric", 0, UsageError),
        (ValueError("two\nlines"), "pytorch_lightning.loops", 0, UsageError),
        (ValueError("two\nlines"), "pytorch_lightning.loops", 1, ValueError),
        (ValueError("two\nlines"), "somebody", 0, ValueError),
        (KeyError("two\nlines"), "pytorch_lightning.loops", 0, KeyError),
    ],
)
def test_what_lightning_refuses_before_the_first_step_is_a_usage_error(
    error, module, global_step, becomes
):
    with pytest.raises(becomes) as caught:
        train(Failing(error, module, global_step), None, None, None)
    assert type(caught.value) is becomes
    if becomes is UsageError:
        assert str(caught.value) == "trainer: two lines"
    else:
        assert caught.value is error


@pytest.mark.parametrize(
    ("precision", "accelerator", "has_cuda", "has_bfloat16", "right"),
    [
        ("auto", "auto", True, True, "bf16-mixed"),
        ("auto", "cuda", True, False, "32-true"),
        ("auto", "cpu", True, True, "32-true"),
        ("auto", "auto", False, False, "32-true"),
        ("32-true", "auto", True, True, "32-true"),
    ],
)
def test_a_precision_is_chosen_by_the_device_unless_it_is_given(
    precision, accelerator, has_cuda, has_bfloat16, right, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bfloat16)
    assert resolved_precision(precision, accelerator) == right
