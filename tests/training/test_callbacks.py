"""Callbacks that a recipe names do what their arguments say."""

import pytest
import torch
from pytorch_lightning import Callback, LightningModule
from pytorch_lightning.callbacks import EarlyStopping

from seqkit.errors import UsageError
from seqkit.training.callbacks import EMA, check_monitors
from seqkit.training.trainer import make_trainer

pytestmark = [
    # torch, on how Lightning uses it
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings(
        "ignore:.*(does not have many workers|smaller than the logging interval).*"
    ),
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


class Weights(Callback):
    """Keeps the weight after every optimizer step."""

    def __init__(self):
        self.after = []

    def on_train_batch_end(self, trainer, module, *_):
        self.after.append(float(module.weight.detach()))


@pytest.mark.parametrize(
    ("decay", "every", "start"), [(0.5, 1, 0), (0.9, 1, 0), (0.5, 2, 0), (0.5, 1, 1), (0.5, 2, 2)]
)
def test_averaged_weights_are_those_of_the_recursion(tmp_path, decay, every, start):
    """average = decay * average + (1 - decay) * weight, from the first update on; the other steps count for nothing."""
    kept, module = Weights(), Given([0.0, 0.0])
    fit(module, EMA(decay, every_n_steps=every, start_step=start), tmp_path, kept)
    taken = [
        weight for step, weight in enumerate(kept.after) if step >= start and step % every == 0
    ]
    average = taken[0]
    for weight in taken[1:]:
        average = decay * average + (1 - decay) * weight
    assert len(kept.after) == 6
    assert float(module.weight.detach()) == pytest.approx(average, rel=1e-5)
    assert abs(kept.after[-1] - average) > 0.01


def test_an_average_that_no_step_updates_is_refused():
    EMA(every_n_steps=5, start_step=6).check_steps(11)
    with pytest.raises(UsageError, match="start_step 6, every_n_steps 5"):
        EMA(every_n_steps=5, start_step=6).check_steps(10)


def test_a_monitor_that_is_not_logged_is_refused_before_training():
    check_monitors([EarlyStopping("valid/loss"), EMA()], ["train/loss", "valid/loss"])
    for wrong, known in (
        ("valid/los", ["train/loss", "valid/loss"]),
        ("valid/loss", ["train/loss"]),
    ):
        with pytest.raises(UsageError, match=f"EarlyStopping monitors '{wrong}'"):
            check_monitors([EarlyStopping(wrong)], known)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EMA(1.0), r"decay is 1\.0"),
        (lambda: EMA(every_n_steps=0), "every_n_steps is 0"),
        (lambda: EMA(start_step=-1), "start_step -1"),
    ],
)
def test_arguments_without_a_meaning_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
