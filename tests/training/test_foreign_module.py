"""Somebody else's LightningModule, killed at random moments, ends bit-equal to its training that was never killed.

Nothing in it is ours but the loader and the two callbacks.
"""

# ruff: noqa: NPY002  (of users' data sets)
import os
import random
import signal

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from reliability.forked import forked
from runs.two_processes import needs_forks
from torch import nn

from seqkit.training import RandomState, ResumableLoader, ResumePoints

pytestmark = [
    needs_forks,
    # of forking where torch's threads wait
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

STEPS = 54
"""Optimizer steps: 9 epochs of 12 batches, 2 batches a step."""


class Noisy(torch.utils.data.Dataset):
    """Examples that are augmented with random numbers of three libraries."""

    def __len__(self):
        return 36

    def __getitem__(self, index):
        x = (
            torch.full((5,), index / 36)
            + 0.1 * torch.rand(5)
            + 0.1 * random.random()
            + 0.1 * np.random.rand()
        )
        return x.float(), float(index % 2)


class Foreign(pl.LightningModule):
    """Dropout, noise, a schedule by epoch, and a validation that draws random numbers."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(5, 7), nn.Dropout(0.3), nn.BatchNorm1d(7), nn.Linear(7, 1)
        )
        self.register_buffer("epochs", torch.zeros(()))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x + 0.1 * np.random.rand()).squeeze(1), y.float())
        self.log("train_loss", loss)
        return loss * (1 + random.random())

    def validation_step(self, batch, index):
        self.log("valid_loss", self.net(batch[0] + torch.rand(5)).mean())

    def on_train_epoch_end(self):
        self.epochs += 1

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.7)]


PLACES = (
    "on_train_batch_start", "on_before_optimizer_step", "on_train_batch_end", "on_validation_batch_start",
    "on_train_epoch_end", "on_save_checkpoint",
)  # fmt: skip


class Kill(pl.Callback):
    """Kills the process from a step on, where it next comes to a place."""

    def __init__(self, step, place):
        def kill(trainer, *_, **__):
            if trainer.global_step >= step and not trainer.sanity_checking:
                os.kill(os.getpid(), signal.SIGKILL)

        setattr(self, place, kill)


def train(folder, *more):
    pl.seed_everything(5, verbose=False)
    module = Foreign()
    points = ResumePoints(folder / "checkpoints", every_n_steps=2)
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=9, accumulate_grad_batches=2, gradient_clip_val=1.0, logger=False,
        val_check_interval=4, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        callbacks=[RandomState(), points, *more],
    )  # fmt: skip
    loader = ResumableLoader(Noisy(), batch_size=3, shuffle=True, seed=1)
    trainer.fit(
        module,
        loader,
        ResumableLoader(Noisy(), batch_size=9),
        ckpt_path=points.newest,
        weights_only=True,
    )
    states = [
        one.state_dict()
        for one in (module, trainer.optimizers[0], trainer.lr_scheduler_configs[0].scheduler)
    ]
    torch.save([trainer.global_step, *states], folder / "end.pt")
    return 0


def killed(folder, times, seed):
    """A training that is killed so many times, and what it ends with."""
    generator = random.Random(seed)
    folder.mkdir()
    for i in range(times):
        first = 2 + (STEPS - 4) * i // times
        kill = Kill(
            generator.randrange(first, first + max(1, STEPS // times)), generator.choice(PLACES)
        )
        ended = forked(lambda kill=kill: train(folder, kill), folder)
        assert ended.code == -signal.SIGKILL, ended.said
    ended = forked(lambda: train(folder), folder)
    assert ended.code == 0, ended.said
    return torch.load(folder / "end.pt", weights_only=True)


def quiet(work):
    def run():
        import logging
        import warnings

        warnings.simplefilter("ignore")
        logging.disable()
        torch.set_num_threads(1)
        return work()

    return run


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, 20])
def test_a_killed_training_ends_bit_equal(tmp_path, monkeypatch, times):
    monkeypatch.setitem(
        globals(), "forked", lambda work, folder, _forked=forked: _forked(quiet(work), folder)
    )
    (tmp_path / "whole").mkdir()
    assert forked(lambda: train(tmp_path / "whole"), tmp_path).code == 0
    right = torch.load(tmp_path / "whole" / "end.pt", weights_only=True)
    assert right[0] == STEPS
    torch.testing.assert_close(
        killed(tmp_path / "killed", times, seed=times), right, rtol=0, atol=0
    )


def test_batches_and_their_random_numbers_are_the_same_with_any_number_of_workers():
    right = [batch[0] for batch in ResumableLoader(Noisy(), batch_size=5, shuffle=True)]
    for again in (0, 2):
        loader = ResumableLoader(Noisy(), batch_size=5, shuffle=True, num_workers=again)
        loader.load_state_dict({"epoch": 0, "yielded": 3})
        torch.testing.assert_close([batch[0] for batch in loader], right[3:], rtol=0, atol=0)
