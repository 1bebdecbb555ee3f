"""A model that begins with the weights of another trains block by block, the last first."""

from __future__ import annotations

import pytorch_lightning as pl
from torch import nn

from seqkit.errors import UsageError
from seqkit.training.optim import depths


class GradualUnfreezing(pl.Callback):
    """Blocks begin to train one after the other, the last first; the embedder does last (Howard and Ruder 2018, 3.3).

    The head and all that lies behind the last block train from the beginning. epochs_per_block: epochs between two
    blocks. Frozen parameters have no gradient, so no optimizer moves or decays them; the schedule of the learning rate
    goes on meanwhile.
    Raises UsageError for a model without blocks, several devices, or a training that ends before all blocks train.
    """

    def __init__(self, *, epochs_per_block: int = 1) -> None:
        if epochs_per_block < 1:
            raise ValueError(f"epochs_per_block={epochs_per_block} counts epochs; make it 1 or more")
        self.epochs_per_block = epochs_per_block
        self._depths: list[tuple[nn.Parameter, int]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.world_size > 1:
            raise UsageError("trainer.callbacks: GradualUnfreezing trains on one device; give --trainer.devices 1")
        model = pl_module.get_submodule("model")
        by_name = depths(model)
        last = max(by_name.values())
        needed = last * self.epochs_per_block + 1
        epochs = trainer.max_epochs
        if epochs is not None and 0 < epochs < needed:
            raise UsageError(
                f"trainer.callbacks: GradualUnfreezing needs {needed} epochs until all {last - 1} blocks and the "
                f"embedder train, and training has {epochs}; give --trainer.max_epochs {needed}, or Freeze"
            )
        named = model.named_parameters()
        self._depths = [(p, by_name[name]) for name, p in named if p.requires_grad]
        self._unfreeze(trainer.current_epoch, last)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._unfreeze(trainer.current_epoch, max(depth for _, depth in self._depths))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._restore()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._restore()

    def _unfreeze(self, epoch: int, last: int) -> None:
        for parameter, depth in self._depths:
            parameter.requires_grad_(depth >= last - epoch // self.epochs_per_block)

    def _restore(self) -> None:
        for parameter, _ in self._depths:
            parameter.requires_grad_(True)
