"""How well a trained model of joined tokens does where test examples lack a part."""

from __future__ import annotations

from typing import Any

import torch

from seqkit.data.dataset import TokenizedDataset, collate_targets
from seqkit.data.module import DataModule
from seqkit.interfaces import TokenBatch, Tokens
from seqkit.objectives.metrics import update
from seqkit.runs.trained_model import TrainedModel
from seqkit.tokenizers.join import Join

RATES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the test examples from which a part is taken."""

MAX_EXAMPLES = 500
"""Most test examples that are looked at, the first ones of the split."""

BATCH_SIZE = 64


def missing_parts(trained: TrainedModel, data: DataModule, metric: str) -> dict[str, list[float]]:
    """By name of a part, the metric at each of `RATES`: of examples from that share of which the part is taken.

    An example keeps its last part. Examples without a part at one rate lack it at every higher one, too. Empty where
    tokens are not joined, no example has two parts, or the metric is none of the objective's.
    """
    tokenizer, examples = trained.tokenizer, data.test_dataloader().examples
    if not isinstance(tokenizer, Join) or not isinstance(examples, TokenizedDataset):
        return {}
    if metric not in trained.objective.metrics(trained.model.spec):
        return {}
    indices = list(range(min(len(examples), MAX_EXAMPLES)))
    tokens = examples.encoded(indices, 0)
    draws = torch.rand(len(tokens), generator=torch.Generator().manual_seed(0)).tolist()
    found: dict[str, list[float]] = {}
    for name in tokenizer.parts:
        can_lack = [any(part == name for part, _ in x.parts) and len({part for part, _ in x.parts}) > 1 for x in tokens]
        if not any(can_lack):
            continue
        found[name] = []
        for rate in RATES:
            left = [
                tokenizer.without(x, [name]) if may and draw < rate else x
                for x, may, draw in zip(tokens, can_lack, draws)
            ]
            found[name].append(_measured(trained, left, [examples.targets[i] for i in indices], metric))
    return found


def _measured(trained: TrainedModel, tokens: list[Tokens], targets: list[Any], name: str) -> float:
    """Value of a metric of the objective."""
    metric = trained.objective.metrics(trained.model.spec)[name]
    for start in range(0, len(tokens), BATCH_SIZE):
        here = slice(start, start + BATCH_SIZE)
        batch = TokenBatch.collate(tokens[here]), collate_targets(targets[here])
        update(metric, trained.predictor.step(trained.objective, batch))
    return float(metric.compute())
