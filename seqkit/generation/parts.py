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

from seqkit.generation.decode import Decoding, decoded
from seqkit.generation.sampling import Sampling
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
    state = PartDecoding(model, prefixes, part, max_new_tokens, use_cache)
    sampling = Sampling(temperature=0) if sampling is None else sampling
    end = torch.tensor([END], device=state.device)
    columns = torch.stack(list(decoded(state, sampling, end)), dim=1).cpu()
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
        use_cache: bool | None,
    ):
        # an encoder encodes the tokens of a run from the first on
        is_encoded = isinstance(model.embedder, JoinEmbedder) and part in model.embedder.encoders
        may_cache = use_cache is not False and not is_encoded
        super().__init__(model, prefixes, max_new_tokens, use_cache=None if may_cache else False)
        self._part = part
        self._prefixes = list(prefixes)

    def seen(self) -> Tensor:
        raise ValueError("repetition_penalty is for tokens of one kind; leave it 1")

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        self._prefixes = [self._prefixes[i] for i in rows.tolist()]

    def _runs(self, since: int) -> list[tuple[str, Tokens]]:
        """The new tokens of each row, from number `since` on."""
        # a sequence that has ended goes on with any id, while others do
        ids = self.new_ids[:, since:].cpu().clamp(min=END + 1) - 1
        found = []
        for prefix, row in zip(self._prefixes, ids):
            # positions count from 0, or from behind the largest one where those of the prefix run on
            first = float(prefix.positions.max()) + 1 if prefix.runs_on else 0.0
            positions = first + torch.arange(float(since), float(since + len(row)))
            found.append((self._part, Tokens(row, rearrange(positions, "t -> t 1"))))
        return found

    def _contexts(self, starts: Sequence[int]) -> TokenBatch:
        sequences = self._prefixes
        if self.new_ids.shape[1]:
            join = self.model.spec.join
            sequences = [
                replace(join([*prefix.parts, run]), runs_on=prefix.runs_on)
                for prefix, run in zip(self._prefixes, self._runs(0))
            ]
        batch = TokenBatch.collate(sequences)
        assert batch.parts is not None
        return batch.replace(reach=batch.parts.prefix_reach(self._part, batch.valid))

    def _newest(self) -> TokenBatch:
        """A token of a part without edges attends to all, and a bias that is the same for all keys changes nothing, so
        it needs no adjacency."""
        last = self.new_ids.shape[1] - 1
        tokens = [self.model.spec.join([run]) for run in self._runs(last)]
        return TokenBatch.collate(tokens).replace(adjacency=None, graphs=None)

    def _logits(self, batch: TokenBatch, columns: Tensor | int, cache: Cache | None) -> Tensor:
        hidden = self.model.backbone(self.model.embed(batch), cache)
        rows = torch.arange(len(self), device=self.device)
        logits: Tensor = cast(PartHead, self.model.head).head(hidden[rows, columns], None)
        return logits
