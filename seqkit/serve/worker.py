"""Answers to waiting requests: examples of several requests in one batch, generated texts step by step in turn.

d width
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from seqkit.data.inputs import Input
from seqkit.errors import UsageError, printable, reason
from seqkit.generation.any_tokens import needs_any_tokens
from seqkit.generation.prompts_to_text import MAX_NEW_TOKENS, stream_text
from seqkit.generation.sampling import Sampling
from seqkit.interfaces import Tokens
from seqkit.runs.answers import (
    check_predicts,
    described_vectors,
    prediction_names,
    predictions,
    probability_names,
    vectors,
)
from seqkit.runs.trained_model import TrainedModel
from seqkit.serve.inputs import InputReader
from seqkit.serve.limits import Limits

log = logging.getLogger("seqkit")

Send = Callable[[str, dict[str, Any], bool], None]
"""Sends an answer of the request with this id; True: it is the last."""

INTERNAL = "the server failed on this request; its log says why"

SHORT = 32
"""Tokens up to which lengths count as alike."""

LOOK = 4
"""Times the size of a batch: most inputs among which those of like lengths are looked for."""


class ServedRun:
    """A run, and what it does with requests. Raises UsageError if it does nothing that a server can offer."""

    def __init__(self, trained: TrainedModel, limits: Limits):
        self.reader, self.limits = InputReader(trained, limits), limits
        self.trained = _Encoded(**{name: getattr(trained, name) for name in trained.__dataclass_fields__})
        self.offers = [name for name, is_offered in self._offered() if is_offered]

    def description(self) -> dict[str, Any]:
        """Facts of the run that a client needs, as plain data."""
        return {
            "recipe": printable(self.trained.summary["recipe"]),
            "offers": self.offers,
            "kind": self.reader.kind,
            "columns": self.reader.columns,
            "example": self.reader.example,
            "classes": [printable(name) for name in self.trained.objective.classes or []],
        }

    def _offered(self) -> Iterator[tuple[str, bool]]:
        for name, check in (("predict", check_predicts), ("embed", None)):
            try:
                check(self.trained.objective) if check else described_vectors(self.trained)
            except UsageError:
                yield name, False
            else:
                yield name, name == "predict" or not _lacks_encoder(self.trained)
        model, objective = self.trained.model, self.trained.objective
        is_text = self.reader.kind in ("text", "smiles") and model.causal and bool(model.spec.ids)
        is_text = is_text and hasattr(self.trained.tokenizer, "decode") and not needs_any_tokens(self.trained)
        continues = is_text and not objective.classes and not model.spec.is_joined
        yield "generate", objective.target_spec is not None or continues

    def answer(self, action: str, examples: Sequence[Tokens]) -> list[dict[str, Any]]:
        """Answers to the examples of one batch; if it fails, each is tried alone."""
        try:
            return [checked(answer) for answer in self._compute(action, examples)]
        except Exception:
            if len(examples) == 1:
                log.exception("a request to %s failed", action)
                return [{"status": 500, "error": INTERNAL}]
        return [found for one in examples for found in self.answer(action, [one])]

    def _compute(self, action: str, examples: Sequence[Tokens]) -> Iterator[dict[str, Any]]:
        inputs = [Input("the input", one) for one in examples]
        if action == "embed":
            for vector in vectors(self.trained, inputs):
                values = vector.values
                yield _failed(vector.error) if values is None else {"vector": values.tolist()}
            return
        classes, names = probability_names(self.trained.objective), prediction_names(self.trained)
        answers = predictions(self.trained, inputs, probabilities=bool(classes), batch_size=len(inputs))
        for one, answer in zip(examples, answers):
            if answer.error is not None:
                yield _failed(answer.error)
                continue
            found = {"prediction": _plain(answer.prediction)}
            if answer.low is not None:
                found |= {"low": answer.low, "high": answer.high}
            if names:
                found = {key: dict(zip(names, values, strict=True)) for key, values in found.items()}
            if answer.probabilities is not None and classes:
                shares = answer.probabilities.tolist()
                by_token = answer.probabilities.ndim == 2
                pairs = [dict(zip(classes, share)) for share in shares] if by_token else dict(zip(classes, shares))
                found["probabilities"] = pairs
            if difference := self.trained.unlike_training(one):
                found["warning"] = f"the input {difference}; do not rely on the prediction"
            yield found

    def generate(self, prompt: Any, options: Mapping[str, Any]) -> Iterator[str]:
        """Pieces of the generated text. Raises ValueError for a prompt or an option that cannot be used."""
        raw, limits = self.reader.raw(prompt), self.limits
        length = len(self.trained.tokenizer.encode(raw))
        if length > limits.tokens:
            raise ValueError(f"the prompt has {length:,} tokens, and {limits.tokens:,} are the most")
        drawn = {name: value for name, value in options.items() if name not in ("max_new_tokens", "stop")}
        most = options.get("max_new_tokens")
        default = None if self.trained.objective.target_spec is not None else MAX_NEW_TOKENS
        sampling = Sampling(**{"temperature": 0.8, **drawn})
        stop = options.get("stop") or []
        return stream_text(self.trained, raw, default if most is None else most, sampling=sampling, stop=stop)


@dataclass(frozen=True)
class _Encoded(TrainedModel):
    """A trained model whose raw examples are tokens already, checked for their number."""

    def encode(self, raw: Any) -> Tokens:
        """The tokens, or those of a raw example."""
        return raw if isinstance(raw, Tokens) else super().encode(raw)


@dataclass(eq=False)
class _Request:
    """encoded: tokens of inputs that wait for a batch; results: answers; both by number of the input."""

    uid: str
    expires: float
    payload: Mapping[str, Any]
    pieces: Iterator[str] | None = None
    encoded: dict[int, Tokens] = field(default_factory=dict)
    results: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def batch(self) -> tuple[str, str]:
        """Run and action: requests that are alike in them are answered together."""
        return self.payload["run"], self.payload["action"]

    @property
    def num_open(self) -> int:
        """Number of inputs without an answer."""
        return len(self.payload["inputs"]) - len(self.results)


class Worker:
    """Answers requests to several runs; the one that has waited longest since its last batch comes first.

    max_batch_size: most examples of a batch, and most texts that are generated at a time. working: called before each
    piece of work, with the number of its tokens, padding included, so that a long one is not taken for a hang.
    """

    def __init__(
        self,
        runs: Mapping[str, ServedRun],
        limits: Limits,
        max_batch_size: int,
        send: Send,
        working: Callable[[int], None] = lambda _: None,
    ):
        self.runs, self.limits, self.max_batch_size = runs, limits, max_batch_size
        self.send, self.working = send, working
        self._waiting: deque[_Request] = deque()
        self._prompts: deque[_Request] = deque()
        self._generating: dict[str, _Request] = {}

    @property
    def num_waiting(self) -> int:
        """Number of examples that wait for a batch."""
        return sum(one.num_open for one in self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self._waiting or self._prompts or self._generating)

    def add(self, uid: str, sent: float, payload: Mapping[str, Any] | None) -> None:
        """Put a request in the queue; None: its client is gone. sent: by `time.monotonic`, in seconds."""
        if payload is not None:
            queue = self._prompts if payload["action"] == "generate" else self._waiting
            queue.append(_Request(uid, sent + self.limits.seconds, payload))
            return
        self._generating.pop(uid, None)
        for queue in (self._waiting, self._prompts):
            for one in [one for one in queue if one.uid == uid]:
                queue.remove(one)

    def turn(self) -> None:
        """Answer one batch, and take one step with each text that is being generated."""
        self._answer(self._next_batch())
        while self._prompts and len(self._generating) < self.max_batch_size:
            one = self._prompts.popleft()
            self._generating[one.uid] = one
        for one in list(self._generating.values()):
            self._step(one)

    def _next_batch(self) -> list[tuple[_Request, int]]:
        """Inputs, by request and number, of like lengths, to the run and the action of the first request.

        Each is padded to less than twice its length, or to SHORT tokens: a short text does not become as long as the
        longest that came with it.
        """
        now, batch, longest, seen = time.monotonic(), list[tuple[_Request, int]](), 0, 0
        self._waiting = deque(one for one in self._waiting if one.expires >= now)  # others had the answer "too late"
        inputs = [(each, i) for each in self._waiting for i in range(len(each.payload["inputs"]))]
        for one, number in inputs:
            if len(batch) == self.max_batch_size or seen == LOOK * self.max_batch_size:
                break
            if number in one.results or (batch and one.batch != batch[0][0].batch):
                continue
            seen += 1
            tokens = self._tokens(one, number)
            if tokens is None or (batch and _size_class(tokens) != _size_class(batch[0][0].encoded[batch[0][1]])):
                continue
            if (len(batch) + 1) * max(longest, len(tokens)) <= self.limits.batch_tokens or not batch:
                batch.append((one, number))
                longest = max(longest, len(tokens))
        return batch

    def _tokens(self, one: _Request, number: int) -> Tokens | None:
        """Tokens of an input; None: it has none, and the error is among its request's results."""
        if number not in one.encoded:
            self.working(0)
            read = self.runs[one.payload["run"]].reader.tokens
            found = _attempt(read, one.payload["inputs"][number])
            if isinstance(found, Tokens):
                one.encoded[number] = found
            else:
                one.results[number] = found
        return one.encoded.get(number)

    def _answer(self, batch: Sequence[tuple[_Request, int]]) -> None:
        """Answer a batch, and send the requests that have all their answers; others of the batch wait again."""
        if batch:
            name, action = batch[0][0].batch
            examples = [one.encoded.pop(number) for one, number in batch]
            self.working(len(examples) * max(map(len, examples)))
            for (one, number), answer in zip(batch, self.runs[name].answer(action, examples)):
                one.results[number] = answer
        served = {one.uid for one, _ in batch}
        for one in [one for one in self._waiting if not one.num_open]:
            self._waiting.remove(one)
            results = [one.results[i] for i in range(len(one.results))]
            for result in results:
                if not one.payload["probabilities"]:
                    result.pop("probabilities", None)
            self.send(one.uid, {"results": results}, True)
        self._waiting = deque(sorted(self._waiting, key=lambda one: one.uid in served))

    def _step(self, one: _Request) -> None:
        """Send the next piece of a text; the last one, if it took too long."""
        try:
            self.working(0 if one.pieces else self.limits.tokens)  # the first step reads the prompt
            if one.pieces is None:
                one.pieces = self.runs[one.payload["run"]].generate(one.payload["input"], one.payload["options"])
            piece = next(one.pieces, None)
            if piece is not None and time.monotonic() < one.expires:
                self.send(one.uid, {"text": piece}, False)
                return
            end = "done" if piece is None else "timeout"
            self.send(one.uid, {"end": end}, True)
        except (ValueError, OSError) as error:
            self.send(one.uid, _failed(reason(error)), True)
        except Exception:
            log.exception("a request to generate failed")
            self.send(one.uid, {"status": 500, "error": INTERNAL}, True)
        self._generating.pop(one.uid, None)


def _size_class(tokens: Tokens) -> int:
    """Number that is the same for like lengths: up to SHORT, then up to each double of it."""
    return (max(len(tokens), SHORT) - 1).bit_length()


def _attempt(read: Callable[[Any], Tokens], value: Any) -> Tokens | dict[str, Any]:
    """Tokens of an input, or the error."""
    try:
        return read(value)
    except Exception as error:  # the tokenizer may be the user's own code: whatever it raises
        if not isinstance(error, ValueError | OSError):
            log.exception("an input could not be encoded")
        return _failed(reason(error))


def _failed(error: str | None) -> dict[str, Any]:
    return {"status": 422, "error": printable(error or "there is no answer")}


def _plain(value: Any) -> Any:
    """A prediction as JSON has it."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, or the error in its place if it holds a number that is not finite, which JSON cannot say."""
    try:
        json.dumps(answer, allow_nan=False)
    except ValueError:
        return {"status": 500, "error": "the model's answer is not finite (NaN or infinite)"}
    return answer


def _lacks_encoder(trained: TrainedModel) -> bool:
    """Whether a sequence-to-sequence model has no hidden states of its source."""
    model = trained.model
    return model.source_embedder is not None and model.backbone.get_encoder() is None
