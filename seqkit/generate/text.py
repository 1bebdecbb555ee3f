"""From a run and raw prompts to readable text, in pieces as it comes or whole.

n tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqkit.contract import IGNORE, TokenBatch
from seqkit.generate.loop import complete, generate
from seqkit.generate.sampling import Sampling
from seqkit.generate.search import BeamSearch
from seqkit.objectives.translate import Translate

if TYPE_CHECKING:
    from seqkit.run import Loaded

NEW_TOKENS = 500
"""So many at most, where neither the user nor the run says how long a text gets."""

_HALF = "\N{REPLACEMENT CHARACTER}"


def stream_text(
    loaded: Loaded,
    prompt: Any,
    max_new_tokens: int | None = None,
    *,
    sampling: Sampling | None = None,
    stop: Sequence[str] = (),
) -> Iterator[str]:
    """Yield what a trained model writes, piece by piece as it becomes readable.

    prompt: the text that a language model continues, or the raw source of a model that writes from it (`Translate`).
    max_new_tokens: None: as many as the longest training label has, or NEW_TOKENS. sampling: None: `Sampling()`.
    stop: texts before which it ends. Raises DataError if the prompt cannot be encoded; ValueError if the run writes no
    text.
    """
    ends = _Ends.of(loaded, [prompt])
    for piece in _pieces(loaded, ends, max_new_tokens, sampling, stop):
        if piece[0]:
            yield piece[0]


def write_texts(
    loaded: Loaded,
    prompts: Sequence[Any],
    max_new_tokens: int | None = None,
    *,
    strategy: Sampling | BeamSearch | None = None,
    stop: Sequence[str] = (),
) -> list[str]:
    """What is written after (or from) each prompt, in one batch.

    As `stream_text`; but a beam search stops at ids, so a text in `stop` must be a single token for it.
    Raises ValueError where it is not.
    """
    ends = _Ends.of(loaded, prompts)
    if not isinstance(strategy, BeamSearch):
        texts = [""] * len(prompts)
        for pieces in _pieces(loaded, ends, max_new_tokens, strategy, stop):
            texts = [text + piece for text, piece in zip(texts, pieces)]
        return texts
    ids = complete(
        loaded.model,
        ends.prompts,
        ends.longest if max_new_tokens is None else max_new_tokens,
        strategy=strategy,
        memory=ends.memory,
        stop=[*ends.stop, *(ends.id_of(text) for text in stop)],
        context=ends.context,
    )
    return [
        ends.decode(torch.cat([shown, new.cpu()]))[len(ends.decode(shown)) :] for shown, new in zip(ends.shown, ids)
    ]


@dataclass(frozen=True)
class _Ends:
    """How this run reads and writes.

    prompts: ids that each text starts with. shown: those of them that are text. memory: what is read. stop: ids that
    end a text. encode, decode: of what is written. longest: how many tokens a text gets if nobody says.
    """

    prompts: list[Tensor]
    shown: list[Tensor]
    memory: TokenBatch | None
    stop: list[int]
    encode: Callable[[str], Any]
    decode: Callable[[Tensor], str]
    longest: int
    context: int | None

    @classmethod
    def of(cls, loaded: Loaded, raws: Sequence[Any]) -> _Ends:
        """For raw prompts, or sources. Raises ValueError if the run writes no text."""
        tokenizer: Any = loaded.tokenizer
        objective = loaded.objective
        if isinstance(objective, Translate):
            device = next(loaded.model.parameters()).device
            memory = TokenBatch.collate([tokenizer.encode(raw) for raw in raws]).to(device)
            begin, target = torch.tensor([objective.begin]), objective.target
            return cls(
                [begin] * len(raws),
                [begin[:0]] * len(raws),
                memory,
                [objective.end],
                target.encode,
                lambda ids: target.decode(ids[ids < objective.begin]),
                objective.longest + 1,
                None,
            )
        if not hasattr(tokenizer, "decode") or not loaded.model.spec.ids:
            raise ValueError(
                f"{type(tokenizer).__name__} cannot turn ids back into text; generate from a text recipe's run"
            )
        prompts = [tokenizer.encode(raw).content for raw in raws]
        window = loaded.config["data"].get("window")
        return cls(prompts, prompts, None, [], tokenizer.encode, tokenizer.decode, NEW_TOKENS, window)

    def id_of(self, text: str) -> int:
        """The one id of a text at which a beam search stops. Raises ValueError if it is several."""
        ids = self.encode(text).content.tolist()
        if len(ids) != 1:
            raise ValueError(f"stop text {text!r} is {len(ids)} tokens; a beam search stops at one: give a single one")
        return int(ids[0])


def _pieces(
    loaded: Loaded, ends: _Ends, max_new_tokens: int | None, sampling: Sampling | None, stop: Sequence[str]
) -> Iterator[list[str]]:
    """What became readable of each text, step by step."""
    if not all(stop):
        raise ValueError("a stop text is empty, which every text contains; give at least one character")
    readers = [_Readable(shown.tolist(), ends.decode, stop) for shown in ends.shown]
    steps = generate(
        loaded.model,
        ends.prompts,
        ends.longest if max_new_tokens is None else max_new_tokens,
        sampling=sampling,
        memory=ends.memory,
        stop=ends.stop,
        context=ends.context,
    )
    for new in steps:
        ids = new.tolist()
        yield [reader.add(i) if i != IGNORE and i not in ends.stop else "" for reader, i in zip(readers, ids)]
        if all(reader.done for reader in readers):
            return
    yield [reader.rest() for reader in readers]


class _Readable:
    """Ids that come one by one, as pieces of text; what might still change or be cut off waits."""

    def __init__(self, ids: list[int], decode: Callable[[Tensor], str], stop: Sequence[str]):
        self.done = False
        self._ids, self._decode, self._stop = ids, decode, stop
        self._start = self._shown = len(self._text())

    def _text(self) -> str:
        return self._decode(torch.tensor(self._ids, dtype=torch.int64))

    def add(self, new: int) -> str:
        """What became readable with one more id."""
        if self.done:
            return ""
        self._ids.append(new)
        text = self._text()
        found = [at for at in (text.find(stop, self._start) for stop in self._stop) if at >= 0]
        if found:
            self.done = True
            return self._until(text, min(found))
        # half a character waits for its other half, and the beginning of a stop text for the rest of it
        ready = len(text) - 1 if text.endswith(_HALF) else len(text)
        starts = [n for stop in self._stop for n in range(1, len(stop)) if text.endswith(stop[:n])]
        return self._until(text, min(ready, len(text) - max(starts, default=0)))

    def rest(self) -> str:
        """What waited in vain."""
        text = self._text()
        return "" if self.done else self._until(text, len(text))

    def _until(self, text: str, end: int) -> str:
        piece = text[self._shown : max(end, self._shown)]
        self._shown += len(piece)
        return piece
