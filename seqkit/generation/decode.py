"""Autoregressive decoding, one token a step: with a cache, or by encoding the whole context again in each step.

b sequences · n tokens · t new tokens · k fields · v vocabulary · s stop ids
"""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from einops import rearrange, repeat
from torch import Tensor

from seqkit.generation.decoders import MIN_STEPS, Step, find_decoder
from seqkit.generation.sampling import PerSequenceRNG, Sampling
from seqkit.interfaces import IGNORE, Cache, TokenBatch
from seqkit.interfaces.finite import check_computed
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

    prompts: what each sequence starts with. context_length: most tokens of a context; None: no limit. A sequence whose
    context grows beyond it continues from its last context_length / 2 tokens; each sequence of a batch does so by
    itself. use_cache: whether a step feeds the newest tokens only; None: if the backbone has a cache. num_fields: ids
    that a token has.
    A subclass defines its tokens: `_contexts`, `_newest`, `seen`.
    Raises ValueError for no prompts, numbers below 1, or a cache that the backbone does not have.
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Sized],
        max_new_tokens: int,
        *,
        context_length: int | None = None,
        use_cache: bool | None = None,
        num_fields: int = 1,
    ):
        if not prompts:
            raise ValueError("there are no prompts; give at least one")
        if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
            raise ValueError(
                f"max_new_tokens={max_new_tokens} counts tokens to generate; make it 1 or more"
            )
        if context_length is not None and context_length < 1:
            raise ValueError(
                f"context_length={context_length} counts tokens of the model's input; make it 1 or more"
            )
        self.device = next(model.parameters()).device
        self.model = model
        self.max_new_tokens = max_new_tokens
        self.num_fields = num_fields
        self._context_length = context_length
        # the last new token is in no context
        longest = max(map(len, prompts)) + max_new_tokens - 1
        if context_length is not None:
            longest = min(longest, context_length)
        self._max_columns = longest
        self._has_cache = use_cache is not False and supports_cache(
            model, required=use_cache is True
        )
        self._cache: Cache | None = None
        # [b] tokens of the prompts, and those of the whole sequences before their contexts
        self._lengths = torch.tensor([len(x) for x in prompts], device=self.device)
        self._starts = torch.zeros_like(self._lengths)
        # [b] index of the prompt of each sequence
        self._prompt_index = torch.arange(len(prompts), device=self.device)
        shape = [len(prompts), 0] if num_fields == 1 else [len(prompts), 0, num_fields]
        self.new_ids = self._prompt_index.new_empty(shape)
        """[b t] ids so far, without the prompts; with several fields [b t k]."""

    def __len__(self) -> int:
        return len(self._prompt_index)

    def next_logits(self) -> Tensor:
        """Logits of the next token of each sequence, [b v], with several fields [b k v]; -inf: not generated."""
        if self._cache is None or self._cache.num_tokens == self._context_length:
            return self._encoded()
        return self._cached_step(self._cache)

    def checked_logits(self) -> Tensor:
        """Next logits, of which the largest of each sequence is finite. Raises DataError where it is not.

        Looked at once on a device that would have to wait for it.
        """
        logits = self.next_logits()
        if logits.device.type == "cpu" or self.new_ids.shape[1] == 0:
            largest = logits.amax(dim=-1)
            if not largest.isfinite().all():
                check_computed(largest)
        return logits

    def _encoded(self) -> Tensor:
        """Logits from the whole contexts; a cache holds them from now on."""
        lengths = self._lengths + self.new_ids.shape[1]
        if self._context_length is not None:
            is_full = lengths - self._starts > self._context_length
            kept = max(1, self._context_length // 2)
            self._starts = torch.where(is_full, lengths - kept, self._starts)
        self._cache = None
        if self._has_cache:
            self._cache = self.model.backbone.init_cache(self._max_columns)
        batch = self._contexts(self._starts.tolist()).to(self.device)
        return self._logits(batch, lengths - self._starts - 1, self._cache)

    def _cached_step(self, cache: Cache) -> Tensor:
        """Logits from the last token of each sequence; the cache has the earlier ones."""
        return self._logits(self._newest().to(self.device), 0, cache)

    def _logits(self, batch: TokenBatch, columns: Tensor | int, cache: Cache | None) -> Tensor:
        """Logits of the token after a column of each row, [b] or the same in all."""
        logits: Tensor = self.model(batch, cache=cache)
        return logits[torch.arange(len(self), device=self.device), columns]

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
        self.new_ids = torch.cat([self.new_ids, ids[:, None]], dim=1)

    def reorder(self, rows: Tensor) -> None:
        """Keep the sequences with these indices [b'], in this order; an index may occur twice or not at all."""
        self._lengths = self._lengths[rows]
        self._starts = self._starts[rows]
        self._prompt_index = self._prompt_index[rows]
        self.new_ids = self.new_ids[rows]
        if self._cache is not None:
            self._cache.reorder(rows)

    def check_positions(self) -> None:
        """Raise ValueError if the longest context, from position 0 on, is more than the model has positions for."""
        num_positions = cast(Embedder, self.model.embedder).position.num_positions
        if num_positions is not None and self._max_columns > num_positions:
            # a Seq2Seq decoder was trained on whole targets, so it is not advised to cut the context
            cut = ""
            if self.model.source_embedder is None:
                cut = f", or give context_length={num_positions} or less"
            raise ValueError(
                f"{self.max_new_tokens} new tokens need {self._max_columns} positions, and the learned table has "
                f"{num_positions}; generate fewer (max_new_tokens, --tokens on the command line){cut}"
            )


class DecodingState(Decoding):
    """Sequences of ids at positions 0, 1, 2, …, whose steps a decoder may compute faster than the modules.

    prompts: [n] int64 ids each, of any lengths >= 1. source: batch for the encoder, an example per prompt.
    context_length: as in `Decoding`, usually the number of tokens that the model was trained on.
    suppressed: ids that are not generated. Raises ValueError if model, prompts and settings do not fit together.
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
        _check(model, prompts, source)
        super().__init__(
            model, prompts, max_new_tokens, context_length=context_length, use_cache=use_cache
        )
        self.check_positions()
        suppressed = Suppressed() if suppressed is None else suppressed
        self._never = self.checked_ids("suppressed", suppressed.always)
        self._never_first = self.checked_ids("suppressed", suppressed.always + suppressed.first)
        self._prompts = [prompt.to(self.device) for prompt in prompts]
        self._source = None if source is None else source.to(self.device)
        self._decoder: Step | None = None
        self._tries_decoder = True
        self._taken: Cache | None = None  # the cache that the decoder has taken over

    def checked_ids(self, name: str, ids: Sequence[int]) -> Tensor:
        """The distinct ids [s], sorted. Raises ValueError for an id outside the vocabulary."""
        size = self.model.spec.vocab_size
        for i in ids:
            if not isinstance(i, int) or not 0 <= i < size:
                raise ValueError(
                    f"{name} id {i} is outside the vocabulary; ids go from 0 to {size - 1}"
                )
        return torch.tensor(sorted(set(ids)), dtype=torch.int64, device=self.device)

    def seen(self) -> Tensor:
        seen = torch.zeros(
            len(self), self.model.spec.vocab_size, dtype=torch.bool, device=self.device
        )
        for row, ids in zip(seen, self._sequences()):
            row[ids] = True
        return seen

    def next_logits(self, *, masked: bool = True) -> Tensor:
        # most steps are a decoder's, so these go no other way
        if (
            self._cache is self._taken is not None
            and self._taken.num_tokens != self._context_length
        ):
            logits = cast(Step, self._decoder)(self.new_ids[:, -1], self._taken)
        else:
            logits = super().next_logits()
        never = self._never if self.new_ids.shape[1] else self._never_first
        if masked and len(never):
            return logits.index_fill(-1, never, -torch.inf)
        return logits

    def log_probabilities(self) -> Tensor:
        """Log-probabilities of the next token of each sequence [b v], among all ids; -inf: not generated.

        As in transformers, whose beams add up what a model gives each id, and not its share among those that are left.
        Raises DataError as `checked_logits`.
        """
        logits = self.next_logits(masked=False)
        largest = logits.amax(dim=-1)
        if not largest.isfinite().all():
            check_computed(largest)
        never = self._never if self.new_ids.shape[1] else self._never_first
        return logits.float().log_softmax(dim=-1).index_fill(-1, never, -torch.inf)

    def _sequences(self) -> list[Tensor]:
        return [
            torch.cat([self._prompts[i], row])
            for i, row in zip(self._prompt_index.tolist(), self.new_ids)
        ]

    def _contexts(self, starts: Sequence[int]) -> TokenBatch:
        contexts = [ids[start:] for ids, start in zip(self._sequences(), starts)]
        content = torch.nn.utils.rnn.pad_sequence(contexts, batch_first=True)
        index = torch.arange(content.shape[1], device=self.device)
        positions = repeat(index.float(), "n -> b n p", b=len(self), p=self.model.spec.num_axes)
        source = None if self._source is None else self._source.select(self._prompt_index)
        valid = index <= rearrange(self._positions(), "b -> b 1")
        return TokenBatch(content, positions, valid, source=source)

    def _positions(self) -> Tensor:
        """[b] int64 of the newest tokens."""
        return self._lengths + self.new_ids.shape[1] - self._starts - 1

    def _newest(self) -> TokenBatch:
        content = self.new_ids[:, -1:]
        positions = repeat(self._positions().float(), "b -> b 1 p", p=self.model.spec.num_axes)
        return TokenBatch(content, positions, torch.ones_like(content, dtype=torch.bool))

    def _cached_step(self, cache: Cache) -> Tensor:
        """A step by the modules, or the first one by a decoder after a pass over the contexts."""
        if self._tries_decoder:  # once, if enough steps are left
            self._tries_decoder = False
            if self.max_new_tokens - self.new_ids.shape[1] >= MIN_STEPS:
                self._decoder = find_decoder(self.model, len(self), self._max_columns)
        if self._decoder is None:
            return super()._cached_step(cache)
        before = cache
        if not self._decoder.is_proven:
            before = copy.deepcopy(cache)
        try:
            self._cache = self._taken = self._decoder.state(cache, self._positions())
        except ValueError:  # this cache grows with the tokens
            self._decoder = None
            return super()._cached_step(cache)
        found = self._decoder(self.new_ids[:, -1], self._taken)
        if self._decoder.is_proven:
            return found
        expected = super()._cached_step(before)
        error = float((found - expected).float().square().mean().sqrt() / expected.float().std())
        is_narrow = expected.dtype not in (torch.float32, torch.float64)
        if error <= (0.1 if is_narrow else 1e-3):
            self._decoder.is_proven = True
            return found
        log.warning(
            "decoding goes on by the modules: the faster step's logits differ by %.2g deviations",
            error,
        )
        self._decoder = None
        self._cache = before
        return expected


@torch.inference_mode()
def decoded(
    state: Decoding, sampling: Sampling | None, stop: Tensor | None = None
) -> Iterator[Tensor]:
    """Yield the new ids [b] or [b k] of each step, IGNORE for sequences that have ended.

    The model is in evaluation mode meanwhile. The last token is not appended to `state`. sampling: None: `Sampling()`.
    stop: ids [s] that end a sequence, with one field only; None: none.
    """
    sampling = Sampling() if sampling is None else sampling
    if stop is not None and len(stop) == 0:
        stop = None
    b = len(state)
    k = state.num_fields
    with evaluating(state.model):
        rng = PerSequenceRNG(sampling.seed, b * k)
        seen: Tensor | None = None
        if sampling.repetition_penalty != 1:
            seen = state.seen().flatten(0, -2)
        # indices of the sequences that `state` still has
        rows = torch.arange(b, device=state.device)
        ongoing = torch.ones_like(rows, dtype=torch.bool)  # [b'] True: not ended
        for step in range(1, state.max_new_tokens + 1):
            new = sampling.choose(state.checked_logits().flatten(0, -2), seen, rng)
            ids = new if k == 1 else new.unflatten(0, (-1, k))
            with torch.inference_mode(False):  # no inference tensor, so it may be trained on
                found = ids.clone()
                if stop is not None:
                    found = torch.where(ongoing, found, IGNORE)
                    if len(rows) < b:
                        found = found.new_full((b,), IGNORE).scatter(0, rows, found)
            yield found
            if step == state.max_new_tokens:
                return
            if stop is not None:
                ongoing = ongoing & ~torch.isin(new, stop)
                num_ongoing = int(ongoing.sum())
                if num_ongoing == 0:
                    return
                # copying half of the cache costs less than decoding all
                if 2 * num_ongoing <= len(rows):
                    kept = ongoing.argwhere().flatten()
                    state.reorder(kept)
                    rng.reorder(kept)
                    rows = rows[kept]
                    ongoing = ongoing[kept]
                    ids = new = new[kept]
                    if seen is not None:
                        seen = seen[kept]
            state.append(ids)
            if seen is not None:
                seen = seen.scatter(1, rearrange(new, "b -> b 1"), True)


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Context in which the model is in evaluation mode; its mode is restored afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def supports_cache(model: Model, *, required: bool) -> bool:
    """Whether the backbone has a cache (some mechanisms have none). Raises ValueError if `required` and it has none."""
    try:
        model.backbone.init_cache(1)
    except ValueError:
        if required:
            raise
        return False
    return True


def _check(model: Model, prompts: Sequence[Tensor], source: TokenBatch | None) -> None:
    spec = model.spec
    if not model.causal or not spec.ids:
        raise ValueError(
            "generation needs a causal backbone over ids; train with the objective NextToken or Seq2Seq"
        )
    if spec.num_axes > 1:
        raise ValueError(
            f"generation counts tokens along one axis, and these tokens have {spec.num_axes}; "
            "the positions of new tokens are unknown"
        )
    for i, prompt in enumerate(prompts):
        if prompt.ndim != 1 or len(prompt) == 0:
            raise ValueError(f"prompt {i} has no tokens; give at least one to start from")
        low = int(prompt.min())
        high = int(prompt.max())
        if prompt.dtype != torch.int64 or low < 0 or high >= spec.vocab_size:
            raise ValueError(
                f"prompt {i} holds {prompt.dtype} from {low} to {high}; give int64 ids below {spec.vocab_size}"
            )
    if source is not None and model.source_embedder is None:
        wants = "takes one sequence"
    elif source is None and model.source_embedder is not None:
        wants = "generates one sequence from another, and got no source"
    elif source is not None and len(source) != len(prompts):
        raise ValueError(
            f"source has {len(source)} examples beside {len(prompts)} prompts; give one for each"
        )
    else:
        return
    raise ValueError(
        f"this model {wants}; a source goes with the objective Seq2Seq, and only there"
    )
