"""Predictions and vectors of many raw examples, one batch after another; what cannot be answered has its reason.

b batch · n tokens · d width · k classes
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from seqkit.data.inputs import Input
from seqkit.errors import DataError, UsageError, is_out_of_memory
from seqkit.interfaces import Objective, TokenBatch, Tokens
from seqkit.model import Model
from seqkit.nn.heads import Pool, SequenceHead, pooled
from seqkit.runs.trained_model import TrainedModel, per_example

log = logging.getLogger("seqkit")

BATCH_SIZE = 32


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model says of an example. probabilities: [k], or [n k] a token, of the objective's classes.

    error: the reason why there is no prediction, in one sentence.
    """

    name: str
    prediction: Any = None
    probabilities: Tensor | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Vector:
    """The vector [d] of an example, or the reason why there is none."""

    name: str
    values: Tensor | None = None
    error: str | None = None


def predictions(trained: TrainedModel, inputs: Iterable[Input], *, probabilities: bool = False) -> Iterator[Answer]:
    """An answer to each input, in order; a batch is read when the one before it was answered.

    Raises ValueError where the objective predicts nothing for a raw example, or has no probabilities.
    """
    objective = trained.objective
    check_predicts(objective)
    names = objective.classes if probabilities else []
    if probabilities and not names:
        raise UsageError(f"{type(objective).__name__} predicts no classes; leave out --probabilities and --top")

    def answer(batch: TokenBatch) -> list[Any]:
        prediction = objective.predict(trained.model, batch)
        decoded = per_example(objective, prediction, batch)
        if not probabilities:
            return [(one, None) for one in decoded]
        shares = objective.probabilities(prediction)
        if shares.ndim == 3:  # a token's; padding has none
            return [(one, share[: len(one)]) for one, share in zip(decoded, shares)]
        return list(zip(decoded, shares))

    for one, found in _answered(trained, inputs, answer):
        if isinstance(found, str):
            yield Answer(one.name, error=found)
        elif one.parts is None:
            yield Answer(one.name, *found)
        else:
            labels, shares = found
            for i, part in enumerate(one.parts):
                yield Answer(part, labels[i], None if shares is None else shares[i])


def vectors(trained: TrainedModel, inputs: Iterable[Input]) -> Iterator[Vector]:
    """Each input's pooled hidden states (`embedding`), in order; of one with parts the hidden states of each part.

    Raises UsageError where there is no encoder.
    """

    def answer(batch: TokenBatch) -> list[Any]:
        hidden = hidden_states(trained.model, batch)
        return list(zip(hidden.float().cpu(), pooled(hidden, batch.valid, pool_of(trained.model)).float().cpu()))

    for one, found in _answered(trained, inputs, answer):
        if isinstance(found, str):
            yield Vector(one.name, error=found)
        elif one.parts is None:
            yield Vector(one.name, found[1])
        else:
            yield from (Vector(part, found[0][i]) for i, part in enumerate(one.parts))


def pool_of(model: Model) -> Pool:
    """How hidden states become one vector: as the model's own head pools them, else their mean."""
    return model.head.pool if isinstance(model.head, SequenceHead) else "mean"


def embedding(model: Model, batch: TokenBatch) -> Tensor:
    """Hidden states of the last layer (`hidden_states`), pooled over the real tokens, [b d]."""
    return pooled(hidden_states(model, batch), batch.valid, pool_of(model))


def hidden_states(model: Model, batch: TokenBatch) -> Tensor:
    """Hidden states of the last layer of the backbone, [b n d].

    Of an encoder–decoder those of its encoder. Raises UsageError where the decoder attends to embeddings directly.
    """
    if model.ignores_adjacency:
        batch = batch.replace(adjacency=None)
    if model.source_embedder is None:
        hidden: Tensor = model.backbone(model.embedder(batch), None)
        return hidden
    encoder = model.backbone.get_encoder()
    if encoder is None:
        raise UsageError(f"{type(model.backbone).__name__} has no encoder, so there are no vectors of a source")
    encoded: Tensor = encoder(model.source_embedder(batch))
    return encoded


def check_predicts(objective: Objective) -> None:
    """Raise UsageError where the objective has no prediction for a raw example."""
    if type(objective).decode is Objective.decode:
        instead = "to continue a text use `seqkit generate`, for" if objective.causal else "for"
        raise UsageError(
            f"{type(objective).__name__} predicts nothing for a raw example; {instead} vectors use `seqkit embed`"
        )


def _answered(
    trained: TrainedModel, inputs: Iterable[Input], answer: Callable[[TokenBatch], Sequence[Any]]
) -> Iterator[tuple[Input, Any]]:
    """(input, answer, or the reason why there is none, a text) of each, in order."""
    unusual: list[str] = []
    remaining = iter(inputs)
    while chunk := list(islice(remaining, BATCH_SIZE)):
        encoded = [one.error if one.error is not None else _encoded(trained, one) for one in chunk]
        tokens = [one for one in encoded if isinstance(one, Tokens)]
        for one, found in zip(chunk, encoded):
            if isinstance(found, Tokens) and (difference := trained.unlike_training(found)):
                unusual.append(f"{one.name} {difference}" if not unusual else "")
        answers = iter(_of_batch(tokens, answer))
        for one, found in zip(chunk, encoded):
            yield one, next(answers) if isinstance(found, Tokens) else found
    if unusual:
        more = f" (and {len(unusual) - 1:,} more)" if unusual[1:] else ""
        log.warning("%s; do not rely on the prediction%s", unusual[0], more)


def _encoded(trained: TrainedModel, one: Input) -> Tokens | str:
    """Its tokens, or the reason why there are none."""
    try:
        return trained.encode(one.raw)
    except (DataError, OSError) as error:
        return str(error)
    except Exception as error:  # the tokenizer may be the user's own code: whatever it raises
        return f"{type(trained.tokenizer).__name__} cannot encode it ({error!r})"


def _of_batch(tokens: Sequence[Tokens], answer: Callable[[TokenBatch], Sequence[Any]]) -> list[Any]:
    """Answers to examples in one batch; where that fails, one by one, so that the others have theirs."""
    if not tokens:
        return []
    try:
        with torch.inference_mode():
            return list(answer(TokenBatch.collate(tokens)))
    except UsageError:
        raise
    except (ValueError, RuntimeError, MemoryError) as error:
        if not isinstance(error, ValueError) and not is_out_of_memory(error):
            raise
        if len(tokens) == 1:
            return [f"not enough memory: {error}" if is_out_of_memory(error) else str(error)]
    return [found for one in tokens for found in _of_batch([one], answer)]
