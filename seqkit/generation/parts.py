"""Generation of a part of joined tokens after the parts before it: captions, and any text after an image or a sound.

b sequences · n columns · t new tokens · v vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from einops import rearrange
from torch import Tensor

from seqkit.generation.decode import Decoding, supports_cache
from seqkit.generation.sampling import Sampling
from seqkit.generation.stream import decoded
from seqkit.interfaces import IGNORE, Cache, TokenBatch, Tokens
from seqkit.model import Model
from seqkit.nn.join_embedder import JoinEmbedder
from seqkit.nn.part_heads import END, PartHead


def before_last_run(tokens: Tokens, part: str) -> Tokens:
    """Joined tokens up to where the last run of a part begins; all of them where there is none.

    Raises ValueError where nothing stands before that run.
    """
    last = max(
        (i for i, (name, _) in enumerate(tokens.parts) if name == part), default=len(tokens.parts)
    )
    kept = sum(len(run) for _, run in tokens.parts[:last])
    if not kept:
        raise ValueError(
            f"nothing stands before the part {part}; give an example with another part"
        )
    return tokens.at(slice(kept))


def continue_with_part(
    model: Model,
    prefixes: Sequence[Tokens],
    part: str,
    max_new_tokens: int,
    *,
    sampling: Sampling | None = None,
    use_cache: bool | None = None,
) -> Tensor:
    """Ids [b t] of a new run of `part` behind each prefix, IGNORE from its end on, t <= max_new_tokens.

    Positions of the new run count from 0, or from behind the largest position where those of the prefix run on.
    sampling: None: the likeliest id (greedy). use_cache: None: where the backbone has a cache.
    Raises ValueError for a model that does not predict that part, or a number below 1.
    """
    head = model.head
    if not isinstance(head, PartHead) or head.part != part or not head.before:
        raise ValueError(
            f"the model does not generate the part {part}; train it with NextToken(part={part!r})"
        )
    if max_new_tokens < 1 or not prefixes:
        raise ValueError(
            f"{len(prefixes)} prefixes and {max_new_tokens} new tokens; give 1 or more of each"
        )
    sampling = Sampling(temperature=0) if sampling is None else sampling
    state = PartDecoding(model, prefixes, part, max_new_tokens, use_cache=use_cache is not False)
    end = torch.tensor([END], device=state.device)
    columns = torch.stack(list(decoded(model, state, max_new_tokens, sampling, end)), dim=1).cpu()
    found = torch.where(columns > END, columns - 1, IGNORE)
    return found[:, : int((found != IGNORE).sum(dim=1).max())]


class PartDecoding(Decoding):
    """New runs of a part behind prefixes. What is chosen is the number of an id plus 1, or `END`."""

    def __init__(
        self,
        model: Model,
        prefixes: Sequence[Tokens],
        part: str,
        max_new_tokens: int,
        *,
        use_cache: bool,
    ):
        # an encoder encodes the tokens of a run from the first on
        is_encoded = isinstance(model.embedder, JoinEmbedder) and part in model.embedder.encoders
        has_cache = use_cache and not is_encoded and supports_cache(model, required=False)
        lengths = [len(x) for x in prefixes]
        super().__init__(model, lengths, None, max(lengths) + max_new_tokens, has_cache)
        self._part = part
        self._prefixes = list(prefixes)
        # positions of a new run count from 0, or from behind the largest one where those of the prefix run on
        self._first = [float(x.positions.max()) + 1 if x.runs_on else 0.0 for x in prefixes]
        self._runs = torch.zeros(len(prefixes), 0, dtype=torch.int64)  # [b t] ids

    def append(self, ids: Tensor) -> None:
        super().append(ids)
        # a sequence that has ended goes on with any id, while others do
        self._runs = torch.cat(
            [self._runs, rearrange(ids.cpu().clamp(min=END + 1) - 1, "b -> b 1")], dim=1
        )

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        kept = rows.tolist()
        self._prefixes = [self._prefixes[i] for i in kept]
        self._first = [self._first[i] for i in kept]
        self._runs = self._runs[kept]

    def seen(self) -> Tensor:
        raise ValueError("repetition_penalty is for tokens of one kind; leave it 1")

    def _run(self, row: int, since: int) -> tuple[str, Tokens]:
        """The new tokens of a row, from number `since` on."""
        ids = self._runs[row, since:]
        positions = self._first[row] + torch.arange(float(since), float(self._runs.shape[1]))
        return self._part, Tokens(ids, rearrange(positions, "t -> t 1"))

    def _contexts(self, starts: Sequence[int]) -> TokenBatch:
        sequences = self._prefixes
        if self._runs.shape[1]:
            join = self._model.spec.join
            sequences = [
                replace(join([*x.parts, self._run(i, 0)]), runs_on=x.runs_on)
                for i, x in enumerate(self._prefixes)
            ]
        batch = TokenBatch.collate(sequences)
        assert batch.parts is not None
        return batch.replace(reach=batch.parts.prefix_reach(self._part, batch.valid))

    def _newest(self) -> TokenBatch:
        """A token of a part without edges attends to all, and a bias that is the same for all keys changes nothing, so
        it needs no adjacency."""
        last = self._runs.shape[1] - 1
        tokens = [self._model.spec.join([self._run(i, last)]) for i in range(len(self))]
        return TokenBatch.collate(tokens).replace(adjacency=None, graphs=None)

    def _logits(self, batch: TokenBatch, columns: Tensor, cache: Cache | None) -> Tensor:
        hidden = self._model.backbone(self._model.embed(batch), cache)
        logits: Tensor = cast(PartHead, self._model.head).head(
            hidden[torch.arange(len(columns)), columns], None
        )
        return logits
