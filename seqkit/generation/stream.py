"""Generation of ids by every causal model: step by step (`stream`), or whole sequences (`generate`).

b sequences · t new tokens
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from seqkit.generation.beam_search import BeamSearch, beam_search
from seqkit.generation.decode import DecodingState, decoded
from seqkit.generation.sampling import Sampling
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
    return decoded(state, sampling, state.checked_ids("stop", stop))


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
    steps = stream(model, prompts, max_new_tokens, sampling=strategy, stop=stop, **settings)
    columns = torch.stack(list(steps), dim=1)
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
    settings |= {"sampling": Sampling(temperature=0), "source": source, "stop": [eos_id]}
    ids = torch.stack(list(stream(model, prompts, max_new_tokens, **settings)), dim=1)
    return ids.masked_fill(ids == eos_id, IGNORE)
