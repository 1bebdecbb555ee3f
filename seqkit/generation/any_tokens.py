"""Continuation of any tokens: several ids each, numbers beside them, positions that are measured, edges.

Ids at positions 0, 1, 2, … go on faster by `seqkit.generation.generate`, which packs weights.

b sequences · n tokens · k fields · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from einops import rearrange
from torch import Tensor

from seqkit.generation.decode import Decoding, decoded
from seqkit.generation.sampling import Sampling
from seqkit.interfaces import TokenBatch, Tokenizer, Tokens
from seqkit.model import Model

if TYPE_CHECKING:
    from seqkit.runs.trained_model import TrainedModel

Extend = Callable[[Tokens, Tensor], Tokens]
"""`Tokenizer.continues`: some tokens, and one more of that content, an id or [k] ids."""


def needs_any_tokens(trained: TrainedModel) -> bool:
    """Whether a run's tokens are other than ids at positions 0, 1, 2, …, so that only this loop can go on with them."""
    spec = trained.model.spec
    own = type(trained.tokenizer).continues is not Tokenizer.continues
    one_sequence = trained.objective.target_spec is None
    return one_sequence and spec.is_categorical and (own or not spec.ids or spec.num_edge_types > 0)


def continue_examples(
    trained: TrainedModel,
    raws: Sequence[Any],
    num_new_tokens: int,
    *,
    sampling: Sampling | None = None,
) -> list[Any]:
    """Raw examples, each gone on with for `num_new_tokens` tokens, as the tokenizer's `decode(tokens)` gives them.

    Raises DataError where one cannot be encoded; ValueError where the tokenizer has no `decode`, or does not know how
    its tokens go on (`Tokenizer.continues`).
    """
    tokenizer: Any = trained.tokenizer
    if getattr(tokenizer, "decode", None) is None:
        raise ValueError(
            f"{type(tokenizer).__name__} has no decode(tokens), so what is generated cannot be shown"
        )
    window = trained.config["data"].get("window")
    prompts = [tokenizer.encode(raw) for raw in raws]
    found = continue_tokens(
        trained.model,
        prompts,
        num_new_tokens,
        tokenizer.continues,
        sampling=sampling,
        context_length=window,
    )
    return [tokenizer.decode(tokens) for tokens in found]


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
        raise ValueError(
            "generation needs a causal backbone over ids; train with the objective NextToken"
        )
    for tokens in prompts:
        model.spec.check(tokens)
    state = TokenDecoding(model, prompts, num_new_tokens, extend, context_length)
    if getattr(extend, "__func__", None) is Tokenizer.continues:  # which counts; others measure
        state.check_positions()
    *_, last = decoded(state, sampling)
    state.append(last)
    return state.sequences


class TokenDecoding(Decoding):
    """Sequences of any tokens, which `extend` makes longer. Those with edges have no cache: an edge may join earlier
    tokens."""

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Tokens],
        num_new_tokens: int,
        extend: Extend,
        context_length: int | None,
    ):
        super().__init__(
            model,
            prompts,
            num_new_tokens,
            context_length=context_length,
            use_cache=False if any(x.adjacency is not None for x in prompts) else None,
            num_fields=len(model.spec.id_sizes),
        )
        self.sequences = list(prompts)
        self._extend = extend

    def append(self, ids: Tensor) -> None:
        with torch.inference_mode(False):
            content = ids.cpu().clone()
            if self.model.spec.vocab_sizes and content.ndim == 1:
                content = rearrange(content, "b -> b 1")
            self.sequences = list(map(self._extended, self.sequences, content))
        super().append(ids)

    def _extended(self, tokens: Tokens, content: Tensor) -> Tokens:
        new = self._extend(tokens, content)
        if len(new) != len(tokens) + 1 or not new.content[-1].equal(content):
            raise ValueError(
                "continues(tokens, content) must give the tokens and one more of that content"
            )
        self.model.spec.check(new)
        return new

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        self.sequences = [self.sequences[i] for i in rows.tolist()]

    def _contexts(self, starts: Sequence[int]) -> TokenBatch:
        return TokenBatch.collate(
            [_moved(x, start, start) for x, start in zip(self.sequences, starts)]
        )

    def _newest(self) -> TokenBatch:
        starts = self._starts.tolist()
        return TokenBatch.collate(
            [_moved(x, start, len(x) - 1) for x, start in zip(self.sequences, starts)]
        )

    def seen(self) -> Tensor:
        sizes = self.model.spec.id_sizes
        seen = torch.zeros(len(self), len(sizes), max(sizes), dtype=torch.bool)
        for row, tokens in zip(seen, self.sequences):
            row.scatter_(1, self.model.spec.ids_of(tokens).T, True)
        return seen.to(self.device)


def _moved(tokens: Tokens, start: int, first: int) -> Tokens:
    """Tokens from `first` on, at the positions that they have in a context which begins with token `start`."""
    cut = tokens.at(slice(first, None))
    if not start or not tokens.positions.shape[1]:
        return cut
    positions = cut.positions.clone()
    positions[:, 0] -= tokens.positions[start, 0] - tokens.positions[0, 0]
    return replace(cut, positions=positions)
