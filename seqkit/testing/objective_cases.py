"""Model, tokens and labels on which an objective is checked: given ones, or the first of our own that it takes.

b batch · n tokens
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqkit.backbones import EncoderDecoder, Transformer
from seqkit.data.dataset import collate_targets
from seqkit.errors import described
from seqkit.interfaces import (
    Backbone,
    LabeledBatch,
    LossOutput,
    ModelInput,
    Objective,
    PredictionObjective,
    TokenBatch,
    Tokenizer,
    Tokens,
)
from seqkit.model import Model
from seqkit.nn.block import PreNormBlock
from seqkit.testing.checks import NotCheckedError
from seqkit.testing.process import seeded
from seqkit.tokenizers import Ids, Join, Series

LENGTHS = (3, 6, 2, 5, 4)
"""Tokens of our own examples: unequal, and not as many examples as columns."""

Prepared = tuple[ModelInput, Tensor]
"""Inputs of a batch, and the model's prediction."""

Labels = tuple[Sequence[Any], Sequence[str] | None]
"""Labels and names, as `Objective.fit` gets them."""


@dataclass(frozen=True)
class Case:
    """A fitted objective with a model and examples. targets: the labels as `encode_target` makes them."""

    objective: Objective
    tokenizer: Tokenizer
    tokens: Sequence[Tokens]
    labels: Labels
    targets: Sequence[Any]
    model: Model

    @classmethod
    def of(
        cls, objective: Objective, tokenizer: Tokenizer, tokens: Sequence[Tokens], labels: Labels
    ) -> Case:
        """The case of a fitted objective, which reads its tokenizer and inputs, and makes its head."""
        objective.read_from(tokenizer)
        objective.fit_inputs(zip(tokens, labels[0]))
        targets = [x if x is None else objective.encode_target(x) for x in labels[0]]
        build = partial(Transformer, 16, 1, num_heads=2)
        with seeded(0):
            backbone: Backbone = build(causal=bool(objective.causal))
            if objective.target_spec is not None:
                block = partial(PreNormBlock, cross_attention=True)
                backbone = EncoderDecoder(build(), build(causal=True, block=block))
            model = Model(tokenizer.spec, backbone, objective).eval()
        return cls(objective, tokenizer, tokens, labels, targets, model)

    @property
    def rows(self) -> list[int]:
        """Numbers of all examples."""
        return list(range(len(self.tokens)))

    def batch(self, rows: Sequence[int] | None = None) -> LabeledBatch:
        """A batch of these examples; None: of all."""
        chosen = self.rows if rows is None else rows
        tokens = TokenBatch.collate([self.tokens[i] for i in chosen])
        return tokens, collate_targets([self.targets[i] for i in chosen])

    def step(self, batch: LabeledBatch, *, training: bool = False) -> LossOutput:
        """The objective's step; the generators always begin alike."""
        self.model.train(training)
        with seeded(0):
            found = self.objective.step(self.model, batch, training=training)
        self.model.eval()
        return found

    def output(self, rows: Sequence[int], *, training: bool = False) -> LossOutput:
        """The step of some examples or, where each batch draws masks of its own, the loss of their rows of one
        prediction. Raises NotCheckedError where there is neither."""
        if not self.objective.uses_mask_token:
            return self.step(self.batch(rows), training=training)
        own: Any = self.objective
        inputs, prediction = self.predicted()
        at = (rows, slice(int(inputs.batch.valid[rows].sum(dim=1).max())))
        found: LossOutput = own.loss(prediction[at], inputs.target[at], training=training)
        return found

    def predicted(self) -> Prepared:
        """Inputs of all examples and the model's prediction. Raises NotCheckedError where it is not one of them."""
        batch = self.batch()
        if not isinstance(self.objective, PredictionObjective) or batch[0].parts is not None:
            raise NotCheckedError("it has a step of its own, or parts")
        with seeded(0), torch.no_grad():
            return self.objective.predicted(self.model, batch)


def find_case(
    objective: Objective, labels: Labels | None, tokenizer: Tokenizer | None, raws: Sequence[Any]
) -> Case:
    """The case of what is given, or the first of our own with which it steps and learns.

    A fitted objective keeps its fit where labels are given, and is fitted anew to our own.
    Raises ValueError, with what the objective says, where it cannot step with any.
    """
    own = (Ids(7), Series(2), Join({"ids": Ids(7), "vectors": Series(2)}))
    error = ""
    for chosen in own if tokenizer is None else (tokenizer,):
        tokens = [chosen.encode(raw) for raw in raws]
        if tokenizer is None:
            with seeded(0):
                tokens = [chosen.spec.random(n) for n in LENGTHS]
        for given in _labels(tokens, objective) if labels is None else [labels]:
            fitted = copy.deepcopy(objective)
            try:
                if labels is None or not fitted.state():
                    fitted.fit(list(given[0]), given[1])
                case = Case.of(fitted, chosen, tokens, given)
                case.step(case.batch())
                loss = case.step(case.batch(), training=True).loss
                if loss.requires_grad:
                    loss.backward()  # type: ignore[no-untyped-call]
                return case
            except Exception as reason:  # the user's own code: whatever it raises
                error = error or described(reason)
    raise ValueError(
        f"{type(objective).__name__} steps with none of the labels and tokens that are tried ({error}); give labels=, "
        "and tokenizer= with raws=, such as it is trained on"
    )


def measured(case: Case, outputs: Sequence[LossOutput]) -> dict[str, Tensor]:
    """The objective's metrics of outputs, one batch after the other."""
    from seqkit.objectives.metrics import update

    metrics = case.objective.metrics(case.model.spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for metric in metrics.values():
            for output in outputs:
                update(metric, output)
        return {name: metric.compute() for name, metric in metrics.items()}


def _labels(tokens: Sequence[Tokens], objective: Objective) -> list[Labels]:
    """Labels of every kind, and their names."""
    if not objective.needs_labels:
        return [([None] * len(tokens), None)]
    counted = [torch.arange(len(x)) for x in tokens]
    return [
        ([0, 1, 1, 0, 1], list("xy")),
        ([0, 1, 2, 0, 1], list("xyz")),
        ([1.5, -0.5, 1.5, 2.0, -0.5], None),
        ([[1, 0], [0, 1], [1, 1], [0, 0], [1, 0]], list("xy")),
        ([x % 3 for x in counted], list("xyz")),
        ([x[:, None] / 4 for x in counted], None),
        (["ab", "b", "a", "ba", "b"], None),
    ]
