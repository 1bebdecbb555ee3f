"""Loggers that a recipe names (`trainer.logger`), beside metrics.csv, which is always written.

Each builds Lightning's own logger for a run folder, and writes there. Only the environment can name a server: a recipe
may be somebody else's, and must not send data anywhere.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seqkit.errors import UsageError


class LoggerFactory(ABC):
    """Builds a logger of Lightning's for a run."""

    @abstractmethod
    def build(self, folder: Path, recipe: str) -> Any:
        """The logger. Raises UsageError where its package is missing."""


class TensorBoard(LoggerFactory):
    """Event files in the run folder (`tensorboard --logdir runs`)."""

    def build(self, folder: Path, recipe: str) -> Any:
        """`pytorch_lightning.loggers.TensorBoardLogger` in `folder/tensorboard`."""
        _check_installed("tensorboard")
        from pytorch_lightning.loggers import TensorBoardLogger

        return TensorBoardLogger(folder, name="tensorboard", version="")


class WandB(LoggerFactory):
    """Weights & Biases, offline: `wandb sync` sends the run later. Online where WANDB_MODE=online is set."""

    def __init__(self, project: str = "seqkit"):
        self.project = project

    def build(self, folder: Path, recipe: str) -> Any:
        """`pytorch_lightning.loggers.WandbLogger`, which writes to `folder/wandb`."""
        _check_installed("wandb")
        from pytorch_lightning.loggers import WandbLogger

        offline = os.environ.get("WANDB_MODE", "offline") != "online"
        # the same id after a resume: the curves go on
        return WandbLogger(
            project=self.project, name=f"{recipe} {folder.name}", save_dir=folder, id=_id(folder), offline=offline
        )


def _check_installed(package: str) -> None:
    if find_spec(package) is None:
        raise UsageError(f'trainer.logger needs the package {package}: pip install "seqkit[{package}]"')


def _id(folder: Path) -> str:
    return re.sub(r"[^\w.-]", "-", "-".join(folder.absolute().parts[-3:]))[-64:]
