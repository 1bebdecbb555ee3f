"""Autoregressive decoding, one token a step: with a cache, or by encoding the whole context again in each step.

b sequences · n tokens · t new tokens · v vocabulary · s stop ids
"""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from einops import rearrange, repeat
from torch import Tensor

from seqkit.generation.decoders import MIN_STEPS, Decoder, find_decoder
from seqkit.interfaces import Cache, TokenBatch
from seqkit.model import Model
from seqkit.nn.embedder import Embedder

log = logging.getLogger("seqkit")


@dataclass(frozen=True, slots=True)
class Suppressed:
    """Ids that are not generated (`suppress_tokens` and `begin_suppress_tokens` of transformers).

    always: ids that are never generated. first: ids that are not generated as the first new token.
    """

    always: tuple[int, ...] = ()
    first: tuple[int, ...] = ()


class Decoding(ABC):
    """Sequences that grow by one token a step: take `next_logits`, choose, `append`, and repeat.

    context_length: most tokens of a context; None: no limit. A sequence whose context grows beyond it continues from
    its last context_length / 2 tokens; each sequence of a batch does so by itself.
    lengths: tokens of each sequence at the start. has_cache: whether a step feeds the newest tokens only.
    max_columns: columns of the longest context. A subclass defines its tokens: `_contexts`, `_newest`, `append`.
    """

    num_fields = 1

    def __init__(
        self,
        model: Model,
        lengths: Sequence[int],
        context_length: int | None,
        max_columns: int,
        has_cache: bool,
    ):
        self.device = next(model.parameters()).device
        self._model = model
        self._context_length = context_length
        self._max_columns = max_columns
        self._has_cache = has_cache
        self._cache: Cache | None = None
        # [b] tokens of the whole sequences
        self._lengths = torch.tensor(lengths, device=self.device)
        self._starts = torch.zeros_like(self._lengths)  # [b] tokens before their contexts

    def __len__(self) -> int:
        return len(self._lengths)

    def next_logits(self) -> Tensor:
        """Logits of the next token of each sequence, [b v], with several fields [b k v]; -inf: not generated."""
        if self._cache is not None and self._cache.num_tokens != self._context_length:
            return self._cached_step(self._cache)
        if self._context_length is not None:
            is_full = self._lengths - self._starts > self._context_length
            kept = max(1, self._context_length // 2)
            self._starts = torch.where(is_full, self._lengths - kept, self._starts)
        self._cache = None
        if self._has_cache:
            self._cache = self._model.backbone.init_cache(self._max_columns)
        batch = self._contexts(self._starts.tolist())
        return self._logits(batch.to(self.device), self._lengths - self._starts - 1, self._cache)

    def _cached_step(self, cache: Cache) -> Tensor:
        """Logits from the last token of each sequence; the cache has the earlier ones."""
        return self._logits(self._newest().to(self.device), torch.zeros_like(self._lengths), cache)

    def _logits(self, batch: TokenBatch, columns: Tensor, cache: Cache | None) -> Tensor:
        """Logits of the token after column [b] of each row."""
        logits: Tensor = self._model(batch, cache=cache)
        return logits[torch.arange(len(columns), device=self.device), columns]

    @abstractmethod
    def _contexts(self, starts: Sequence[int]) -> TokenBatch:
        """The tokens of each sequence from `starts` on; positions count from there."""

    @abstractmethod
    def _newest(self) -> TokenBatch:
        """The last token of each sequence."""

    @abstractmethod
    def seen(self) -> Tensor:
        """[b v] bool, with several fields [b k v], True: the id occurs in the sequence, prompt included."""

    def append(self, ids: Tensor) -> None:
        """Append a token to each sequence: ids [b], with several fields [b k]."""
        self._lengths = self._lengths + 1

    def reorder(self, rows: Tensor) -> None:
        """Keep the sequences with these indices [b'], in this order; an index may occur twice or not at all."""
        self._lengths = self._lengths[rows]
        self._starts = self._starts[rows]
        if self._cache is not None:
            self._cache.reorder(rows)


class DecodingState(Decoding):
    """Sequences of ids at positions 0, 1, 2, …

    prompts: [n] int64 ids each, of any lengths >= 1. source: batch for the encoder, an example per prompt.
    context_length: as in `Decoding`, usually the number of tokens that the model was trained on.
    use_cache: None: use a cache if the backbone has one. suppressed: ids that are not generated.
    Raises ValueError if model, prompts and settings do not fit together.
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Tensor],
        max_new_tokens: int,
        *,
        source: TokenBatch | None = None,
        context_length: int | None = None,
        use_cache: bool | None = None,
        suppressed: Suppressed | None = None,
    ):
        _check(model, prompts, max_new_tokens, source, context_length)
        has_cache = use_cache is not False and supports_cache(model, required=use_cache is True)
        max_columns = longest_context(prompts, max_new_tokens, context_length)
        super().__init__(model, [len(x) for x in prompts], context_length, max_columns, has_cache)
        self._suppressed = Suppressed() if suppressed is None else suppressed
        checked_ids("suppressed", [*self._suppressed.always, *self._suppressed.first], model)
        self._prompts = [prompt.to(self.device) for prompt in prompts]
        self._source = None if source is None else source.to(self.device)
        # computes steps faster than the modules, if the model has one
        self._decoder: Decoder | None = None
        self._taken: Cache | None = None  # the cache that the decoder has taken over
        self._tries_decoder = True
        self._max_new_tokens = max_new_tokens
        # [b] index of the prompt of each sequence
        self._prompt_index = torch.arange(len(prompts), device=self.device)
        self._new_ids = self._prompt_index.new_empty(len(prompts), 0)
        self.num_new_tokens = 0

    @property
    def new_ids(self) -> Tensor:
        """[b t] ids so far, without the prompts."""
        return self._new_ids[:, : self.num_new_tokens]

    def seen(self) -> Tensor:
        seen = torch.zeros(
            len(self._prompt_index),
            self._model.spec.vocab_size,
            dtype=torch.bool,
            device=self.device,
        )
        for row, ids in zip(seen, self._sequences()):
            row[ids] = True
        return seen

    def next_logits(self) -> Tensor:
        logits = super().next_logits()
        never = self._suppressed.always + (() if self.num_new_tokens else self._suppressed.first)
        if never:
            return logits.index_fill(-1, torch.tensor(never, device=logits.device), -torch.inf)
        return logits

    def append(self, ids: Tensor) -> None:
        super().append(ids)
        # double the buffer, to avoid a copy in every step
        if self.num_new_tokens == self._new_ids.shape[1]:
            room = self._new_ids.new_empty(len(ids), max(64, self.num_new_tokens))
            self._new_ids = torch.cat([self._new_ids, room], dim=1)
        self._new_ids[:, self.num_new_tokens] = ids
        self.num_new_tokens += 1

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        self._prompt_index = self._prompt_index[rows]
        self._new_ids = self._new_ids[rows]

    def _sequences(self) -> list[Tensor]:
        return [
            torch.cat([self._prompts[i], row])
            for i, row in zip(self._prompt_index.tolist(), self.new_ids)
        ]

    def _contexts(self, starts: Sequence[int]) -> TokenBatch:
        contexts = [ids[start:] for ids, start in zip(self._sequences(), starts)]
        content = torch.nn.utils.rnn.pad_sequence(contexts, batch_first=True)
        index = torch.arange(content.shape[1], device=self.device)
        positions = repeat(
            index.float(), "n -> b n p", b=len(contexts), p=self._model.spec.num_axes
        )
        source = None if self._source is None else self._source.select(self._prompt_index)
        valid = index < rearrange(self._lengths - self._starts, "b -> b 1")
        return TokenBatch(content, positions, valid, source=source)

    def _newest(self) -> TokenBatch:
        content = self._new_ids[:, self.num_new_tokens - 1 : self.num_new_tokens]
        positions = repeat(
            (self._lengths - self._starts - 1).float(), "b -> b 1 p", p=self._model.spec.num_axes
        )
        return TokenBatch(content, positions, torch.ones_like(content, dtype=torch.bool))

    def _cached_step(self, cache: Cache) -> Tensor:
        if self._tries_decoder:  # once, in the first cached step, if enough steps are left
            self._tries_decoder = False
            if self._max_new_tokens - self.num_new_tokens >= MIN_STEPS:
                self._decoder = find_decoder(self._model, len(self._new_ids), self._max_columns)
        if self._decoder is not None and cache is not self._taken:
            witness = None if self._decoder.is_proven else copy.deepcopy(cache)
            try:
                self._cache = self._taken = cache = self._decoder.take_over(
                    cache, self._lengths - self._starts - 1
                )
            except ValueError:  # this cache grows with the tokens
                self._decoder = witness = None
            if witness is not None:
                return self._proven_step(cache, witness)
        if self._decoder is None:
            return super()._cached_step(cache)
        return self._decoder.step(self._new_ids[:, self.num_new_tokens - 1], cast(Any, cache))

    def _proven_step(self, cache: Cache, witness: Cache) -> Tensor:
        """The decoder's first step, if it is that of the modules, which go on with `witness` otherwise."""
        assert self._decoder is not None
        expected = super()._cached_step(witness)
        found = self._decoder.step(self._new_ids[:, self.num_new_tokens - 1], cast(Any, cache))[
            : len(expected)
        ]
        difference = float(
            (found - expected).float().square().mean().sqrt() / expected.float().std()
        )
        if difference <= (1e-3 if expected.dtype in (torch.float32, torch.float64) else 0.1):
            self._decoder.is_proven = True
            return found
        log.warning(
            "decoding goes on by the modules: the faster step's logits differ by %.2g deviations",
            difference,
        )
        self._decoder = None
        self._cache = witness
        return expected


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Context in which the model is in evaluation mode; its mode is restored afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def checked_stop(stop: Sequence[int], model: Model, device: torch.device) -> Tensor:
    """Ids [s] that end a sequence, as a tensor. Raises ValueError for an id outside the vocabulary."""
    return torch.tensor(checked_ids("stop", stop, model), dtype=torch.int64, device=device)


def checked_ids(name: str, ids: Sequence[int], model: Model) -> list[int]:
    """The distinct ids, sorted. Raises ValueError for an id outside the vocabulary."""
    for i in ids:
        if not isinstance(i, int) or not 0 <= i < model.spec.vocab_size:
            raise ValueError(
                f"{name} id {i} is outside the vocabulary; ids go from 0 to {model.spec.vocab_size - 1}"
            )
    return sorted(set(ids))


def supports_cache(model: Model, *, required: bool) -> bool:
    """Whether the backbone has a cache (some mechanisms have none). Raises ValueError if `required` and it has none."""
    try:
        model.backbone.init_cache(1)
    except ValueError:
        if required:
            raise
        return False
    return True


def _check(
    model: Model,
    prompts: Sequence[Tensor],
    max_new_tokens: int,
    source: TokenBatch | None,
    context_length: int | None,
) -> None:
    if not model.causal or not model.spec.ids:
        raise ValueError(
            "generation needs a causal backbone over ids; train with the objective NextToken or Seq2Seq"
        )
    if model.spec.num_axes > 1:
        raise ValueError(
            f"generation counts tokens along one axis, and these tokens have {model.spec.num_axes}; "
            "the positions of new tokens are unknown"
        )
    if not prompts:
        raise ValueError("there are no prompts; give at least one")
    for i, prompt in enumerate(prompts):
        if prompt.ndim != 1 or len(prompt) == 0:
            raise ValueError(f"prompt {i} has no tokens; give at least one to start from")
        low = int(prompt.min())
        high = int(prompt.max())
        if prompt.dtype != torch.int64 or low < 0 or high >= model.spec.vocab_size:
            raise ValueError(
                f"prompt {i} holds {prompt.dtype} from {low} to {high}; give int64 ids below {model.spec.vocab_size}"
            )
    if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ValueError(
            f"max_new_tokens={max_new_tokens} counts tokens to generate; make it 1 or more"
        )
    if context_length is not None and context_length < 1:
        raise ValueError(
            f"context_length={context_length} counts tokens of the model's input; make it 1 or more"
        )
    check_positions(model, longest_context(prompts, max_new_tokens, context_length), max_new_tokens)
    if (source is not None) != (model.source_embedder is not None):
        if source is not None:
            wants = "takes one sequence"
        else:
            wants = "generates one sequence from another, and got no source"
        raise ValueError(
            f"this model {wants}; a source goes with the objective Seq2Seq, and only there"
        )
    if source is not None and len(source) != len(prompts):
        raise ValueError(
            f"source has {len(source)} examples beside {len(prompts)} prompts; give one for each"
        )


def check_positions(model: Model, num_columns: int, max_new_tokens: int) -> None:
    """Raise ValueError if `num_columns` tokens, from position 0 on, are more than the model has positions for."""
    num_positions = cast(Embedder, model.embedder).position.num_positions
    if num_positions is not None and num_columns > num_positions:
        # a Seq2Seq decoder was trained on whole targets, so it is not advised to cut the context
        if model.source_embedder is None:
            cut = f", or give context_length={num_positions} or less"
        else:
            cut = ""
        raise ValueError(
            f"{max_new_tokens} new tokens need {num_columns} positions, and the learned table has {num_positions}; "
            f"generate fewer (max_new_tokens, --tokens on the command line){cut}"
        )


def longest_context(
    prompts: Sequence[Sized], max_new_tokens: int, context_length: int | None
) -> int:
    """Number of tokens in the longest context; the last new token is in no context."""
    longest = max(map(len, prompts)) + max_new_tokens - 1
    if context_length is None:
        return longest
    return min(longest, context_length)
