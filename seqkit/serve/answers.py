"""Answers of a run: predictions and vectors of several inputs at once, and generated texts piece by piece."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from seqkit.data.inputs import Input
from seqkit.errors import printable, reason
from seqkit.generation.any_tokens import needs_any_tokens
from seqkit.generation.prompts_to_text import MAX_NEW_TOKENS, stream_text
from seqkit.generation.sampling import Sampling
from seqkit.runs.answers import (
    check_predicts,
    outside_training,
    prediction_names,
    predictions,
    probability_names,
    vectors,
)
from seqkit.runs.trained_model import TrainedModel
from seqkit.serve.inputs import MAX_TOKENS, InputReader

SHORT = 32
"""Tokens up to which inputs share a batch, however short some of them are."""

Action = Literal["predict", "embed"]


class ServedRun:
    """A run, and what it does with requests. seconds: time budget of a batch's encoding, and of a text.

    writes_text: whether the run continues texts, or writes a text for each input. Other runs predict and embed.
    Raises as InputReader.
    """

    def __init__(self, trained: TrainedModel, seconds: float):
        self.reader = InputReader(trained)
        self.seconds = seconds
        self.trained = trained
        _ = trained.joined  # read before the first request
        self.writes_text = _writes_text(self.reader)

    def answers(self, requests: Sequence[tuple[Action, Any]]) -> list[dict[str, Any]]:
        """The answer to each request, an action and an input: what `seqkit predict` says, or `detail` and `status`.

        Inputs of like lengths share a batch of the model, so that a short text is not padded to a long one.
        """
        until = time.monotonic() + self.seconds
        found: dict[int, dict[str, Any]] = {}
        encoded: dict[int, Input] = {}
        warnings: dict[int, str] = {}
        for i, (action, value) in enumerate(requests):
            try:
                if action == "predict":
                    check_predicts(self.trained.objective)
                if time.monotonic() > until:
                    found[i] = {"status": 503, "detail": "the server is busy; try again"}
                else:
                    raw = self.reader.raw(value)
                    tokens = self.reader.tokens(raw)
                    encoded[i] = Input("the input", raw, tokens=tokens)
                    warnings[i] = outside_training(self.trained.tokenizer, raw)
            except (
                Exception
            ) as error:  # the tokenizer may be the user's own code: whatever it raises
                found[i] = _refused(reason(error))
        for action, compute in (("predict", self._predictions), ("embed", self._vectors)):
            lengths = {
                i: len(one.tokens or ()) for i, one in encoded.items() if requests[i][0] == action
            }
            for batch in of_like_lengths(lengths):
                found |= zip(batch, compute([encoded[i] for i in batch]), strict=True)
        for i, warning in warnings.items():
            if warning and "detail" not in found[i]:
                found[i].setdefault("warning", warning)
        return [found[i] for i in range(len(requests))]

    def _vectors(self, inputs: Sequence[Input]) -> Iterator[dict[str, Any]]:
        for vector in vectors(self.trained, inputs):
            if vector.values is None:
                yield _refused(vector.error)
            else:
                yield {"vector": vector.values.tolist()}

    def _predictions(self, inputs: Sequence[Input]) -> Iterator[dict[str, Any]]:
        classes = probability_names(self.trained.objective)
        names = prediction_names(self.trained)
        answers = predictions(
            self.trained, inputs, probabilities=bool(classes), batch_size=len(inputs)
        )
        for one, answer in zip(inputs, answers, strict=True):
            if answer.error is not None:
                yield _refused(answer.error)
                continue
            found = {"prediction": answer.prediction}
            if answer.low is not None:
                found |= {"low": answer.low, "high": answer.high}
            if names:
                found = {
                    key: dict(zip(names, values, strict=True)) for key, values in found.items()
                }
            if answer.probabilities is not None:
                shares = [
                    dict(zip(classes, token))
                    for token in answer.probabilities.reshape(-1, len(classes)).tolist()
                ]
                if answer.probabilities.ndim == 2:
                    found["probabilities"] = shares
                else:
                    found["probabilities"] = shares[0]
            assert one.tokens is not None
            if difference := self.trained.unlike_training(one.tokens):
                found["warning"] = f"the input {difference}; do not rely on the prediction"
            yield found

    def text(
        self, prompt: Any, max_new_tokens: int | None, sampling: Sampling, stop: Sequence[str]
    ) -> Iterator[str]:
        """Pieces of a generated text, until the time is over. Raises ValueError for a prompt that cannot be used."""
        until = time.monotonic() + self.seconds
        raw = self.reader.raw(prompt)
        length = len(self.trained.tokenizer.encode(raw))
        if length > MAX_TOKENS:
            raise ValueError(f"the prompt has {length:,} tokens, and {MAX_TOKENS:,} are the most")
        if max_new_tokens is None and self.trained.objective.target_spec is None:
            max_new_tokens = MAX_NEW_TOKENS
        for piece in stream_text(self.trained, raw, max_new_tokens, sampling=sampling, stop=stop):
            yield piece
            if time.monotonic() > until:
                raise TimeoutError(f"the text is not complete after {self.seconds:g} seconds")


def of_like_lengths(lengths: dict[int, int]) -> Iterator[list[int]]:
    """Batches of keys: none is padded beyond twice its length or SHORT, or has more than MAX_TOKENS in all.

    >>> list(of_like_lengths({0: 3, 1: 4000, 2: 30, 3: 70}))
    [[0, 2], [3], [1]]
    """
    batch: list[int] = []
    for key in sorted(lengths, key=lengths.__getitem__):
        n = lengths[key]
        if batch and ((len(batch) + 1) * n > MAX_TOKENS or n > max(SHORT, 2 * lengths[batch[0]])):
            yield batch
            batch = []
        batch.append(key)
    if batch:
        yield batch


def _writes_text(reader: InputReader) -> bool:
    trained = reader.trained
    model = reader.trained.model
    if trained.objective.target_spec is not None:
        return True
    is_text = reader.kind in ("text", "smiles") and hasattr(trained.tokenizer, "decode")
    continues = model.causal and bool(model.spec.ids) and not needs_any_tokens(trained)
    return is_text and continues and not trained.objective.classes


def _refused(error: str | None) -> dict[str, Any]:
    return {"status": 422, "detail": printable(error or "there is no answer")}
