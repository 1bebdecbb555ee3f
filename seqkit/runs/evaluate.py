"""Metrics of a trained run: on its test split, which finishes it, and on its validation split."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from seqkit.classical.strong_baseline import Found
from seqkit.config import Config, complete
from seqkit.data.module import DataModule
from seqkit.errors import DivergedError, UsageError
from seqkit.interfaces import IGNORE, LossOutput, Objective, TokenSpec
from seqkit.interfaces.finite import flaw
from seqkit.model import Model
from seqkit.objectives.classify import Classify
from seqkit.objectives.labels import LabelObjective
from seqkit.objectives.next_token import NextToken
from seqkit.objectives.regress import Regress
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.progress import track
from seqkit.raw import GraphData
from seqkit.runs.intervals import errors_by_target, has_intervals, intervals
from seqkit.runs.joined import Joined, loaded
from seqkit.runs.joining import found_for, in_order, tolerant
from seqkit.runs.reopened import check_data, reopened, with_data
from seqkit.runs.summary import (
    Interval,
    JoinedMethod,
    StrongBaseline,
    Summary,
    data_name,
    target_names,
)
from seqkit.runs.trained_model import load_one
from seqkit.training.loggers import log_test_metrics
from seqkit.training.trainer import make_trainer, silence_lightning

log = logging.getLogger("seqkit")


def evaluate(
    folder: Path, split: str, scorer: Scorer | None = None, *, moved_to: str | None = None
) -> dict[str, float]:
    """Metrics of a run on a split of its data ("valid" or "test"). Raises UsageError if there is none.

    The test split of a run that was trained and not tested finishes it: its summary gets metrics and baselines.
    scorer: as of `finish`. moved_to: where the run's files are now; None: where it says.
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
        return finish(folder, trained.summary, trained.model, data, config, scorer).metrics
    joined = trained.joined
    if joined is not None and not is_test:
        log.warning(
            "these metrics are of the network alone: the method that joins it was fitted to validation rows, too"
        )
        joined = None
    metrics = _tested(trained.model, data, config, joined, split).metrics
    if doubt:
        log.warning("%s, so its metrics may be other ones", doubt)
    return metrics


Outputs = list[tuple[Tensor, Tensor]]
"""Predictions of the head and targets, of each batch of a loader."""


class Scored(Protocol):
    """A run's predictions for the test split, with 95 % intervals: `seqkit.report.beside.Scored`."""

    def interval(self) -> tuple[float, float] | None:
        """Ends of the interval of the run's main metric; None: it has none."""

    def difference(self, other: Tensor) -> list[float] | None:
        """The run's main metric less that of other predictions, and the ends of its interval; None: it has none."""


Scorer = Callable[[DataModule, Tensor, Tensor, float], Scored]
"""Scores a run's predictions [m k] against targets; the number is its main metric."""


@dataclass(frozen=True)
class Tested:
    """A run on a split.

    metrics: of the run. network: metrics of the network alone, where a classical method joins it, else empty.
    outputs: predictions of all examples in their order, [m k], of `run`, `network` and `classical`, and target:
    theirs; empty and None where examples have several tokens each, which are not independent.
    """

    metrics: dict[str, float]
    network: dict[str, float] = field(default_factory=dict)
    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    target: Tensor | None = None


def finish(
    folder: Path,
    summary: Summary,
    model: Model,
    data: DataModule,
    config: Config,
    scorer: Scorer | None = None,
    *,
    loggers: Sequence[Any] = (),
) -> Summary:
    """Test a trained run, compute the baselines, and write all to its summary, which is returned.

    scorer: gives intervals of the main metric; None: none is computed. loggers: Lightning's, which get the metrics,
    too. A trial run has no classical method beside it.
    """
    objective = data.objective
    num_test = len(data.test_dataloader().examples)
    summary = summary.changed(num_test=num_test, data_sha256=data.sha256())
    summary.write(folder)  # a test that is stopped goes on with the same data
    joined = loaded(folder, summary, data.tokenizer, objective)
    tested = _tested(model, data, config, joined, "test")
    metrics = tested.metrics
    found_intervals: list[Interval] = []
    if isinstance(objective, Regress) and has_intervals(objective):
        both = [(tested.outputs["run"], tested.target)] if tested.target is not None else []
        found_intervals = intervals(errors_by_target(objective, both), target_names(config))
    constant, num_predictions = baseline(objective, model.spec, data)
    splits = data.splits()
    valid = data.val_dataloader()
    scored = None
    beside = None
    if scorer is not None and tested.target is not None:
        with tolerant("intervals"):
            value = metrics.get(objective.primary_metric, math.nan)
            scored = scorer(data, tested.outputs["run"], tested.target, value)
    if config.get("classical") != "off" and not summary.trial:
        with tolerant("classical method"):
            beside = _beside(summary, data, tested, scored)
    if beside is not None:
        known = _listed(beside.metrics)
        log.info("beside it, %s in %.1f s: %s", beside.name, beside.seconds, known)
    if isinstance(objective, NextToken) and (num_bytes := bytes_of_test_split(data)):
        for found in (metrics, constant, *([] if beside is None else [beside.metrics])):
            found["bits_per_byte"] = found["loss"] / math.log(2) * num_predictions / num_bytes
    entry = summary.joined
    if entry is not None:
        difference = scored.difference(tested.outputs["network"]) if scored else None
        entry = entry.changed(metrics=tested.network, difference=difference)
    summary = summary.changed(
        state="finished",
        metrics=metrics,
        baseline=constant,
        unknown=data.unknown(),
        data_sha256=data.sha256(),
        date=datetime.now().isoformat(timespec="seconds"),
        data=data_name(config),
        joined=entry,
        strong_baseline=beside,
        intervals=found_intervals or None,
        main_interval=scored.interval() if scored else None,
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
    model: Model, data: DataModule, config: Config, joined: Joined | None, split: str
) -> Tested:
    """A run on a split. joined: the classical method that joins the network; None: there is none."""
    from seqkit.classical.method import metrics_of

    objective = data.objective
    loader = data.test_dataloader() if split == "test" else data.val_dataloader()
    is_graph = isinstance(data.splits().test[0].raw, GraphData)
    is_alone = is_graph and not isinstance(loader, list) and len(loader.examples) == 1
    is_kept = isinstance(objective, LabelObjective) and (objective.level == "sequence" or is_alone)
    each = Outputs()
    kept = each if is_kept else None
    metrics = evaluate_model(model, data, config, split, title=True, outputs=kept)
    if not each:
        return Tested(metrics)
    network, target = (torch.cat(column) for column in zip(*each))
    network, target = in_order(network, target, loader)
    if joined is None:
        return Tested(metrics, {}, {"run": network}, target)
    classical = joined.member.predict(raws_of(data, split))
    both = joined.pool.of(network.float(), classical, objective)
    outputs = {"run": both, "network": network, "classical": classical}
    return Tested(metrics_of(objective, both, target), metrics, outputs, target)


def raws_of(data: DataModule, split: str) -> list[Any]:
    """Raw examples of a split, in its order."""
    splits = data.splits()
    return [sample.raw for sample in (splits.test if split == "test" else splits.valid or ())]


def _beside(
    summary: Summary, data: DataModule, tested: Tested, scored: Scored | None
) -> StrongBaseline | None:
    """The classical method beside a run, with its metrics on the test split; None: there is none."""
    from seqkit.classical.method import finite, metrics_of

    metrics = {}
    found: JoinedMethod | Found | None = summary.joined
    if found is None and (found := found_for(data)) is None:
        return None
    if isinstance(found, Found):
        metrics = found.metrics
        if found.member is not None:
            classical = found.member.predict(raws_of(data, "test"))
            tested = replace(tested, outputs={**tested.outputs, "classical": classical})
    difference = None
    if "classical" in tested.outputs:
        assert tested.target is not None
        metrics = finite(metrics_of(data.objective, tested.outputs["classical"], tested.target))
        difference = scored.difference(tested.outputs["classical"]) if scored else None
    made = StrongBaseline(
        name=found.name, metrics=metrics, num_train=found.num_train, seconds=found.seconds
    )
    return made.changed(difference=difference)


def _listed(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def evaluate_model(
    model: Model,
    data: DataModule,
    config: Config,
    split: str,
    *,
    title: bool = False,
    outputs: Outputs | None = None,
) -> dict[str, float]:
    """Metrics of a model on a split, on one device. Raises DivergedError where it computes what is not finite.

    title: whether to show progress, unless the configuration says no. outputs: gets what each batch adds; None:
    nothing.
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
        if outputs is not None and output.prediction is not None and output.inputs is not None:
            outputs.append((output.prediction.cpu(), output.inputs.target.cpu()))

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
