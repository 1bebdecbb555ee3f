"""One loop for every causal backbone: tokens as they come, or whole texts.

b batch · n tokens · v vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from einops import rearrange
from torch import Tensor

from seqkit.contract import IGNORE, TokenBatch
from seqkit.generate.sampling import Draws, Sampling
from seqkit.generate.search import BeamSearch, beam_search
from seqkit.generate.writer import Writer, checked_stop
from seqkit.model import Model


def generate(
    model: Model,
    prompts: Sequence[Tensor],
    max_new_tokens: int,
    *,
    sampling: Sampling | None = None,
    memory: TokenBatch | None = None,
    stop: Sequence[int] = (),
    context: int | None = None,
    use_cache: bool | None = None,
) -> Iterator[Tensor]:
    """Yield [b] new ids at a time, `max_new_tokens` times, or until all texts have stopped.

    prompts: [n] int64 ids each, of any lengths >= 1. sampling: None: as the model says, `Sampling()`.
    memory: what an encoder reads, an example a prompt; the prompts then are what is written already, a begin id.
    stop: ids that end a text: it yields the id, then IGNORE while others go on.
    context, use_cache: as in `Writer`. Raises ValueError, at once, for what cannot be.
    """
    sampling = Sampling() if sampling is None else sampling
    writer = Writer(model, prompts, max_new_tokens, memory=memory, context=context, use_cache=use_cache)
    ends = checked_stop(stop, model, writer.device)
    return _evaluating(model, _steps(writer, len(prompts), max_new_tokens, sampling, ends))


def complete(
    model: Model,
    prompts: Sequence[Tensor],
    max_new_tokens: int,
    *,
    strategy: Sampling | BeamSearch | None = None,
    memory: TokenBatch | None = None,
    stop: Sequence[int] = (),
    context: int | None = None,
    use_cache: bool | None = None,
) -> list[Tensor]:
    """The ids [t] that follow each prompt, without the stop id that ends them; of a beam search the best.

    strategy: None: as the model says, `Sampling()`. The rest as in `generate`.
    """
    if isinstance(strategy, BeamSearch):
        found = beam_search(
            model,
            prompts,
            max_new_tokens,
            beams=strategy,
            memory=memory,
            stop=stop,
            context=context,
            use_cache=use_cache,
        )
        return [best.ids for best, *_ in found]
    steps = generate(
        model,
        prompts,
        max_new_tokens,
        sampling=strategy,
        memory=memory,
        stop=stop,
        context=context,
        use_cache=use_cache,
    )
    columns = torch.stack(list(steps), dim=1)
    ended = torch.isin(columns, torch.tensor([IGNORE, *stop], device=columns.device))
    return [row[~over] for row, over in zip(columns, ended)]


@torch.inference_mode()
def _steps(writer: Writer, num_texts: int, max_new_tokens: int, sampling: Sampling, ends: Tensor) -> Iterator[Tensor]:
    draws = Draws(sampling.seed, num_texts)
    seen = writer.seen() if sampling.repetition_penalty != 1 else None
    rows = torch.arange(num_texts, device=writer.device)  # the texts that are still worked on
    going = torch.ones_like(rows, dtype=torch.bool)  # and which of them have not ended
    for step in range(max_new_tokens):
        new = sampling.choose(writer.scores(), seen, draws)
        yield _told(new, rows, going, num_texts)
        if step + 1 == max_new_tokens:
            return
        if len(ends):
            going = going & ~torch.isin(new, ends)
            num_going = int(going.sum())
            if num_going == 0:
                return
            if 2 * num_going <= len(rows):  # copying what is kept of them costs less than going on with all
                kept = going.argwhere().flatten()
                writer.select(kept)
                draws.select(kept)
                rows, going, new = rows[kept], going[kept], new[kept]
                seen = None if seen is None else seen[kept]
        writer.append(new)
        if seen is not None:
            seen = seen.scatter(1, rearrange(new, "b -> b 1"), True)


def _told(new: Tensor, rows: Tensor, going: Tensor, num_texts: int) -> Tensor:
    """[b] ids for all texts, IGNORE where one has ended; a tensor that may be trained on, which `new` may not."""
    with torch.inference_mode(False):
        new = torch.where(going, new, IGNORE)
        return new if len(new) == num_texts else new.new_full((num_texts,), IGNORE).scatter(0, rows, new)


def _evaluating(model: Model, steps: Iterator[Tensor]) -> Iterator[Tensor]:
    """The same steps, with dropout off meanwhile."""
    training = model.training
    model.eval()
    try:
        yield from steps
    finally:
        model.train(training)
