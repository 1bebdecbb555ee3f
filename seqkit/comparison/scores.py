"""Scores of single test examples: what a paired bootstrap needs and a metric of the whole split hides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from seqkit.data.module import DataModule
from seqkit.interfaces import Objective, TokenBatch
from seqkit.model import Model


@dataclass(frozen=True, slots=True)
class Metric:
    """The metric by which candidates are compared.

    A split's value is sum(numerators) / sum(denominators) over its examples, and its root where `root` is True (RMSE).
    scale, digits, unit: how values are shown.
    """

    name: str
    label: str
    unit: str = ""
    scale: float = 1.0
    digits: int = 3
    higher_is_better: bool = False
    root: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


METRICS = {
    "accuracy": Metric("accuracy", "test accuracy", "%", 100, 2, True),
    "rmse": Metric("rmse", "test RMSE", "", 1, 3, root=True),
    "sequence_error": Metric("sequence_error", "sequences wrong", "%", 100, 2),
    "loss": Metric("loss", "test loss", "nats", 1, 4),
    "bits_per_byte": Metric("bits_per_byte", "bits per byte", "bits", 1, 4),
}
"""Every metric that is a mean over examples, or the root of one."""


def metric_of(objective: Objective) -> Metric:
    """The objective's primary metric; the loss where that is not a mean over examples."""
    return METRICS.get(objective.primary_metric, METRICS["loss"])


@torch.inference_mode()
def example_scores(model: Model, data: DataModule, metric: Metric, seed: int) -> dict[str, list[float]]:
    """Numerator, denominator and number of tokens of every test example, in the order of the test split.

    seed: of what evaluation masks, as in `TrainingModule`.
    """
    model.eval()
    objective, loader = data.objective, data.test_dataloader()
    rows: list[tuple[int, float, float, int]] = []
    for index, (order, (batch, label)) in enumerate(zip(loader.batch_indices(), loader)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed * 1_000_003 + index)
            inputs = objective.prepare(batch, label)
        if metric.name == "sequence_error":
            values = _sequence_errors(objective, model, batch, label)
        else:
            prediction = model(inputs.batch, inputs.masked)
            values = [
                _SUMS[metric.name](objective, prediction[i : i + 1], inputs.target[i : i + 1])
                for i in range(len(order))
            ]
        tokens = batch.valid.sum(dim=1).tolist()
        rows += [(i, *value, n) for i, value, n in zip(order, values, tokens)]
    rows.sort()
    return {name: [row[i] for row in rows] for i, name in ((1, "numerator"), (2, "denominator"), (3, "tokens"))}


def _sequence_errors(
    objective: Objective, model: Model, batch: TokenBatch, label: Tensor | None
) -> list[tuple[float, float]]:
    from seqkit.objectives.metrics import SequenceErrorRate

    assert label is not None
    generated, found = objective.predict(model, batch), []
    for i in range(len(generated)):
        rate = SequenceErrorRate()
        rate.update(generated[i : i + 1], label[i : i + 1])
        found.append((float(rate.wrong), 1.0))
    return found


def _loss(objective: Objective, prediction: Tensor, target: Tensor) -> tuple[float, float]:
    output = objective.loss(prediction, target)
    return float(output.loss), float(output.count)


def _accuracy(objective: Objective, prediction: Tensor, target: Tensor) -> tuple[float, float]:
    output = objective.loss(prediction, target)
    assert output.preds is not None
    assert output.target is not None
    return float((output.preds == output.target).sum()), float(output.target.numel())


def _squared_error(objective: Objective, prediction: Tensor, target: Tensor) -> tuple[float, float]:
    output = objective.loss(prediction, target)
    assert output.preds is not None
    assert output.target is not None
    return float((output.preds - output.target).double().square().sum()), float(output.target.numel())


_SUMS: dict[str, Callable[[Objective, Tensor, Tensor], tuple[float, float]]] = {
    "loss": _loss,
    "bits_per_byte": _loss,
    "accuracy": _accuracy,
    "rmse": _squared_error,
}


def per_byte(scores: dict[str, list[float]], num_bytes: int) -> dict[str, list[float]]:
    """Scores of a loss in nats as bits per byte of the test text, whatever its tokens are.

    Predicted tokens share the bytes of the text in proportion to their number.
    """
    total = sum(scores["denominator"])
    return {
        **scores,
        "numerator": [value / math.log(2) for value in scores["numerator"]],
        "denominator": [count * num_bytes / total for count in scores["denominator"]],
    }


def bytes_of_test_split(data: DataModule) -> int | None:
    """UTF-8 bytes of the test split where its examples are texts; None: they are not, or only a part is used."""
    if data.limit is not None:
        return None
    raws = [sample.raw for sample in data.splits().test]
    return sum(len(raw.encode()) for raw in raws) if all(isinstance(raw, str) for raw in raws) else None
