"""What is logged of training is of the step that it stands for: loss, norm, learning rate, speed."""

import pytest
import torch
from pytorch_lightning.loggers.logger import Logger
from training.test_module import SGD, BatchLoader, ragged, training_module

from seqkit.training import step_log
from seqkit.training.optim import Cosine
from seqkit.training.step_log import StepLog
from seqkit.training.trainer import make_trainer

pytestmark = [
    # torch, on how Lightning uses it
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*(log_every_n_steps|no `val_dataloader`).*"),
]


class Rows(Logger):
    """Keeps what is logged, by step."""

    name, version, experiment = "rows", "", None

    def __init__(self):
        super().__init__()
        self.rows = {}

    def log_metrics(self, metrics, step=None):
        if "train/loss" in metrics:
            self.rows[step] = metrics

    def log_hyperparams(self, *_, **__):
        pass


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by two seconds whenever it is read."""
    seconds = iter(range(0, 10_000, 2))
    monkeypatch.setattr(step_log.time, "perf_counter", lambda: float(next(seconds)))


def logged(batches, module=None, valid=None, **settings):
    """The rows of a training, by step."""
    kept = Rows()
    module = module or training_module(num_steps=len(batches))
    runner = make_trainer(
        {"accelerator": "cpu", "max_epochs": 1, "log_every_n_steps": 1, **settings},
        num_sanity_val_steps=0,
        logger=kept,
        callbacks=[StepLog()],
    )
    runner.fit(module, BatchLoader(*batches), None if valid is None else BatchLoader(*valid))
    return kept.rows


def test_loss_and_norm_are_those_of_the_step_before_clipping():
    """The weights stay as they are, so the mean loss and its gradient can be computed for each batch afterwards."""
    batches = [ragged(7, 3, seed=1), ragged(11, seed=2), ragged(2, 13, seed=3)]
    rows = logged(
        batches, module=training_module(optimizer=SGD(0.0), num_steps=3), gradient_clip_val=1e-3
    )
    twin = training_module()
    assert sorted(rows) == [0, 1, 2]
    for step, (batch, _) in enumerate(batches):
        inputs = twin.objective.prepare(batch, None)
        output = twin.objective.loss(twin.model(inputs.batch), inputs.target, training=True)
        loss = output.loss / output.count
        gradients = torch.autograd.grad(loss, list(twin.model.parameters()))
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        assert rows[step]["train/loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
        assert rows[step]["train/grad_norm"] == pytest.approx(float(norm), rel=1e-5)


def test_the_learning_rate_is_the_one_that_the_step_was_made_with():
    schedule = Cosine(warmup_steps=2, floor=0.2)
    module = training_module(optimizer=SGD(0.5), schedule=schedule, num_steps=5)
    rows = logged([ragged(5, seed=i) for i in range(5)], module=module)
    assert [rows[step]["lr"] for step in range(5)] == pytest.approx(
        [0.5 * schedule.factor(i, 5) for i in range(5)]
    )


def test_a_row_is_written_every_few_optimizer_steps_and_for_the_last_one():
    batches = [ragged(5, seed=i) for i in range(14)]
    rows = logged(
        batches, module=training_module(num_steps=7), log_every_n_steps=3, accumulate_grad_batches=2
    )
    assert sorted(rows) == [2, 5, 6]


def test_speeds_are_of_the_time_since_the_row_before(clock):
    batches = [ragged(7, seed=1), ragged(9, 5, seed=2), ragged(9, 5, seed=3)]
    first, *later = (row for _, row in sorted(logged(batches).items()))
    assert not [name for name in first if "second" in name]  # its beginning holds warm-up
    for row in later:
        assert row["train/tokens_per_second"] == (8 + 5) / 2


def test_a_validation_is_left_out_of_the_speed(clock):
    rows = logged(
        [ragged(7, seed=i) for i in range(6)], valid=[ragged(5)], max_epochs=1, val_check_interval=2
    )
    has_speed = [("train/tokens_per_second" in row) for _, row in sorted(rows.items())]
    assert has_speed == [False, True, False, True, False, True]
