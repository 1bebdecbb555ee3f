"""Predictions and vectors for many raw examples, one batch after another. A failed example has its reason instead.

b batch · n tokens · d width · k classes
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor

from seqkit.data.encoding import raised_by
from seqkit.data.inputs import Input
from seqkit.errors import DataError, UsageError, one_line, reason, shortened
from seqkit.interfaces import Objective, TokenBatch, Tokenizer, Tokens
from seqkit.interfaces.finite import check_computed
from seqkit.model import Model
from seqkit.nn.pooling import FeaturesHead, Pool, SequenceHead, pooled
from seqkit.objectives.multi_label import MultiLabel
from seqkit.objectives.next_token import NextToken
from seqkit.runs.intervals import bounds, half_widths
from seqkit.runs.summary import target_names
from seqkit.tokenizers.cells import Cells
from seqkit.tokenizers.join import Join

if TYPE_CHECKING:
    from seqkit.runs.trained_model import TrainedModel

log = logging.getLogger("seqkit")

BATCH_SIZE = 32


@dataclass(frozen=True, slots=True)
class Answer:
    """Prediction for one example, or the reason why there is none (`error`, one sentence).

    probabilities: [k] of the objective's classes or labels, or [n k] where each token has a prediction. beside: what
    else is known of the example, such as its target, by name. low, high: ends of the prediction interval, in the form
    of the prediction; None: there is none. warning: why not to rely on it, in a sentence; may be empty.
    """

    name: str
    prediction: Any = None
    probabilities: Tensor | None = None
    error: str | None = None
    low: Any = None
    high: Any = None
    warning: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Vector:
    """Vector [d] of an example, or the reason why there is none."""

    name: str
    values: Tensor | None = None
    error: str | None = None


def predictions(
    trained: TrainedModel,
    inputs: Iterable[Input],
    *,
    probabilities: bool = False,
    batch_size: int = BATCH_SIZE,
) -> Iterator[Answer]:
    """Yield the answer to each input, in order; a batch is read after the one before it was answered.

    Raises UsageError if the objective predicts nothing for a raw example, or has no probabilities.
    """
    objective = trained.objective
    check_predicts(objective)
    _ = trained.joined  # a damaged file is no fault of an input
    widths = half_widths(objective, trained.summary.intervals)
    if probabilities and not probability_names(objective):
        raise UsageError(
            f"{type(objective).__name__} predicts no classes; leave out --probabilities"
        )

    def answer(batch: TokenBatch, raws: Sequence[Any]) -> list[Any]:
        prediction = trained.outputs(batch, raws)
        prediction = prediction.float() if prediction.is_floating_point() else prediction
        if objective.encodes_parts_alone:  # whose missing parts are NaN
            check_computed(prediction.nanmean(dim=1))
        else:
            _check_numbers(prediction, batch)
        decoded = objective.decode(prediction)
        shares: Any = [None] * len(decoded)
        if probabilities:
            shares = objective.probabilities(prediction).cpu()
        if getattr(objective, "level", "sequence") == "token":  # without padding
            lengths = batch.valid.sum(dim=1).tolist()
            decoded = [one[:n] for one, n in zip(decoded, lengths)]
            shares = [share if share is None else share[:n] for share, n in zip(shares, lengths)]
        return list(zip(decoded, shares))

    for one, found in _answered(trained, inputs, answer, batch_size):
        if isinstance(found, str):
            yield Answer(one.name, error=found)
        elif one.parts is None:
            low, high = bounds(found[0], widths) if widths else (None, None)
            said = outside_training(trained.tokenizer, one.raw)
            yield Answer(one.name, found[0], found[1], low=low, high=high, warning=said)
        else:
            labels, shares = found
            for i, part in enumerate(one.parts):
                yield Answer(part, labels[i], None if shares is None else shares[i])


def _check_numbers(values: Tensor, batch: TokenBatch) -> None:
    """Raise DataError if a value of an example [b …] or of a real token [b n …] is not finite."""
    check_computed(values[batch.valid] if values.shape[:2] == batch.valid.shape else values)


def probability_names(objective: Objective) -> list[str]:
    """Names of what an objective gives probabilities of: its classes, or several labels; empty: nothing."""
    if isinstance(objective, MultiLabel):
        return objective.label_names or [f"label {i}" for i in range(1, len(objective.shares) + 1)]
    return objective.classes


def prediction_names(trained: TrainedModel) -> list[str]:
    """Names of the numbers of a prediction that has several, labels or target columns; empty: it has no names."""
    names = target_names(trained.config)
    return getattr(trained.objective, "label_names", []) or (names if len(names) > 1 else [])


def vectors(trained: TrainedModel, inputs: Iterable[Input]) -> Iterator[Vector]:
    """Yield the pooled hidden states of each input, in order; if it has parts, the hidden states of each part.

    A model that encodes parts of joined tokens alone gives the vectors of the shared space: the mean of those of an
    example's parts, of length 1. Raises UsageError if the model has no encoder.
    """

    def answer(batch: TokenBatch, _: Sequence[Any]) -> list[Any]:
        if trained.objective.encodes_parts_alone:
            shared = trained.objective.predict(trained.model, batch).float().nanmean(dim=1)
            check_computed(shared)
            return [(None, vector) for vector in F.normalize(shared, dim=-1).cpu()]
        hidden = hidden_states(trained.model, batch)
        head = trained.model.head
        if isinstance(head, FeaturesHead):
            whole = head(hidden, batch)
        else:
            _check_numbers(hidden, batch)  # of which parts have vectors, too
            whole = pooled(hidden, batch.valid, pool_of(trained.model), batch.parts)
        check_computed(whole)
        return list(zip(hidden.float().cpu(), whole.float().cpu()))

    for one, found in _answered(trained, inputs, answer, BATCH_SIZE):
        if isinstance(found, str):
            yield Vector(one.name, error=found)
        elif one.parts is None:
            yield Vector(one.name, found[1])
        else:
            yield from (Vector(part, found[0][i]) for i, part in enumerate(one.parts))


def described_vectors(trained: TrainedModel) -> tuple[int, str]:
    """Width of the vectors of an example, and what they are in words."""
    if trained.objective.encodes_parts_alone:
        return int(trained.objective.dim), "vectors in the shared space, mean of the parts"  # type: ignore[attr-defined]
    head = trained.model.head
    if isinstance(head, FeaturesHead) and head.projection is not None:
        return (
            head.projection.num_outputs,
            f"vectors of the model's {type(head.projection).__name__}",
        )
    return trained.model.backbone.dim, f"hidden states, {pool_of(trained.model)} of the tokens"


def pool_of(model: Model) -> Pool:
    """Pooling of the model's own head, else `mean`."""
    if isinstance(model.head, SequenceHead | FeaturesHead):
        return model.head.pool
    return "mean"


def hidden_states(model: Model, batch: TokenBatch) -> Tensor:
    """Hidden states of the last layer of the backbone, [b n d]; of an encoder–decoder, those of its encoder.

    Raises UsageError if the decoder attends to embeddings directly.
    """
    if model.source_embedder is None:
        hidden: Tensor = model.backbone(model.embed(batch))
        return hidden
    if model.ignores_adjacency:
        batch = batch.replace(adjacency=None)
    encoder = model.backbone.get_encoder()
    if encoder is None:
        raise UsageError(
            f"{type(model.backbone).__name__} has no encoder, so there are no vectors of a source"
        )
    encoded: Tensor = encoder(model.source_embedder(batch))
    return encoded


def check_predicts(objective: Objective) -> None:
    """Raise UsageError if the objective has no prediction for a raw example."""
    continues = isinstance(objective, NextToken) and objective.part is None
    if continues or type(objective).decode is Objective.decode:
        raise UsageError(
            f"{type(objective).__name__} predicts nothing for a raw example (it has no method decode); use "
            "`seqkit generate` to continue a text, or `seqkit predict --embed` for vectors"
        )


def _answered(
    trained: TrainedModel,
    inputs: Iterable[Input],
    answer: Callable[[TokenBatch, Sequence[Any]], Sequence[Any]],
    batch_size: int,
) -> Iterator[tuple[Input, Any]]:
    """Yield each input with its answer, or with the reason (a string) why there is none, in order."""
    unusual = ""
    unknown = Counter[str]()
    outside = Counter[str]()
    examples = dict[str, str]()
    remaining = iter(inputs)
    while chunk := list(islice(remaining, batch_size)):
        encoded = [one.error if one.error is not None else _encoded(trained, one) for one in chunk]
        known = [
            (found, one.raw) for one, found in zip(chunk, encoded) if isinstance(found, Tokens)
        ]
        for one, found in zip(chunk, encoded):
            if isinstance(found, Tokens):
                unknown.update(_unknown(trained.tokenizer, one.raw))
                for column, said in _outside(trained.tokenizer, one.raw):
                    outside[column] += 1
                    examples.setdefault(column, said)
                if not unusual and (difference := trained.unlike_training(found)):
                    unusual = f"{one.name} {difference}"
                    log.warning("%s; do not rely on such predictions", unusual)
        answers = iter(trained.predictor.answers(answer, known))
        for one, found in zip(chunk, encoded):
            yield one, next(answers) if isinstance(found, Tokens) else found
    if outside:
        each = [f"{examples[column]} ({number:,})" for column, number in outside.most_common(3)]
        log.warning("numbers outside their range in training: %s", _listed(each, len(outside)))
    if unknown:
        words = [f"{word} ({number:,})" for word, number in unknown.most_common(3)]
        log.warning(
            "words that are rare or absent in training count as one: %s",
            _listed(words, len(unknown)),
        )


def _listed(shown: list[str], number: int) -> str:
    more = ["…"] if number > len(shown) else []
    return ", ".join([*shown, *more])


def _rows_of_cells(tokenizer: Tokenizer, raw: Any) -> Iterator[tuple[Cells, Any]]:
    """Each row of cells in a raw example, with its tokenizer."""
    if isinstance(tokenizer, Join):
        for name, part in tokenizer.runs(raw):
            yield from _rows_of_cells(tokenizer.parts[name], part)
    elif isinstance(tokenizer, Cells):
        yield tokenizer, raw


def _unknown(tokenizer: Tokenizer, raw: Any) -> Iterator[str]:
    """Column and word of each category of a row that the tokenizer does not know."""
    for cells, row in _rows_of_cells(tokenizer, raw):
        for column, word in cells.unknown(row).items():
            yield f"{column} {shortened(word, 40)!r}"


def _outside(tokenizer: Tokenizer, raw: Any) -> Iterator[tuple[str, str]]:
    """Name of each column whose number is beyond all of training, and both in words."""
    for cells, row in _rows_of_cells(tokenizer, raw):
        for column, (number, low, high) in cells.outside(row).items():
            yield column, f"{one_line(column)} {number:g}, in training {low:g} to {high:g}"


def outside_training(tokenizer: Tokenizer, raw: Any) -> str:
    """Numbers of a raw example that are beyond all of training, in words; empty: there are none."""
    found = [said for _, said in _outside(tokenizer, raw)]
    if not found:
        return ""
    return f"numbers outside their range in training: {'; '.join(found)}"


def _encoded(trained: TrainedModel, one: Input) -> Tokens | str:
    """Tokens of an input, or the reason why there are none."""
    if one.tokens is not None:
        return one.tokens
    try:
        return trained.encode(one.raw)
    except (DataError, OSError) as error:
        return reason(error)
    except Exception as error:  # the tokenizer may be the user's own code: whatever it raises
        return raised_by(trained.tokenizer, error)
