"""One decoding loop for every causal backbone: ids step by step (`stream`), or whole sequences (`generate`).

b sequences · t new tokens · v vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from seqkit.generation.beam_search import BeamSearch, beam_search
from seqkit.generation.decode import Decoding, DecodingState, checked_stop, evaluating
from seqkit.generation.sampling import PerSequenceRNG, Sampling
from seqkit.interfaces import IGNORE, TokenBatch
from seqkit.model import Model


def stream(
    model: Model,
    prompts: Sequence[Tensor],
    max_new_tokens: int,
    *,
    sampling: Sampling | None = None,
    stop: Sequence[int] = (),
    **settings: Any,
) -> Iterator[Tensor]:
    """Yield the new ids [b] of each step, `max_new_tokens` times or until every sequence has ended.

    prompts: [n] int64 ids each, of any lengths >= 1. sampling: None: `Sampling()`, the model's distribution.
    stop: ids that end a sequence. The id itself is yielded, then IGNORE until all sequences have ended.
    settings: source, context_length, use_cache and suppressed of `DecodingState`.
    Raises ValueError for incompatible arguments, before the first step.
    """
    state = DecodingState(model, prompts, max_new_tokens, **settings)
    stop_ids = checked_stop(stop, model, state.device)
    return decoded(
        model, state, max_new_tokens, Sampling() if sampling is None else sampling, stop_ids
    )


def generate(
    model: Model,
    prompts: Sequence[Tensor],
    max_new_tokens: int,
    *,
    strategy: Sampling | BeamSearch | None = None,
    stop: Sequence[int] = (),
    **settings: Any,
) -> list[Tensor]:
    """Ids [t] after each prompt, without the stop id; with beam search, those of the best hypothesis.

    strategy: None: `Sampling()`. The other arguments are those of `stream`.
    """
    if isinstance(strategy, BeamSearch):
        found = beam_search(model, prompts, max_new_tokens, beams=strategy, stop=stop, **settings)
        return [best.ids for best, *_ in found]
    columns = torch.stack(
        [*stream(model, prompts, max_new_tokens, sampling=strategy, stop=stop, **settings)], dim=1
    )
    ended = torch.isin(columns, torch.tensor([IGNORE, *stop], device=columns.device))
    return [row[~over] for row, over in zip(columns, ended)]


def greedy(
    model: Model,
    source: TokenBatch,
    start: Sequence[int],
    eos_id: int,
    max_new_tokens: int,
    **settings: Any,
) -> Tensor:
    """Greedy decoding of a sequence-to-sequence model: ids [b t], t <= max_new_tokens, IGNORE from `eos_id` on.

    start: ids that each target begins with. settings: as in `stream`.
    """
    prompts = [torch.tensor(start)] * len(source)
    sampling = Sampling(temperature=0)
    steps = stream(
        model, prompts, max_new_tokens, sampling=sampling, source=source, stop=[eos_id], **settings
    )
    ids = torch.stack(list(steps), dim=1)
    return ids.masked_fill(ids == eos_id, IGNORE)


def decoded(
    model: Model,
    state: Decoding,
    max_new_tokens: int,
    sampling: Sampling,
    stop: Tensor | None = None,
) -> Iterator[Tensor]:
    """Yield the new ids [b] or [b k] of each step, as `stream`, with the model in evaluation mode. The last token is
    not appended to `state`. stop: ids [s], with one field only; None: no id ends a sequence."""
    with evaluating(model):
        yield from _steps(state, max_new_tokens, sampling, stop)


@torch.inference_mode()
def _steps(
    state: Decoding, max_new_tokens: int, sampling: Sampling, stop: Tensor | None
) -> Iterator[Tensor]:
    num_sequences = len(state)
    k = state.num_fields
    rng = PerSequenceRNG(sampling.seed, num_sequences * k)
    seen = state.seen().flatten(0, -2) if sampling.repetition_penalty != 1 else None
    # indices of the sequences that `state` still has
    rows = torch.arange(num_sequences, device=state.device)
    ongoing = torch.ones_like(rows, dtype=torch.bool)  # [b'] True: not ended
    for step in range(max_new_tokens):
        new = sampling.choose(state.next_logits().flatten(0, -2), seen, rng)
        yield (
            _scattered(new, rows, ongoing, num_sequences)
            if k == 1
            else _trainable(new.unflatten(0, (-1, k)))
        )
        if step + 1 == max_new_tokens:
            return
        if stop is not None and len(stop):
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
                new = new[kept]
                seen = None if seen is None else seen[kept]
        state.append(new if k == 1 else new.unflatten(0, (-1, k)))
        if seen is not None:
            seen = seen.scatter(1, rearrange(new, "b -> b 1"), True)


def _trainable(new: Tensor) -> Tensor:
    with torch.inference_mode(False):
        return new.clone()


def _scattered(new: Tensor, rows: Tensor, ongoing: Tensor, num_sequences: int) -> Tensor:
    """[b] ids of all sequences, IGNORE for those that have ended; no inference tensor, so it may be trained on."""
    with torch.inference_mode(False):
        new = torch.where(ongoing, new, IGNORE)
        if len(new) == num_sequences:
            return new
        return new.new_full((num_sequences,), IGNORE).scatter(0, rows, new)
