"""What the trainer is given, and how a stopped run ends."""

import os
import signal

import pytest

from seqkit.recipe import UsageError
from seqkit.trainer import count_steps, make_trainer, train

QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}


@pytest.mark.parametrize(
    ("settings", "num_steps"),
    [
        ({"max_steps": 5, "max_epochs": None}, 5),
        ({"max_epochs": 3}, 21),
        ({"max_epochs": 3, "max_steps": 20}, 20),
        ({"max_epochs": 3, "accumulate_grad_batches": 2}, 12),
    ],
)
def test_steps_are_counted_over_epochs_and_accumulated_batches(settings, num_steps):
    assert count_steps(make_trainer(**QUIET, **settings), num_batches=7) == num_steps


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_steps": 0}, "max_steps=0"),
        ({"max_epochs": 0}, "max_epochs=0"),
        ({"max_epochs": -5}, "-5"),
        ({"max_epochs": -1}, "training has no end"),
        ({"max_epochs": 1, "accumulate_grad_batches": 0}, "accumulate_grad_batches=0"),
        ({"max_epochs": 1, "gradient_clip_val": -1.0}, "gradient_clip_val=-1.0"),
        ({"accelerator": "abacus"}, "abacus"),
        ({"devices": 0}, "trainer: "),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(settings, said):
    with pytest.raises(UsageError, match=said) as caught:
        count_steps(make_trainer(**QUIET | settings), num_batches=7)
    assert "\n" not in str(caught.value)


class Stopped:
    """A trainer that ends as Lightning's does on Ctrl-C."""

    global_step = 3

    def __init__(self, interrupted):
        self.interrupted = interrupted

    def fit(self, learner, train_dataloaders, val_dataloaders):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise SystemExit(1)


def test_a_stopped_training_is_unfinished_and_ctrl_c_works_again():
    before = signal.getsignal(signal.SIGINT)
    try:
        assert not train(Stopped(interrupted=True), None, None, None)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            signal.sigtimedwait([], 1)
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_exit_goes_on():
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            train(Stopped(interrupted=False), None, None, None)
    finally:
        signal.signal(signal.SIGINT, before)
