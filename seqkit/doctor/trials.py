"""Short trainings of a copy of a recipe's model, by Lightning's Trainer and the TrainingModule of every run.

They run on the CPU in float32, write no file, and leave model and random numbers as they were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from pytorch_lightning import Callback
from torch import nn
from torch.utils.data import DataLoader

from seqkit.config.record import learning_rates
from seqkit.doctor.subject import Subject
from seqkit.errors import DivergedError
from seqkit.interfaces import LabeledBatch
from seqkit.training.health import gradient_norms, total_norm
from seqkit.training.optim import Schedule
from seqkit.training.trainer import make_trainer, silence_lightning, train


class Trial(Callback):
    """A short training, and its record.

    losses, norms: mean loss, and norm of its gradient, of each step, up to the first that is not finite. gradients: the
    norms by layer. touched: names of parameters that had a gradient other than zero. model: the trained copy.

    batches: a step each. schedule: None: the learning rates of the configuration, from the first step. repeats: whether
    every step draws the same masks and dropout.
    """

    def __init__(
        self,
        subject: Subject,
        batches: Sequence[LabeledBatch],
        schedule: Schedule | None,
        *,
        repeats: bool = False,
    ):
        self.losses = list[float]()
        self.norms = list[float]()
        self.gradients = list[dict[str, float]]()
        self.touched = set[str]()
        self.seed = subject.prepared.seed
        self.repeats = repeats
        self.model: nn.Module = subject.fresh()
        module = replace(subject.prepared, model=self.model).training_module(len(batches))
        module.schedule = schedule
        module.skip_nonfinite = 0
        given = subject.prepared.built.trainer
        own = {
            "accelerator": "cpu",
            "devices": 1,
            "strategy": "auto",
            "max_steps": len(batches),
            "max_epochs": -1,
        }
        own |= {
            "enable_progress_bar": False,
            "log_every_n_steps": 0,
            "gradient_clip_val": given["gradient_clip_val"],
        }
        loader: Any = DataLoader(list(batches), batch_size=None, collate_fn=lambda batch: batch)  # type: ignore[arg-type]
        with torch.random.fork_rng(devices=[]), silence_lightning():
            torch.manual_seed(self.seed)
            try:
                train(make_trainer(own, logger=False, callbacks=[self]), module, loader, None)
            except DivergedError:
                self._record(module)
        self.optimizer: torch.optim.Optimizer = module.optimizers().optimizer

    @property
    def is_finite(self) -> bool:
        """Whether all losses and gradients were finite."""
        return all(map(math.isfinite, (*self.losses, *self.norms)))

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Draw the same random numbers again."""
        if self.repeats:
            torch.manual_seed(self.seed)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Note the gradient of the summed loss, which the module divides later."""
        self._layers = gradient_norms(pl_module.model)
        named = pl_module.model.named_parameters()
        self.touched |= {name for name, p in named if p.grad is not None and bool(p.grad.any())}

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the step."""
        self._record(pl_module)

    def _record(self, module: Any) -> None:
        whole = total_norm(self._layers)
        now = float(module.gradient_norm)
        self.losses.append(float(module.step_loss))
        self.norms.append(now)
        self.gradients.append(
            {name: norm * (now / whole if whole else 0.0) for name, norm in self._layers.items()}
        )


def rates_in(config: Any, path: str = "optimizer") -> list[tuple[str, float]]:
    """(dotted key, learning rate) pairs of an optimizer's configuration and of the optimizers inside it."""
    return [(f"{path}.{key}", float(rate)) for key, rate in learning_rates(config).items()]
