"""Callbacks that a recipe names do what their arguments say."""

import math

import pytest
import torch
from pytorch_lightning import Callback, LightningModule

from seqkit.errors import UsageError
from seqkit.training.callbacks import EMA, EarlyStopping, ModelCheckpoint, check_monitors
from seqkit.training.trainer import make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),  # torch, on how Lightning uses it
    pytest.mark.filterwarnings("ignore:.*(does not have many workers|smaller than the logging interval).*"),
]


class Given(LightningModule):
    """One weight, which each of the three steps of an epoch moves; its validations log the given values."""

    def __init__(self, values=()):
        super().__init__()
        self.values = list(values)
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch, _):
        return -batch.sum() * self.weight * (1 + self.weight.detach())

    def validation_step(self, batch, _):
        self.log("valid/value", self.values[self.current_epoch])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.5)


def fit(module, callback, tmp_path, *more, **settings):
    data = torch.utils.data.DataLoader(torch.ones(3))
    trainer = make_trainer(
        {
            "accelerator": "cpu",
            "max_epochs": len(module.values) or 1,
            "enable_progress_bar": False,
            **settings,
        },
        logger=False,
        num_sanity_val_steps=0,
        callbacks=[callback, *more],
        default_root_dir=tmp_path,
    )
    trainer.fit(module, data, data if module.values else None)
    return trainer


def epochs_until_stopped(values, patience, min_delta, sign):
    """By the definition: the epochs up to the one with which `patience` of them in a row were no better by enough."""
    best, waited = -math.inf, 0
    for epoch, value in enumerate(values, start=1):
        if sign * value - min_delta > best:
            best, waited = sign * value, 0
        else:
            waited += 1
        if waited == patience:
            return epoch
    return len(values)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize(("patience", "min_delta"), [(1, 0.0), (2, 0.0), (9, 0.0), (2, 0.15), (9, 0.15)])
def test_training_ends_after_as_many_validations_that_are_no_better_by_enough(tmp_path, mode, patience, min_delta):
    values = [0.5, 0.56, 0.62, 0.68, 0.74, 0.7, 0.64, 0.58, 0.52, 0.46, 0.4, 0.38]
    callback = EarlyStopping("valid/value", patience=patience, min_delta=min_delta, mode=mode)
    trainer = fit(Given(values), callback, tmp_path)
    sign = 1 if mode == "max" else -1
    assert trainer.global_step == 3 * epochs_until_stopped(values, patience, min_delta, sign)


class Weights(Callback):
    """Keeps the weight after every optimizer step."""

    def __init__(self):
        self.after = []

    def on_train_batch_end(self, trainer, module, *_):
        self.after.append(float(module.weight.detach()))


@pytest.mark.parametrize(("decay", "every", "start"), [(0.5, 1, 0), (0.9, 1, 0), (0.5, 2, 0), (0.5, 1, 1), (0.5, 2, 2)])
def test_averaged_weights_are_those_of_the_recursion(tmp_path, decay, every, start):
    """average = decay * average + (1 - decay) * weight, from the first update on; the other steps count for nothing."""
    kept, module = Weights(), Given([0.0, 0.0])
    fit(module, EMA(decay, every_n_steps=every, start_step=start), tmp_path, kept)
    taken = [weight for step, weight in enumerate(kept.after) if step >= start and step % every == 0]
    average = taken[0]
    for weight in taken[1:]:
        average = decay * average + (1 - decay) * weight
    assert len(kept.after) == 6
    assert float(module.weight.detach()) == pytest.approx(average, rel=1e-5)
    assert abs(kept.after[-1] - average) > 0.01


def test_an_average_that_no_step_updates_is_refused():
    EMA(every_n_steps=5, start_step=6).check_steps(11)
    with pytest.raises(UsageError, match="start_step 6 and every_n_steps 5"):
        EMA(every_n_steps=5, start_step=6).check_steps(10)


@pytest.mark.parametrize(("mode", "every", "best"), [("min", 1, [2, 4]), ("max", 1, [1, 3]), ("min", 2, [3, 5])])
def test_so_many_of_the_best_weights_are_kept(tmp_path, mode, every, best):
    """Epochs count from 0. Every second one: those with an odd number."""
    values = [0.5, 0.9, 0.1, 0.8, 0.2, 0.6]
    callback = ModelCheckpoint("valid/value", save_top_k=2, mode=mode, every_n_epochs=every)
    fit(Given(values), callback, tmp_path)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        f"user-epoch={epoch}-step={3 * (epoch + 1)}.ckpt" for epoch in best
    ]


def test_a_monitor_that_is_not_logged_is_refused_before_training():
    check_monitors([EarlyStopping("valid/loss"), ModelCheckpoint(), EMA()], ["train/loss", "valid/loss"])
    with pytest.raises(UsageError, match=r"ModelCheckpoint .*'valid/los'"):
        check_monitors([ModelCheckpoint("valid/los")], ["train/loss", "valid/loss"])
    with pytest.raises(UsageError, match=r"EarlyStopping .*'valid/loss'"):
        check_monitors([EarlyStopping()], ["train/loss"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EarlyStopping(mode="least"), "'least'"),
        (lambda: ModelCheckpoint(mode="most"), "'most'"),
        (lambda: ModelCheckpoint(save_top_k=-2), "save_top_k"),
        (lambda: EMA(1.0), r"decay is 1\.0"),
        (lambda: EMA(every_n_steps=0), "every_n_steps is 0"),
        (lambda: EMA(start_step=-1), "start_step -1"),
    ],
)
def test_arguments_without_a_meaning_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
