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
from seqkit.runs.answers import check_predicts, described_vectors, predictions, vectors
from seqkit.runs.trained_model import TrainedModel
from seqkit.serve.inputs import InputReader
from seqkit.serve.limits import Limits

log = logging.getLogger("seqkit")

Send = Callable[[str, dict[str, Any], bool], None]
"""Sends an answer of the request with this id; True: it is the last."""

INTERNAL = "the server failed on this request; its log says why"


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
        """Answers to examples, in batches of like lengths."""
        order = sorted(range(len(examples)), key=lambda i: len(examples[i]))
        found: dict[int, dict[str, Any]] = {}
        while order:
            count = 1
            while count < len(order) and (count + 1) * len(examples[order[count]]) <= self.limits.batch_tokens:
                count += 1
            batch, order = order[:count], order[count:]
            found.update(zip(batch, self._batch(action, [examples[i] for i in batch])))
        return [found[i] for i in range(len(examples))]

    def _batch(self, action: str, examples: Sequence[Tokens]) -> list[dict[str, Any]]:
        try:
            return [checked(answer) for answer in self._compute(action, examples)]
        except Exception:
            if len(examples) == 1:
                log.exception("a request to %s failed", action)
                return [{"status": 500, "error": INTERNAL}]
        return [found for one in examples for found in self._batch(action, [one])]

    def _compute(self, action: str, examples: Sequence[Tokens]) -> Iterator[dict[str, Any]]:
        inputs = [Input("the input", one) for one in examples]
        if action == "embed":
            for vector in vectors(self.trained, inputs):
                values = vector.values
                yield _failed(vector.error) if values is None else {"vector": values.tolist()}
            return
        classes = self.trained.objective.classes
        answers = predictions(self.trained, inputs, probabilities=bool(classes), batch_size=len(inputs))
        for one, answer in zip(examples, answers):
            if answer.error is not None:
                yield _failed(answer.error)
                continue
            found = {"prediction": _plain(answer.prediction)}
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


@dataclass
class _Request:
    uid: str
    expires: float
    payload: Mapping[str, Any]
    pieces: Iterator[str] | None = None
    text: list[str] = field(default_factory=list)

    @property
    def batch(self) -> tuple[str, str]:
        """Run and action: requests that are alike in them are answered together."""
        return self.payload["run"], self.payload["action"]


class Worker:
    """Answers requests to several runs, in the order in which they came.

    max_batch_size: most examples of a batch, and most texts that are generated at a time.
    """

    def __init__(self, runs: Mapping[str, ServedRun], limits: Limits, max_batch_size: int, send: Send):
        self.runs, self.limits, self.max_batch_size, self.send = runs, limits, max_batch_size, send
        self._waiting: deque[_Request] = deque()
        self._prompts: deque[_Request] = deque()
        self._generating: dict[str, _Request] = {}

    @property
    def num_waiting(self) -> int:
        """Number of examples that wait for a batch."""
        return sum(len(one.payload["inputs"]) for one in self._waiting)

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
        if batch := self._next_batch():
            self._answer(batch)
        while self._prompts and len(self._generating) < self.max_batch_size:
            one = self._prompts.popleft()
            self._generating[one.uid] = one
        for one in list(self._generating.values()):
            self._step(one)

    def _next_batch(self) -> list[_Request]:
        """Requests to the run and the action of the first one, which are taken out of the queue."""
        now, batch, rest, count = time.monotonic(), list[_Request](), deque[_Request](), 0
        for one in self._waiting:
            if one.expires < now:
                continue  # its client has had the answer that it took too long
            size = len(one.payload["inputs"])
            if batch and (one.batch != batch[0].batch or count + size > self.max_batch_size):
                rest.append(one)
            else:
                batch.append(one)
                count += size
        self._waiting = rest
        return batch

    def _answer(self, batch: Sequence[_Request]) -> None:
        name, action = batch[0].batch
        run = self.runs[name]
        encoded = [[_attempt(run.reader.tokens, value) for value in one.payload["inputs"]] for one in batch]
        examples = [x for of_one in encoded for x in of_one if isinstance(x, Tokens)]
        answers = iter(run.answer(action, examples))
        for one, of_one in zip(batch, encoded):
            results = [dict(next(answers)) if isinstance(x, Tokens) else x for x in of_one]
            for result in results:
                if not one.payload["probabilities"]:
                    result.pop("probabilities", None)
            self.send(one.uid, {"results": results}, True)

    def _step(self, one: _Request) -> None:
        """Send the next piece of a text; the last one, if it took too long."""
        try:
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
