"""Scores of single test examples: what an interval needs and a metric of the whole split hides."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqkit.data.module import DataModule
from seqkit.errors import DataError
from seqkit.interfaces import (
    IGNORE,
    LabeledBatch,
    LossOutput,
    Objective,
    PredictionObjective,
    TokenBatch,
)
from seqkit.model import Model
from seqkit.objectives import Contrastive
from seqkit.objectives.metric import Metric, find_metric
from seqkit.runs.evaluate import bytes_of_test_split

METRICS = {
    name: find_metric(name)
    for name in (
        "accuracy", "rmse", "recall@1", "sequence_error", "token_error", "loss", "bits_per_byte",
    )
}  # fmt: skip
"""Every metric that is a mean over examples, or the root of one."""


@dataclass(frozen=True, kw_only=True)
class ExampleScores:
    """Scores of the test examples of a run, in the order of the test split; the metric is the ratio of the sums.

    tokens: of each example. groups: as `DataModule.test_groups`; None: all examples are independent.
    """

    numerator: list[float]
    denominator: list[float]
    tokens: list[int]
    groups: list[int] | None = None


def metric_of(objective: Objective, num_tokenizers: int = 1) -> Metric:
    """The objective's primary metric, or the loss where that is not a mean over examples.

    num_tokenizers: number of different tokenizers among the candidates. A loss per token depends on what a token is, so
    that of several tokenizers is compared in bits per byte.
    """
    metric = METRICS.get(objective.primary_metric, METRICS["loss"])
    # another's may mean another thing
    if metric.name == "recall@1" and not isinstance(objective, Contrastive):
        metric = METRICS["loss"]
    by_bytes = metric.name == "loss" and objective.causal and num_tokenizers > 1
    return METRICS["bits_per_byte"] if by_bytes else metric


@torch.inference_mode()
def example_scores(model: Model, data: DataModule, metric: Metric, seed: int) -> ExampleScores:
    """Scores of every test example.

    Of an objective that is not separable, of every batch, by its first example; of recall, of every example, which
    looks for its positive in the whole split. seed: seed of the masks of evaluation, as in `TrainingModule`.
    """
    from seqkit.training.module import evaluation_rng

    model.eval()
    objective = data.objective
    loader = data.test_dataloader()
    recall: Any = None
    if metric.name == "recall@1":
        recall = objective.metrics(data.tokenizer.spec)[metric.name]
    by_example = objective.separable or recall is not None
    rows: list[tuple[int, float, float, int]] = []
    for index, (order, (batch, label)) in enumerate(zip(loader.batch_indices(), loader)):
        with evaluation_rng(seed, index):
            if recall is not None:
                output = objective.step(model, (batch, label))
                recall.update(output.preds, output.target)
                values = [(0.0, 0.0)] * len(batch)  # they are known once all vectors are
            elif metric.name in ("sequence_error", "token_error"):
                values = _generated_errors(metric, objective, model, (batch, label))
            else:
                values = _scores(metric, objective, model, (batch, label))
        tokens = batch.valid.sum(dim=1).tolist()
        if not by_example:  # the examples of a batch depend on each other, so it is the unit
            order = [min(order)]
            tokens = [sum(tokens)]
        rows += [(i, *value, n) for i, value, n in zip(order, values, tokens)]
    if recall is not None:
        rows = [(i, *value, n) for (i, _, _, n), value in zip(rows, _shares(recall.hits()))]
    rows.sort()
    _, numerator, denominator, tokens = (list(column) for column in zip(*rows))
    groups = data.test_groups() if by_example else None
    return ExampleScores(numerator=numerator, denominator=denominator, tokens=tokens, groups=groups)


def _shares(hits: Tensor) -> list[tuple[float, float]]:
    """Numerator and denominator of each example from its hits [m p]: each pair of parts weighs as much as another."""
    known = ~hits.isnan()
    weight = len(hits) / (known.sum(dim=0) * hits.shape[1])
    return [
        (float(a), float(b))
        for a, b in zip((hits.nan_to_num() * weight).sum(1), (known * weight).sum(1))
    ]


def _generated_errors(
    metric: Metric, objective: Objective, model: Model, batch: LabeledBatch
) -> list[tuple[float, float]]:
    label = objective.references(batch)
    assert label is not None
    generated = objective.predict(model, batch[0])
    found = []
    for i in range(len(generated)):
        rate = objective.generation_metrics()[metric.name]
        rate.update(generated[i : i + 1], label[i : i + 1])
        found.append((float(rate.total), float(rate.count)))
    return found


def _scores(
    metric: Metric, objective: Objective, model: Model, batch: LabeledBatch
) -> list[tuple[float, float]]:
    """Numerator and denominator of each example of a batch, or of the batch where the objective is not separable."""
    # parts have a row for each of their runs
    if isinstance(objective, PredictionObjective) and batch[0].parts is None:
        found = objective.step(model, batch)
        assert found.inputs is not None
        assert found.prediction is not None
        return scores_of(metric, objective, found.prediction, found.inputs.target)
    if objective.separable:
        each = [objective.step(model, one) for one in _one_by_one(batch)]
    else:
        each = [objective.step(model, batch)]
    return [_score(metric, output) for output in each]


def _one_by_one(batch: LabeledBatch) -> Iterator[LabeledBatch]:
    """A batch of each example, without its padding."""
    tokens, label = batch
    for i in range(len(tokens)):
        one = None if label is None else label[i : i + 1]
        # a label for each token
        if one is not None and one.ndim > 1 and one.shape[1] == tokens.valid.shape[1]:
            one = one[:, tokens.valid[i]]
        yield TokenBatch.collate([tokens.example(i)]), one


def scores_of(
    metric: Metric, objective: PredictionObjective, prediction: Tensor, target: Tensor
) -> list[tuple[float, float]]:
    """Numerator and denominator of each example. prediction: [m …] of the head. target: [m …]."""
    whole = objective.loss(prediction, target)
    known = ~target.isnan() if target.is_floating_point() else target != IGNORE
    # at once where the objective leaves out unknown targets alone, and keeps the order of the others
    is_in_order = whole.target is not None and torch.equal(whole.target, target[known])
    if metric.name in BY_TARGET and is_in_order:
        row = known.nonzero()[:, 0]
        sums = torch.zeros(len(target), dtype=torch.float64, device=row.device)
        sums.index_add_(0, row, BY_TARGET[metric.name](whole))
        counts = known.reshape(len(target), -1).sum(dim=1)
        return list(zip(sums.tolist(), counts.double().tolist()))
    each = (objective.loss(prediction[i : i + 1], target[i : i + 1]) for i in range(len(target)))
    return [_score(metric, output) for output in each]


def _is_right(output: LossOutput) -> Tensor:
    assert output.preds is not None
    assert output.target is not None
    return (output.preds == output.target).double()


def _squared_error(output: LossOutput) -> Tensor:
    assert output.preds is not None
    assert output.target is not None
    return (output.preds - output.target).double().square()


BY_TARGET = {"accuracy": _is_right, "rmse": _squared_error}
"""Metrics that are means over targets: the score of each."""


def _score(metric: Metric, output: LossOutput) -> tuple[float, float]:
    """Numerator and denominator of one output."""
    if metric.name not in BY_TARGET:
        return float(output.loss), float(output.count)
    values = BY_TARGET[metric.name](output)
    return float(values.sum()), float(values.numel())


def comparable_scores(model: Model, data: DataModule, metric: Metric, seed: int) -> ExampleScores:
    """Scores of every test example, as `example_scores`; bits per byte for a metric that does not depend on tokens.

    Raises DataError where bits per byte cannot be had, since only a part of the test text is used.
    """
    scores = example_scores(model, data, metric, seed)
    if metric.name != "bits_per_byte":
        return scores
    num_bytes = bytes_of_test_split(data)
    if num_bytes == 0:
        raise DataError("bits per byte need the whole text of the test split; leave data.limit out")
    return per_byte(scores, num_bytes)


def per_byte(scores: ExampleScores, num_bytes: int) -> ExampleScores:
    """Scores of a loss in nats as bits per byte of the test text, whatever its tokens are.

    Predicted tokens share the bytes of the text in proportion to their number.
    """
    total = sum(scores.denominator)
    return replace(
        scores,
        numerator=[value / math.log(2) for value in scores.numerator],
        denominator=[count * num_bytes / total for count in scores.denominator],
    )
