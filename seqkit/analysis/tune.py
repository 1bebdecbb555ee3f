"""A learning rate for a training, by Lightning's learning rate finder."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

from pytorch_lightning.tuner import Tuner
from torch import Tensor

from seqkit.runs.prepare import Prepared
from seqkit.training.module import TrainingModule
from seqkit.training.trainer import make_trainer, silence_lightning

LOWEST = 1e-5
HIGHEST = 1.0
NUM_STEPS = 100
"""Learning rates between which the finder trains, and its number of optimizer steps."""

SKIPPED = 20
"""First steps that are no suggestion: there the finder divides the noise of the loss by tiny differences of rates."""


def find_learning_rate(prepared: Prepared) -> float | None:
    """Rate at which the loss falls fastest while the rate rises exponentially (Smith 2017); it trains the model.

    All parameter groups have the same rate, and the schedule is left out: the rate is for its highest. The training is
    one of float32 on one device. None: the loss rises before there is a suggestion.
    """
    own = {
        "devices": 1,
        "strategy": "auto",
        "precision": "32-true",
        "max_epochs": -1,
        "max_steps": NUM_STEPS,
    }
    settings = {**prepared.built.trainer, **own, "enable_progress_bar": False}
    steps: dict[str, Any] = {"num_steps": NUM_STEPS, "skip_nonfinite": NUM_STEPS}
    module = _MeanLoss(
        prepared.model, prepared.data.objective, optimizer=prepared.built.optimizer, **steps
    )
    with silence_lightning(), TemporaryDirectory() as folder:
        trainer = make_trainer(settings, logger=False, default_root_dir=folder)
        batches = prepared.data.train_dataloader()
        found = Tuner(trainer).lr_find(
            module,
            batches,
            min_lr=LOWEST,
            max_lr=HIGHEST,
            num_training=NUM_STEPS,
            update_attr=False,
        )
    if found is None:
        return None
    return found.suggestion(skip_begin=SKIPPED)


class _MeanLoss(TrainingModule):
    """A training whose steps return mean losses: a sum rises and falls with the number of predictions of a batch."""

    def training_step(self, batch: Any, index: int) -> Tensor:
        loss = super().training_step(batch, index)
        self._unit = self._step[-1].count.clamp(min=1)
        return loss / self._unit
