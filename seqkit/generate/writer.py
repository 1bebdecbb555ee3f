"""Texts that grow by one token at a time, and what the model says comes next: with a cache, or read again.

b texts that are being written · n tokens · v vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from einops import rearrange, repeat
from torch import Tensor

from seqkit.contract import Cache, Links, TokenBatch
from seqkit.model import Model


class Writer:
    """Ask for `scores`, choose, `append`, and again.

    prompts: [n] int64 ids each, of any lengths >= 1. memory: what an encoder reads, an example a prompt.
    context: how many tokens the model was trained to read; when they are full, it starts afresh from the last half of
    them, with a cache and without alike; a longer prompt is read from its last half of them on. None: no limit.
    use_cache: None: where the backbone keeps one.
    Raises ValueError for a model, prompts or settings that cannot be.
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Tensor],
        max_new_tokens: int,
        *,
        memory: TokenBatch | None = None,
        context: int | None = None,
        use_cache: bool | None = None,
    ):
        _check(model, prompts, max_new_tokens, memory, context)
        self.device = next(model.parameters()).device
        self._model, self._context, self._max_new_tokens = model, context, max_new_tokens
        self._prompts = [prompt.to(self.device) for prompt in prompts]
        self._memory = None if memory is None else memory.to(self.device)
        self._keeps = _keeps(model, must=use_cache) if use_cache is not False else False
        self._cache: Cache | None = None
        self._origin = torch.arange(len(prompts), device=self.device)  # which prompt a text started from
        self._written = self._origin.new_empty(len(prompts), 0)
        self.num_written = 0
        self._num_read: int | None = None  # columns since the last start; None: not started yet
        self._starts = [0] * len(prompts)  # where the reading of a text that began with prompt i starts
        self._position = torch.empty(0)  # [b 1 1], of the last token of each text

    @property
    def written(self) -> Tensor:
        """[b t] ids so far, prompts aside."""
        return self._written[:, : self.num_written]

    def seen(self) -> Tensor:
        """[b v] bool, True: the id occurs in the text, prompts included."""
        seen = torch.zeros(len(self._origin), self._model.spec.vocab_size, dtype=torch.bool, device=self.device)
        for row, text in zip(seen, self._texts()):
            row[text] = True
        return seen

    def scores(self) -> Tensor:
        """[b v] after the last token of each text."""
        full = self._context is not None and self._num_read is not None and self._num_read + 1 > self._context
        if self._num_read is None or full:
            self._start_afresh()
        elif self._cache is not None:
            return self._step()
        else:
            self._num_read += 1
        return self._read()

    def append(self, new: Tensor) -> None:
        """Write ids [b]."""
        if self.num_written == self._written.shape[1]:  # room for twice as many, rather than a copy in every step
            room = self._written.new_empty(len(new), max(64, self.num_written))
            self._written = torch.cat([self._written, room], dim=1)
        self._written[:, self.num_written] = new
        self.num_written += 1
        self._position = self._position + 1

    def select(self, rows: Tensor) -> None:
        """Keep these texts, [b'] indices, in this order (some twice, others not at all)."""
        self._origin, self._written = self._origin[rows], self._written[rows]
        self._position = self._position[rows]
        if self._cache is not None:
            self._cache.select(rows)

    def _texts(self) -> list[Tensor]:
        return [torch.cat([self._prompts[i], row]) for i, row in zip(self._origin.tolist(), self.written)]

    def _start_afresh(self) -> None:
        longest = max(map(len, self._prompts)) + self.num_written
        context = self._context
        keep = longest if context is None or (longest <= context and not self.num_written) else max(1, context // 2)
        self._starts = [max(0, len(prompt) + self.num_written - keep) for prompt in self._prompts]
        self._num_read = min(keep, longest)
        if self._keeps:
            more = self._max_new_tokens - self.num_written
            self._cache = self._model.backbone.init_cache(context or longest + more)

    def _read(self) -> Tensor:
        """All that is to be read of each text, at once."""
        starts = [self._starts[i] for i in self._origin.tolist()]
        texts = [text[start:] for text, start in zip(self._texts(), starts)]
        lengths = torch.tensor([len(text) for text in texts], device=self.device)
        content = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
        index = torch.arange(content.shape[1], device=self.device)
        positions = repeat(index.float(), "n -> b n 1", b=len(texts))
        memory = None if self._memory is None else examples(self._memory, self._origin)
        batch = TokenBatch(content, positions, index < rearrange(lengths, "b -> b 1"), memory=memory)
        self._position = rearrange(lengths - 1.0, "b -> b 1 1")
        scores = self._model(batch, cache=self._cache)
        return scores[torch.arange(len(texts), device=self.device), lengths - 1]

    def _step(self) -> Tensor:
        """The last token of each text alone; the cache knows the others."""
        assert self._num_read is not None
        self._num_read += 1
        content = self._written[:, self.num_written - 1 : self.num_written]
        batch = TokenBatch(content, self._position, torch.ones_like(content, dtype=torch.bool))
        return rearrange(self._model(batch, cache=self._cache), "b 1 v -> b v")


def examples(batch: TokenBatch, rows: Tensor) -> TokenBatch:
    """These examples of a batch, [b'] indices, in this order, an example as often as it is named."""
    if rows.equal(torch.arange(len(batch), device=rows.device)):
        return batch
    links = batch.links
    if links is not None:
        n = batch.valid.shape[1]
        new, old = (rearrange(rows, "new -> new 1") == links.edges[0] // n).nonzero(as_tuple=True)
        links = Links(links.edges[:, old] % n + new * n, links.kinds[old])
    segments = None if batch.segments is None else batch.segments[rows]
    return replace(
        batch,
        content=batch.content[rows],
        positions=batch.positions[rows],
        valid=batch.valid[rows],
        links=links,
        segments=segments,
    )


def _keeps(model: Model, *, must: bool | None) -> bool:
    """True: the backbone goes on step by step. Some attentions cannot; Raises ValueError if it must."""
    try:
        model.backbone.init_cache(1)
    except ValueError:
        if must:
            raise
        return False
    return True


def _check(
    model: Model, prompts: Sequence[Tensor], max_new_tokens: int, memory: TokenBatch | None, context: int | None
) -> None:
    if not model.backbone.causal or not model.spec.ids:
        raise ValueError("generation needs a causal backbone over ids: train with the objective NextToken or Translate")
    if not prompts:
        raise ValueError("there are no prompts; give at least one")
    for i, prompt in enumerate(prompts):
        if prompt.ndim != 1 or len(prompt) == 0:
            raise ValueError(f"prompt {i} has no tokens; give at least one to start from")
        low, high = int(prompt.min()), int(prompt.max())
        if prompt.dtype != torch.int64 or low < 0 or high >= model.spec.vocab_size:
            raise ValueError(
                f"prompt {i} holds {prompt.dtype} from {low} to {high}; give int64 ids below {model.spec.vocab_size}"
            )
    if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens={max_new_tokens} counts tokens to be written; make it 1 or more")
    if context is not None and context < 1:
        raise ValueError(f"context={context} counts tokens that the model reads; make it 1 or more")
    if (memory is not None) != (model.source_embedder is not None):
        wants = "reads one sequence" if memory is not None else "writes one sequence from another, and was given none"
        raise ValueError(f"this model {wants}; memory goes with the objective Translate, and only there")
    if memory is not None and len(memory) != len(prompts):
        raise ValueError(f"memory has {len(memory)} examples beside {len(prompts)} prompts; give one for each")


def checked_stop(stop: Sequence[int], model: Model, device: torch.device) -> Tensor:
    """Ids [s] at which a text ends. Raises ValueError for one outside the vocabulary."""
    for i in stop:
        if not isinstance(i, int) or not 0 <= i < model.spec.vocab_size:
            raise ValueError(f"stop id {i} is outside the vocabulary; ids go from 0 to {model.spec.vocab_size - 1}")
    return torch.tensor(sorted(set(stop)), dtype=torch.int64, device=device)
