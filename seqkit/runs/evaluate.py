"""Metrics of a trained run: on its test split, which finishes it, and on its validation split."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from seqkit.config import complete
from seqkit.data.module import DataModule
from seqkit.errors import DataError, UsageError
from seqkit.files import write_json
from seqkit.interfaces import Objective, TokenSpec
from seqkit.model import Model
from seqkit.runs.folder import SUMMARY
from seqkit.runs.prepare import data_module
from seqkit.runs.trained_model import load
from seqkit.training.silence import silence_lightning
from seqkit.training.trainer import make_trainer

log = logging.getLogger("seqkit")


def evaluate(folder: Path, split: str) -> dict[str, float]:
    """Metrics of a run's weights on a split of its data ("valid" or "test"). Raises UsageError if there is none.

    The test split of a run that was trained and not tested finishes it: its summary gets metrics and baseline.
    """
    import pytorch_lightning as pl

    trained = load(folder)
    config = complete(trained.config)
    pl.seed_everything(config["seed"], verbose=False)
    data = data_module(config, trained.tokenizer, trained.objective)
    if split == "test" and trained.summary.get("state") == "trained":
        check_data(trained.summary, data, folder)
        return finish(folder, trained.summary, trained.model, data, config)["metrics"]
    return evaluate_model(trained.model, data, config, split)


def finish(
    folder: Path, summary: dict[str, Any], model: Model, data: DataModule, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Test a trained run, compute the baseline, and write both to its summary, which is returned."""
    metrics = evaluate_model(model, data, config, "test", title=config["trainer"]["enable_progress_bar"] is not False)
    summary = {
        **summary,
        "state": "finished",
        "metrics": metrics,
        "baseline": baseline(data.objective, model.spec, data),
        "data_sha256": data.sha256(),
    }
    write_json(folder / SUMMARY, summary)
    log.info("tested: %s", ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    return summary


def evaluate_model(
    model: Model, data: DataModule, config: Mapping[str, Any], split: str, *, title: bool = False
) -> dict[str, float]:
    """Metrics of a model on a split, on one device. title: show progress."""
    from seqkit.training.module import TrainingModule
    from seqkit.training.progress import StepProgress

    loader = data.test_dataloader() if split == "test" else data.val_dataloader()
    if not loader:
        raise UsageError("the data has no validation split; give --data.valid_fraction at training, or ask for `test`")
    settings = {name: config["trainer"][name] for name in ("accelerator", "precision")}
    trainer = make_trainer(
        {**settings, "devices": 1, "enable_progress_bar": False},
        logger=False,
        callbacks=[StepProgress(config["recipe"], 0)] if title else [],
    )
    module = TrainingModule(model, data.objective, seed=config["seed"])
    with silence_lightning():
        (metrics,) = (trainer.test if split == "test" else trainer.validate)(module, loader, verbose=False)
    return {name.removeprefix(f"{split}/"): float(value) for name, value in metrics.items()}


def check_data(known: Mapping[str, Any], data: DataModule, folder: Path) -> None:
    """Raise DataError where a split is not the one that the run was trained on."""
    data.train_dataloader()
    for split, digest in data.sha256().items():
        if known.get("data_sha256", {}).get(split, digest) != digest:
            raise DataError(
                f"the {split} data of {folder} has changed since the run began (its SHA-256 differs); "
                "bring the old data back, or train a new run"
            )


def baseline(objective: Objective, spec: TokenSpec, data: DataModule) -> dict[str, float]:
    """Metrics of the best constant prediction, fitted on the training targets, on the test split."""
    from seqkit.objectives.metrics import MeanLoss

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        constant = objective.baseline([objective.prepare(*batch).target for batch in data.train_dataloader()], spec)
        metrics: dict[str, Any] = {"loss": MeanLoss(), **objective.metrics(spec)}
        for batch in data.test_dataloader():
            target = objective.prepare(*batch).target
            output = objective.loss(constant(target), target)
            metrics["loss"].update(output.loss, output.count)
            for name, metric in metrics.items():
                if name != "loss" and output.target is not None and output.target.numel():
                    metric.update(output.preds, output.target)
    return {name: float(metric.compute()) for name, metric in metrics.items()}
