"""Text from a trained model and raw prompts: streamed in pieces, or whole texts of a batch.

n tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from seqkit.generation.beam_search import BeamSearch
from seqkit.generation.decode import Suppressed
from seqkit.generation.sampling import Sampling
from seqkit.generation.stream import generate, stream
from seqkit.interfaces import IGNORE, TokenBatch

if TYPE_CHECKING:
    from seqkit.objectives.seq2seq import Seq2Seq
    from seqkit.runs.trained_model import TrainedModel

MAX_NEW_TOKENS = 500
"""The default where neither the user nor the run limits the length of a text."""

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""Character that stands for incomplete bytes in decoded text."""


def stream_text(
    trained: TrainedModel,
    prompt: Any,
    max_new_tokens: int | None = None,
    *,
    sampling: Sampling | None = None,
    stop: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the text that a trained model generates, piece by piece as it can be decoded.

    prompt: the text that a language model continues, or the raw source of a sequence-to-sequence model (`Seq2Seq`).
    max_new_tokens: None: what the model was published with (`TrainedModel.published`), the longest training label, or
    MAX_NEW_TOKENS. sampling: None: what it was published with, or `Sampling()`.
    stop: strings before which the text ends. Raises DataError if the prompt cannot be encoded; ValueError if the run
    generates no text.
    """
    request = _Request.of(trained, [prompt], max_new_tokens)
    if sampling is None:
        sampling = Sampling(**trained.published.sampling)
    for pieces in _pieces(trained, request, sampling, stop):
        if pieces[0]:
            yield pieces[0]


def generate_texts(
    trained: TrainedModel,
    prompts: Sequence[Any],
    max_new_tokens: int | None = None,
    *,
    strategy: Sampling | BeamSearch | None = None,
    stop: Sequence[str] = (),
) -> list[str]:
    """The text generated for each prompt, in one batch; the prompt is not part of it.

    As `stream_text`. Raises ValueError for a beam search with `stop`, since it stops at ids.
    """
    request = _Request.of(trained, prompts, max_new_tokens)
    if strategy is None:
        strategy = trained.published.strategy()
    if not isinstance(strategy, BeamSearch):
        pieces = list(_pieces(trained, request, strategy, stop))
        return ["".join(texts) for texts in zip(*pieces)]
    if stop:
        raise ValueError(
            "a beam search ends a text where the model does, and not at a stop text; leave stop out"
        )
    sequences = generate(
        trained.model,
        request.prompts,
        request.max_new_tokens,
        strategy=strategy,
        stop=request.stop,
        **request.settings,
    )
    texts = []
    for prefix, ids in zip(request.prefixes, sequences):
        text = request.decode(torch.cat([prefix, ids.cpu()]))
        texts.append(text[len(request.decode(prefix)) :])
    return texts


@dataclass(frozen=True)
class _Request:
    """Raw prompts as model input, and how the generated ids become text.

    prompts: ids that each sequence starts with. prefixes: those of them that are text (a bos id is not).
    decode: text of ids. stop: ids that end a sequence. settings: as in `stream`.
    """

    prompts: list[Tensor]
    prefixes: list[Tensor]
    decode: Callable[[Tensor], str]
    max_new_tokens: int
    stop: list[int]
    settings: dict[str, Any]

    @classmethod
    def of(cls, trained: TrainedModel, raws: Sequence[Any], max_new_tokens: int | None) -> _Request:
        """The request for raw prompts, or sources. Raises ValueError if the run generates no text."""
        tokenizer: Any = trained.tokenizer
        published = trained.published
        if max_new_tokens is None:
            max_new_tokens = published.max_new_tokens
        if trained.objective.target_spec is not None:
            objective = cast("Seq2Seq", trained.objective)
            device = next(trained.model.parameters()).device
            source = TokenBatch.collate([tokenizer.encode(raw) for raw in raws]).to(device)
            start = torch.tensor(objective.start_ids)
            target = objective.target
            return cls(
                [start] * len(raws),
                [start[:0]] * len(raws),
                lambda ids: target.decode(ids[objective.is_text(ids)]),
                objective.longest + 1 if max_new_tokens is None else max_new_tokens,
                [objective.eos_id],
                {"source": source, "suppressed": objective.suppressed},
            )
        name = type(tokenizer).__name__
        if trained.model.spec.is_joined:
            raise ValueError(
                "this run writes a part of joined tokens; get it by `seqkit predict`, or continue_with_part"
            )
        if not hasattr(tokenizer, "decode") or not trained.model.spec.ids:
            raise ValueError(f"{name} does not decode ids to text; generate from a run on text")
        prompts = []
        for raw in raws:
            tokens = tokenizer.encode(raw)
            counted = torch.arange(float(len(tokens)))
            if tokens.positions.shape[1] and not tokens.positions[:, 0].equal(counted):
                raise ValueError(
                    f"{name} gives positions other than 0, 1, 2, …, so those of generated tokens are not known; give "
                    "it the method continues(tokens, content)"
                )
            prompts.append(tokens.content)
        if max_new_tokens is None:
            max_new_tokens = MAX_NEW_TOKENS
        settings = {
            "context_length": trained.config["data"].get("window"),
            "suppressed": Suppressed(published.never, published.never_first),
        }
        stop = [*published.stop]
        return cls(prompts, prompts, tokenizer.decode, max_new_tokens, stop, settings)


def _pieces(
    trained: TrainedModel,
    request: _Request,
    sampling: Sampling | None,
    stop: Sequence[str],
) -> Iterator[list[str]]:
    """Yield the new piece of each text, step by step."""
    if not all(stop):
        raise ValueError(
            "a stop text is empty, which every text contains; give at least one character"
        )
    detokenizers = [
        IncrementalDetokenizer(prefix.tolist(), request.decode, stop) for prefix in request.prefixes
    ]
    steps = stream(
        trained.model,
        request.prompts,
        request.max_new_tokens,
        sampling=sampling,
        stop=request.stop,
        **request.settings,
    )
    for new in steps:
        yield [
            detokenizer.add(i) if i != IGNORE and i not in request.stop else ""
            for detokenizer, i in zip(detokenizers, new.tolist())
        ]
        if all(detokenizer.done for detokenizer in detokenizers):
            return
    yield [detokenizer.flush() for detokenizer in detokenizers]


class IncrementalDetokenizer:
    """Decodes ids that come one by one to pieces of text; holds back what may still change or be cut off.

    ids: ids of the prompt, whose text is in no piece. stop: strings before which the text ends.
    """

    def __init__(self, ids: list[int], decode: Callable[[Tensor], str], stop: Sequence[str]):
        self.done = False
        self._ids = ids
        self._decode = decode
        self._stop = stop
        self._start = self._num_shown = len(self._text())

    def _text(self) -> str:
        return self._decode(torch.tensor(self._ids, dtype=torch.int64))

    def add(self, new: int) -> str:
        """The text that is final with one more id."""
        if self.done:
            return ""
        self._ids.append(new)
        text = self._text()
        ends = [text.find(stop, self._start) for stop in self._stop]
        found = [end for end in ends if end >= 0]
        if found:
            self.done = True
            return self._until(text, min(found))
        # an incomplete character waits for its other bytes, and the first characters of a stop string for the others
        complete = len(text) - 1 if text.endswith(INCOMPLETE) else len(text)
        partial_stops = [
            n for stop in self._stop for n in range(1, len(stop)) if text.endswith(stop[:n])
        ]
        return self._until(text, min(complete, len(text) - max(partial_stops, default=0)))

    def flush(self) -> str:
        """The text that was held back."""
        text = self._text()
        if self.done:
            return ""
        return self._until(text, len(text))

    def _until(self, text: str, end: int) -> str:
        piece = text[self._num_shown : max(end, self._num_shown)]
        self._num_shown += len(piece)
        return piece
