"""Loggers that a recipe names (`trainer.logger`), beside metrics.csv, which is always written.

Each builds Lightning's own logger for a run folder, and writes there. Only the environment can name a server: a recipe
may be somebody else's, and must not send data anywhere.
"""

from __future__ import annotations

import json
import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seqkit.errors import UsageError, described, one_line
from seqkit.files import write_atomic

log = logging.getLogger("seqkit")


class LoggerFactory(ABC):
    """Builder of a logger."""

    @abstractmethod
    def build(self, folder: Path, recipe: str) -> Any:
        """Logger of Lightning's for a run folder. Raises UsageError if its package is missing."""


class TensorBoard(LoggerFactory):
    """Event files in the run folder (`tensorboard --logdir runs`)."""

    def build(self, folder: Path, recipe: str) -> Any:
        """`pytorch_lightning.loggers.TensorBoardLogger` in `folder/tensorboard`."""
        _check_installed("tensorboard", "tensorboard")
        from pytorch_lightning.loggers import TensorBoardLogger

        return TensorBoardLogger(folder, name="tensorboard", version="")


class WandB(LoggerFactory):
    """Weights & Biases, offline: `wandb sync` sends the run later. Online if WANDB_MODE=online is set."""

    def __init__(self, project: str = "seqkit"):
        self.project = project

    def build(self, folder: Path, recipe: str) -> Any:
        """`pytorch_lightning.loggers.WandbLogger`, which writes to `folder/wandb`."""
        _check_installed("wandb", "wandb")
        from pytorch_lightning.loggers import WandbLogger

        offline = os.environ.get("WANDB_MODE", "offline") != "online"
        # the same id after a resume: the curves go on
        own = re.sub(r"[^\w.-]", "-", "-".join(folder.absolute().parts[-3:]))[-64:]
        return WandbLogger(
            project=self.project,
            name=f"{recipe} {folder.name}",
            save_dir=folder,
            id=own,
            offline=offline,
        )


class MLflow(LoggerFactory):
    """MLflow, in a database in the run folder (`mlflow ui --backend-store-uri sqlite:///RUN/mlflow.db`).

    If MLFLOW_TRACKING_URI is set, at that server. experiment: experiment under which the run is listed.
    """

    def __init__(self, experiment: str = "seqkit"):
        self.experiment = experiment

    def build(self, folder: Path, recipe: str) -> Any:
        """`pytorch_lightning.loggers.MLFlowLogger`, which writes to `folder/mlflow.db`; a resumed run goes on there.

        MLflow's store of plain files is not used, since its version 3 refuses it.
        """
        for package in ("mlflow", "sqlalchemy", "alembic"):
            _check_installed(package, "mlflow")
        from pytorch_lightning.loggers import MLFlowLogger

        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
        own = folder / "mlflow-run"
        database = f"sqlite:///{(folder / 'mlflow.db').absolute()}"
        logger = MLFlowLogger(
            experiment_name=self.experiment,
            run_name=f"{recipe} {folder.name}",
            tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or database,
            artifact_location=str((folder / "mlflow-artifacts").absolute()),
            run_id=own.read_text(encoding="utf-8").strip() if own.is_file() else None,
        )
        write_atomic(own, str(logger.run_id).encode())
        return logger


def build_loggers(
    factories: Iterable[LoggerFactory] | None, folder: Path, recipe: str
) -> list[Any]:
    """The loggers of a run, in the first process alone: two would make the tables of a database at once."""
    from pytorch_lightning.utilities import rank_zero_only

    if getattr(rank_zero_only, "rank", 0) != 0:
        return []
    return [one.build(folder, recipe) for one in factories or ()]


def log_settings(loggers: Iterable[Any], config: Mapping[str, Any]) -> None:
    """Log a complete configuration as hyperparameters, by dotted key. A run that goes on has logged them before."""
    settings = dict(_flat(config))
    for logger in loggers:
        logger.log_hyperparams(settings)


def log_test_metrics(loggers: Iterable[Any], metrics: Mapping[str, float], step: int) -> None:
    """Log metrics of the test split as `test/NAME` after that many steps; the log says so if one cannot be reached."""
    row = {f"test/{name}": value for name, value in metrics.items()}
    for logger in loggers:
        try:
            logger.log_metrics(row, step=step)
            logger.finalize("success")
        # a server, a database, a disk: the run is tested, whatever becomes of its copy
        except Exception as error:
            log.warning(
                "%s did not get the test metrics (%s)",
                type(logger).__name__,
                one_line(described(error))[:300],
            )


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, str | int | float | bool]]:
    """Yield (dotted key, value) of plain data; lists are JSON."""
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            # characters that MLflow takes
            own = re.sub(r"[^\w.\-/ ]", "_", str(name))
            yield from _flat(below, f"{key}.{own}" if key else own)
    elif isinstance(value, str | int | float | bool):
        yield key, value[:500] if isinstance(value, str) else value  # MLflow takes 6,000 characters
    else:
        yield key, json.dumps(value, default=str)[:500]


def _check_installed(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise UsageError(
            f'trainer.logger needs the package {package}: pip install "seqkit[{extra}]"'
        )
