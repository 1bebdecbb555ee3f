"""A run: from a complete configuration to a folder.

config.yaml  state.json  metrics.csv  checkpoints/model.safetensors  summary.json  log.txt
(report.html and summary.html: seqkit.report)
"""

from __future__ import annotations

import logging
import math
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from seqkit.config import Built, build, complete, to_yaml
from seqkit.data.module import DataModule
from seqkit.errors import DataError, DivergedError, UsageError
from seqkit.files import write_atomic, write_json
from seqkit.interfaces import Objective, Tokenizer, TokenSpec
from seqkit.model import Model
from seqkit.runs.trained_model import load
from seqkit.training.checkpoint import load_body, save_weights
from seqkit.training.silence import silence_lightning
from seqkit.training.trainer import TrainerSettings, count_steps, make_trainer, train

log = logging.getLogger("seqkit")

PACKAGES = ("seqkit", "torch", "torchvision", "torchaudio", "timm", "pytorch-lightning", "einops", "numpy")


@dataclass(frozen=True)
class _Prepared:
    """Model and data of a run, and the number of its optimizer steps."""

    built: Built
    model: Model
    data: DataModule
    num_steps: int


def run(
    config: Mapping[str, Any],
    folder: Path,
    *,
    initial: Path | None = None,
    examine: Callable[[Model, DataModule], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Train what a complete configuration describes, test it, and fill `folder`, which must not exist yet.

    initial: a run whose embedder and backbone are taken, such as one of pretraining; None: random weights. examine:
    of the tested model and its data; what it returns is added to the summary that is returned, not to its file.
    Stopped by Ctrl-C or SIGTERM, it keeps and tests the weights so far; where it fails before the first optimizer
    step, it leaves no folder behind. Returns the summary.
    Raises DataError, UsageError (a component refused) or DivergedError, each with one line.
    """
    from pytorch_lightning.loggers import CSVLogger

    from seqkit.training.progress import StepProgress

    if folder.exists():
        raise UsageError(f"{folder} exists already, and a run is never overwritten; give another --out")
    prepared = _prepare(config, initial)
    built, model, data, num_steps = prepared.built, prepared.model, prepared.data, prepared.num_steps
    tokenizer, objective, seed = data.tokenizer, data.objective, config["seed"]
    # all splits are encoded here: a fault in the test split is better found before training than after it
    loaders = data.train_dataloader(), data.val_dataloader() or None, data.test_dataloader()
    callbacks = [StepProgress(config["recipe"], num_steps)] if built.trainer["enable_progress_bar"] is not False else []
    trainer = make_trainer(
        {**built.trainer, "enable_progress_bar": False},
        logger=CSVLogger(folder, name="", version=""),
        callbacks=callbacks,
        default_root_dir=folder,
    )
    with _new(folder, trainer), silence_lightning(), _logging_to(folder / "log.txt"):
        write_atomic(folder / "config.yaml", to_yaml(dict(config)).encode())
        write_json(folder / "state.json", {"tokenizer": tokenizer.state(), "objective": objective.state()})
        log.info("recipe %s, %s parameters, seed %d", config["recipe"], f"{model.num_parameters:,}", seed)
        module = _training_module(prepared, seed)
        started = time.perf_counter()
        finished = train(trainer, module, *loaders[:2])
        seconds, steps = time.perf_counter() - started, trainer.global_step
        digest = save_weights(model, folder / "checkpoints" / "model.safetensors")
        metrics = _evaluate(trainer, module, data, "test")
        summary = {
            "recipe": config["recipe"],
            "backbone": type(model.backbone).__name__,
            "objective": type(objective).__name__,
            "metrics": metrics,
            "num_train": len(loaders[0].examples),
            "train_tokens": sum(loaders[0].examples.lengths),
            "num_test": len(loaders[2].examples),
            **({} if data.limit is None else {"limit": data.limit}),
            "baseline": _baseline(objective, model.spec, data),
            "num_parameters": model.num_parameters,
            "extents": data.extents(),
            "tokens_seen": module.tokens_seen,
            "steps": steps,
            "wall_seconds": round(seconds, 1),
            "seed": seed,
            "finished": finished,
            "sha256": digest,
            "data_sha256": data.sha256(),
            "versions": versions(),
        }
        write_json(folder / "summary.json", summary)
        log.info("done in %.0f s: %s", seconds, ", ".join(f"{k} {v:.4f}" for k, v in metrics.items()))
        return summary | ({} if examine is None else examine(model, data))


def trial(config: Mapping[str, Any], *, initial: Path | None = None) -> dict[str, Any]:
    """Train as `run` does, but evaluate on the validation split, and keep nothing; the test split is not read.

    Returns metrics, steps, seconds and the SHA-256 of the splits used. Raises as `run`, DivergedError where the
    validation loss is not finite, and UsageError where the data has no validation split.
    """
    prepared = _prepare(config, initial)
    data, settings = prepared.data, {**prepared.built.trainer, "enable_progress_bar": False}
    train_loader, valid_loader = data.train_dataloader(), data.val_dataloader()
    if not valid_loader:
        raise UsageError("the data has no validation split to tune on; give --data.valid_fraction 0.1")
    trainer = make_trainer({**settings, "limit_val_batches": 0}, logger=False)
    module = _training_module(prepared, config["seed"])
    with silence_lightning():
        started = time.perf_counter()
        finished = train(trainer, module, train_loader, None)
        seconds, steps = time.perf_counter() - started, trainer.global_step
        if not finished:
            raise KeyboardInterrupt
        settings = {name: settings[name] for name in ("accelerator", "precision")}
        alone = make_trainer(
            {**settings, "devices": 1}, logger=False, enable_model_summary=False, enable_progress_bar=False
        )
        metrics = _evaluate(alone, module, data, "valid")
    if not math.isfinite(metrics["loss"]):
        raise DivergedError(f"the validation loss is {metrics['loss']}; lower the learning rate")
    return {"metrics": metrics, "steps": steps, "wall_seconds": round(seconds, 2), "data_sha256": data.sha256()}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result may depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def _prepare(config: Mapping[str, Any], initial: Path | None) -> _Prepared:
    """Seed the generators, read the data, build the model. Raises as `run`."""
    import pytorch_lightning as pl

    seed = config["seed"]
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}; give 0 to {2**32 - 1}")
    _check_one_device(config["trainer"])
    pl.seed_everything(seed, verbose=False)
    built = build(config)
    TrainerSettings.of(built.trainer)  # refuses before any data is read
    model, data = _model_and_data(built, seed)
    if initial is not None:
        load_body(model, initial)
    return _Prepared(built, model, data, count_steps(built.trainer, len(data.train_dataloader())))


def _training_module(prepared: _Prepared, seed: int) -> Any:
    from seqkit.training.module import TrainingModule

    return TrainingModule(
        prepared.model,
        prepared.data.objective,
        optimizer=prepared.built.optimizer,
        schedule=prepared.built.schedule,
        num_steps=prepared.num_steps,
        seed=seed,
    )


def _check_one_device(settings: Mapping[str, Any]) -> None:
    """Raise UsageError for several devices: each would be a process that makes a run folder of its own."""
    devices = settings["devices"]
    several = len(devices) > 1 if isinstance(devices, list) else str(devices).isdigit() and int(devices) > 1
    several = several or (devices == "auto" and settings["accelerator"] != "cpu" and torch.cuda.device_count() > 1)
    if several or settings["num_nodes"] != 1:
        raise UsageError(
            f"trainer.devices is {devices} and trainer.num_nodes {settings['num_nodes']}; "
            "a run takes one device so far: give --trainer.devices 1"
        )


def evaluate(folder: Path, split: str) -> dict[str, float]:
    """Metrics of a run's weights on a split of its data ("valid" or "test"). Raises UsageError if there is none."""
    import pytorch_lightning as pl

    from seqkit.training.module import TrainingModule

    trained = load(folder)
    config = complete(trained.config)
    pl.seed_everything(config["seed"], verbose=False)
    data = data_module(config, trained.tokenizer, trained.objective)
    settings = {name: config["trainer"][name] for name in ("accelerator", "precision")}
    trainer = make_trainer(
        {**settings, "devices": 1}, logger=False, enable_model_summary=False, enable_progress_bar=False
    )
    with silence_lightning():
        return _evaluate(trainer, TrainingModule(trained.model, trained.objective, seed=config["seed"]), data, split)


def new_folder(recipe: str, root: Path = Path("runs")) -> Path:
    """A folder `root/recipe/time` that does not exist yet: a run is never overwritten."""
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    folder, again = root / recipe / stamp, 1
    while folder.exists():
        again += 1
        folder = root / recipe / f"{stamp}-{again}"
    return folder


def untrained(config: Mapping[str, Any]) -> tuple[Model, DataModule]:
    """The model of a complete configuration with its initial weights, and its data, set up. Raises as `run`."""
    return _model_and_data(build(config), config["seed"])


def data_module(config: Mapping[str, Any], tokenizer: Tokenizer, objective: Objective) -> DataModule:
    """The data of a complete configuration for a fitted tokenizer and objective, set up. Raises as `run`."""
    return _data(build(config), tokenizer, objective, config["seed"])


def _model_and_data(built: Built, seed: int) -> tuple[Model, DataModule]:
    data = _data(built, built.tokenizer, built.model["objective"], seed)
    try:
        return Model(built.tokenizer.spec, **built.model), data
    except DataError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def _data(built: Built, tokenizer: Tokenizer, objective: Objective, seed: int) -> DataModule:
    try:
        data = DataModule(**built.data, tokenizer=tokenizer, objective=objective, seed=seed)
    except DataError:
        raise
    except ValueError as error:
        raise UsageError(f"data: {error}") from error
    data.setup()
    return data


def _evaluate(trainer: Any, module: Any, data: DataModule, split: str) -> dict[str, float]:
    loader = data.test_dataloader() if split == "test" else data.val_dataloader()
    if not loader:
        raise UsageError("the data has no validation split; give --data.valid_fraction at training, or ask for `test`")
    loop = trainer.test if split == "test" else trainer.validate
    (metrics,) = loop(module, loader, verbose=False)
    return {name.removeprefix(f"{split}/"): float(value) for name, value in metrics.items()}


def _baseline(objective: Objective, spec: TokenSpec, data: DataModule) -> dict[str, float]:
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


@contextmanager
def _new(folder: Path, trainer: Any) -> Iterator[None]:
    """Make the folder, and remove what was made where the run fails before its first optimizer step."""
    parents = [path for path in folder.parents if not path.exists()]
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        _remove_empty(parents)
        raise UsageError(f"the run folder {folder} cannot be made ({error.strerror}); give another --out") from error
    try:
        yield
    except BaseException:
        if trainer.global_step == 0:
            shutil.rmtree(folder, ignore_errors=True)
            _remove_empty(parents)
        raise


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # not empty: another run has made its folder there
            folder.rmdir()


@contextmanager
def _logging_to(path: Path) -> Any:
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    watched = [logging.getLogger(name) for name in ("seqkit", "pytorch_lightning")]
    log.setLevel(logging.INFO)
    for logger in watched:
        logger.addHandler(handler)
    try:
        yield
    except BaseException:
        log.exception("the run stopped")
        raise
    finally:
        for logger in watched:
            logger.removeHandler(handler)
        handler.close()
