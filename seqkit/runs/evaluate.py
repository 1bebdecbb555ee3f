"""Metrics of a trained run: on its test split, which finishes it, and on its validation split."""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqkit.config import Config, complete
from seqkit.data.module import DataModule
from seqkit.errors import DivergedError, UsageError, one_line
from seqkit.interfaces import IGNORE, LossOutput, Objective, TokenSpec
from seqkit.interfaces.finite import flaw
from seqkit.model import Model
from seqkit.objectives.classify import Classify
from seqkit.objectives.labels import LabelObjective
from seqkit.objectives.next_token import NextToken
from seqkit.objectives.regress import Regress
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.progress import track
from seqkit.runs.intervals import errors_by_target, has_intervals, intervals, wilson
from seqkit.runs.reopened import check_data, reopened, with_data
from seqkit.runs.summary import Interval, Summary, data_name, target_names
from seqkit.runs.trained_model import load_one
from seqkit.training.loggers import log_test_metrics
from seqkit.training.trainer import make_trainer, silence_lightning

log = logging.getLogger("seqkit")


def evaluate(
    folder: Path, split: str, specialist: Specialist | None = None, *, moved_to: str | None = None
) -> dict[str, float]:
    """Metrics of a run's weights on a split of its data ("valid" or "test"). Raises UsageError if there is none.

    The test split of a run that was trained and not tested finishes it: its summary gets metrics and baselines.
    specialist: as of `finish`. moved_to: where the run's files are now; None: where it says.
    """
    import pytorch_lightning as pl

    trained = with_data(load_one(folder), moved_to)
    trained.objective.check_trainable()
    config = complete(trained.config)
    pl.seed_everything(config["seed"], verbose=False)
    is_test = split == "test"
    words = ("evaluate",) if is_test else ("evaluate", "--split", split)
    data, doubt = reopened(trained, ["test" if is_test else "validation"], words=words)
    if is_test and trained.summary.state == "trained":
        check_data(trained.summary.data_sha256, data, folder)
        return finish(folder, trained.summary, trained.model, data, config, specialist).metrics
    metrics = evaluate_model(trained.model, data, config, split, title=True)
    if doubt:
        log.warning("%s, so its metrics may be other ones", doubt)
    return metrics


Tested = list[tuple[Tensor, Tensor]]
"""Predictions of the head and targets, of each batch of a loader."""

Specialist = Callable[[DataModule, Tested], dict[str, Any] | None]
"""A result to set beside a model's, which it gets: `seqkit.report.beside.beside`."""


def finish(
    folder: Path,
    summary: Summary,
    model: Model,
    data: DataModule,
    config: Config,
    specialist: Specialist | None = None,
    *,
    loggers: Sequence[Any] = (),
) -> Summary:
    """Test a trained run, compute the baselines, and write all to its summary, which is returned.

    specialist: the strong baseline; None, or a trial run: there is none beside the best constant. loggers: Lightning's,
    which get the metrics, too.
    """
    objective = data.objective
    num_test = len(data.test_dataloader().examples)
    summary = summary.changed(num_test=num_test, data_sha256=data.sha256())
    summary.write(folder)  # a test that is stopped goes on with the same data
    metrics, found_intervals, tested = _tested(model, data, config)
    constant, num_predictions = baseline(objective, model.spec, data)
    splits = data.splits()
    valid = data.val_dataloader()
    is_counted = (
        isinstance(objective, Classify)
        and tested
        and num_predictions
        and data.test_groups() is None
    )
    beside = None
    if specialist is not None and not summary.trial:
        beside = _beside(specialist, data, tested)
    if isinstance(objective, NextToken) and (num_bytes := bytes_of_test_split(data)):
        for found in (metrics, constant, *([] if beside is None else [beside["metrics"]])):
            found["bits_per_byte"] = found["loss"] / math.log(2) * num_predictions / num_bytes
    summary = summary.changed(
        state="finished",
        metrics=metrics,
        baseline=constant,
        unknown=data.unknown(),
        data_sha256=data.sha256(),
        date=datetime.now().isoformat(timespec="seconds"),
        data=data_name(config),
        strong_baseline=beside,
        intervals=found_intervals or None,
        accuracy_interval=wilson(metrics["accuracy"], num_predictions) if is_counted else None,
        num_valid=None if isinstance(valid, list) else len(valid.examples),
        split_rule=splits.rule,
        positive=objective.positive_name if isinstance(objective, Classify) else None,
    )
    summary.write(folder)
    if undefined := [name for name, value in metrics.items() if math.isnan(value)]:
        log.warning(
            "undefined on the test split, where targets are all alike: %s", ", ".join(undefined)
        )
    log_test_metrics(loggers, metrics, summary.steps)
    log.info("tested: %s", _listed(metrics))
    return summary


def _tested(
    model: Model, data: DataModule, config: Config
) -> tuple[dict[str, float], list[Interval], Tested]:
    """Metrics on the test split; prediction intervals of a regression, if it has some; predictions of labels.

    There are no predictions of the tokens of several examples, which are not independent.
    """
    objective = data.objective
    is_alone = len(data.test_dataloader().examples) == 1
    test = Tested()
    is_kept = isinstance(objective, LabelObjective) and (objective.level == "sequence" or is_alone)
    metrics = evaluate_model(
        model, data, config, "test", title=True, tested=test if is_kept else None
    )
    if not (isinstance(objective, Regress) and has_intervals(objective)):
        return metrics, [], test
    return metrics, intervals(errors_by_target(objective, test), target_names(config)), test


def _beside(specialist: Specialist, data: DataModule, tested: Tested) -> dict[str, Any] | None:
    """The specialist's results; None, with a line in the log, where it has none: a run needs none."""
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = specialist(data, tested)
    except Exception as error:  # whatever classical features make of a user's own data
        log.warning("no strong baseline: %s", one_line(f"{error}")[:300])
        return None
    if found is not None:
        log.info(
            "beside it, %s in %.1f s: %s",
            found["name"],
            found["seconds"],
            _listed(found["metrics"]),
        )
    return found


def _listed(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def evaluate_model(
    model: Model,
    data: DataModule,
    config: Config,
    split: str,
    *,
    title: bool = False,
    tested: Tested | None = None,
) -> dict[str, float]:
    """Metrics of a model on a split, on one device. Raises DivergedError where it computes what is not finite.

    title: whether to show progress, unless the configuration says no. tested: gets what each batch adds; None: nothing.
    """
    from seqkit.training.module import TrainingModule
    from seqkit.training.progress import StepProgress

    def seen(output: LossOutput) -> None:
        # those of parts alone are NaN where an example lacks one
        counted = None if data.objective.encodes_parts_alone else output.preds
        for values in (output.loss, output.probabilities, counted):
            if values is not None and (what := flaw(values)):
                raise DivergedError(
                    f"the model computes {what} on the {split} split, so it has no metrics: training diverged, or the "
                    "weights are damaged; train again with a lower --optimizer.lr"
                )
        if tested is not None and output.prediction is not None and output.inputs is not None:
            tested.append((output.prediction.cpu(), output.inputs.target.cpu()))

    loader = data.test_dataloader() if split == "test" else data.val_dataloader()
    if not loader:
        raise UsageError(
            "the data has no validation split; train with --data.valid_fraction, or leave out --split"
        )
    settings = {name: config["trainer"][name] for name in ("accelerator", "precision")}
    title = title and config["trainer"]["enable_progress_bar"] is not False
    trainer = make_trainer(
        {**settings, "devices": 1, "enable_progress_bar": False},
        logger=False,
        callbacks=[StepProgress(config["recipe"])] if title else [],
    )
    module = TrainingModule(model, data.objective, seed=config["seed"])
    module.seen = seen
    with silence_lightning():
        (metrics,) = (trainer.test if split == "test" else trainer.validate)(
            module, loader, verbose=False
        )
    return {name.removeprefix(f"{split}/"): float(value) for name, value in metrics.items()}


BASELINE_BATCHES = 100_000
"""Most batches of the training split on which the best constant is fitted."""


def baseline(
    objective: Objective, spec: TokenSpec, data: DataModule, split: str = "test"
) -> tuple[dict[str, float], int]:
    """Metrics of the best constant prediction, fitted on the training split, on another one; and their number.

    split: "test" or "valid". Both are empty, and 0, where the objective knows none.
    """
    from seqkit.objectives.metrics import MeanLoss, update

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loader = data.train_dataloader()
        number = min(len(loader), BASELINE_BATCHES)
        step = objective.baseline_step(
            track(islice(loader, number), "baseline, on training data", number), spec
        )
        if step is None:
            return {}, 0
        metrics: dict[str, Any] = {"loss": MeanLoss(), **objective.metrics(spec)}
        held_out = data.test_dataloader() if split == "test" else data.val_dataloader()
        for batch in track(held_out, "baseline, on held-out data", len(held_out)):
            output = step(batch)
            for metric in metrics.values():
                update(metric, output)
        if isinstance(objective, Seq2Seq):
            metrics |= _most_frequent(objective, loader, held_out)
        with silence_lightning():
            found = {name: float(metric.compute()) for name, metric in metrics.items()}
    return found, int(metrics["loss"].count)


def _most_frequent(objective: Seq2Seq, train: Any, held_out: Any) -> dict[str, Any]:
    """Metrics of the target that is most frequent in training, as if it were generated for each held-out example."""
    counts = Counter(tuple(one[0][one[0] != IGNORE].tolist()) for one in train.examples.targets)
    ids = torch.tensor([counts.most_common(1)[0][0]])
    metrics = objective.generation_metrics()
    for target in held_out.examples.targets:
        for metric in metrics.values():
            metric.update(ids, target[None])
    return metrics


def bytes_of_test_split(data: DataModule) -> int:
    """UTF-8 bytes of the test split; 0 if its examples are no texts, or only a part of it is used."""
    limit = data.limit
    if limit is not None and len(data.test_dataloader().examples) >= limit:
        return 0
    total = 0
    for sample in data.splits().test:
        if not isinstance(sample.raw, str):
            return 0
        total += len(sample.raw.encode("utf-8", errors="surrogatepass"))
    return total
