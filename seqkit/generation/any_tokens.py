"""Continuation of any tokens: several ids each, numbers beside them, positions that are measured, edges.

Ids at positions 0, 1, 2, … have a faster loop (`seqkit.generation.stream`).

b sequences · n tokens · k fields · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from einops import rearrange
from torch import Tensor

from seqkit.generation.decode import check_positions, evaluating
from seqkit.generation.sampling import PerSequenceRNG, Sampling
from seqkit.interfaces import Cache, TokenBatch, Tokenizer, Tokens
from seqkit.model import Model

if TYPE_CHECKING:
    from seqkit.runs.trained_model import TrainedModel

Extend = Callable[[Tokens, Tensor], Tokens]
"""`Tokenizer.continues`: some tokens, and one more of that content, an id or [k] ids."""


def needs_any_tokens(trained: TrainedModel) -> bool:
    """Whether a run's tokens are other than ids at positions 0, 1, 2, …, so that only this loop can go on with them."""
    spec, own = trained.model.spec, type(trained.tokenizer).continues is not Tokenizer.continues
    one_sequence = trained.objective.target_spec is None
    return one_sequence and spec.is_categorical and (own or not spec.ids or spec.num_edge_types > 0)


def continue_examples(
    trained: TrainedModel, raws: Sequence[Any], num_new_tokens: int, *, sampling: Sampling | None = None
) -> list[Any]:
    """Raw examples, each gone on with for `num_new_tokens` tokens, as the tokenizer's `decode(tokens)` gives them.

    Raises DataError where one cannot be encoded; ValueError where the tokenizer has no `decode`, or does not know how
    its tokens go on (`Tokenizer.continues`).
    """
    tokenizer: Any = trained.tokenizer
    if getattr(tokenizer, "decode", None) is None:
        raise ValueError(f"{type(tokenizer).__name__} has no decode(tokens), so what is generated cannot be shown")
    window = trained.config["data"].get("window")
    prompts = [tokenizer.encode(raw) for raw in raws]
    found = continue_tokens(
        trained.model, prompts, num_new_tokens, tokenizer.continues, sampling=sampling, context_length=window
    )
    return [tokenizer.decode(tokens) for tokens in found]


@torch.inference_mode()
def continue_tokens(
    model: Model,
    prompts: Sequence[Tokens],
    num_new_tokens: int,
    extend: Extend,
    *,
    sampling: Sampling | None = None,
    context_length: int | None = None,
) -> list[Tokens]:
    """Each prompt and `num_new_tokens` more. The fields of a token are drawn each by itself, as the head predicts them.

    sampling: None: `Sampling()`, the model's own distribution. context_length: number of tokens that the model was
    trained on; a longer context goes on from its last half, moved to where the sequence begins. None: no limit.
    Raises ValueError for a model that predicts no next ids, no prompts, or settings out of range.
    """
    if not model.causal or not model.spec.is_categorical or model.source_embedder is not None:
        raise ValueError("generation needs a causal backbone over ids; train with the objective NextToken")
    if not prompts or num_new_tokens < 1:
        raise ValueError(f"{len(prompts)} prompts and {num_new_tokens} new tokens; give 1 or more of each")
    if context_length is not None and context_length < 1:
        raise ValueError(f"context_length={context_length} counts tokens of the model's input; make it 1 or more")
    for tokens in prompts:
        model.spec.check(tokens)
    longest = max(map(len, prompts)) + num_new_tokens - 1  # the last new token is in no context
    longest = longest if context_length is None else min(longest, context_length)
    if getattr(extend, "__func__", None) is Tokenizer.continues:  # which counts; others measure
        check_positions(model, longest, num_new_tokens)
    sampling = Sampling() if sampling is None else sampling
    sizes, found = model.spec.id_sizes, list(prompts)
    rng = PerSequenceRNG(sampling.seed, len(prompts) * len(sizes))
    with evaluating(model):
        contexts = _Contexts(model, context_length, longest)
        for _ in range(num_new_tokens):
            logits = rearrange(contexts.next_logits(found), "b ... v -> b (...) v")
            seen = None if sampling.repetition_penalty == 1 else _seen(model, found, logits)
            flat = None if seen is None else rearrange(seen, "b k v -> (b k) v")
            ids = sampling.choose(rearrange(logits, "b k v -> (b k) v"), flat, rng).cpu()
            new = rearrange(ids, "(b k) -> b k", k=len(sizes))
            with torch.inference_mode(False):
                new = new.clone() if model.spec.vocab_sizes else new[:, 0].clone()
                found = [_extended(model, extend, tokens, content) for tokens, content in zip(found, new)]
    return found


class _Contexts:
    """The model's input as sequences grow: one new column by a cache, or everything again."""

    def __init__(self, model: Model, context_length: int | None, max_columns: int):
        self.model, self.limit, self.max_columns = model, context_length, max_columns
        self.starts: list[int] = []
        self._cache: Cache | None = None
        self._device = next(model.parameters()).device

    def next_logits(self, sequences: Sequence[Tokens]) -> Tensor:
        """[b v] or [b k v] logits of the token after the last one of each sequence."""
        if self._cache is not None and self._has_room(sequences):
            batch = TokenBatch.collate([_moved(x, start, len(x) - 1) for x, start in zip(sequences, self.starts)])
            logits: Tensor = self.model(batch.to(self._device), cache=self._cache)
            return logits[:, -1]
        self.starts = self.starts or [0] * len(sequences)
        for i, x in enumerate(sequences):
            if self.limit is not None and len(x) - self.starts[i] > self.limit:
                self.starts[i] = len(x) - max(1, self.limit // 2)
        contexts = [_moved(x, start, start) for x, start in zip(sequences, self.starts)]
        self._cache = self._new_cache(sequences)
        logits = self.model(TokenBatch.collate(contexts).to(self._device), cache=self._cache)
        last = torch.tensor([len(x) - 1 for x in contexts], device=self._device)
        return logits[torch.arange(len(contexts), device=self._device), last]

    def _has_room(self, sequences: Sequence[Tokens]) -> bool:
        return self.limit is None or all(len(x) - start <= self.limit for x, start in zip(sequences, self.starts))

    def _new_cache(self, sequences: Sequence[Tokens]) -> Cache | None:
        if any(x.adjacency is not None for x in sequences):
            return None  # a new edge may join earlier tokens
        try:
            return self.model.backbone.init_cache(self.max_columns)
        except ValueError:
            return None


def _moved(tokens: Tokens, start: int, first: int) -> Tokens:
    """Tokens from `first` on, at the positions that they have in a context which begins with token `start`."""
    cut = tokens.at(slice(first, None))
    if not start or not tokens.positions.shape[1]:
        return cut
    positions = cut.positions.clone()
    positions[:, 0] -= tokens.positions[start, 0] - tokens.positions[0, 0]
    return replace(cut, positions=positions)


def _extended(model: Model, extend: Extend, tokens: Tokens, content: Tensor) -> Tokens:
    new = extend(tokens, content)
    if len(new) != len(tokens) + 1 or not new.content[-1].equal(content):
        raise ValueError("continues(tokens, content) must give the tokens and one more of that content")
    model.spec.check(new)
    return new


def _seen(model: Model, sequences: Sequence[Tokens], logits: Tensor) -> Tensor:
    """[b k v] bool, True: the id occurs in that field of the sequence."""
    seen = torch.zeros(logits.shape, dtype=torch.bool)
    for row, tokens in zip(seen, sequences):
        row.scatter_(1, model.spec.ids_of(tokens).T, True)
    return seen.to(logits.device)
