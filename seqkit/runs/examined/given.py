"""Examples as a training step gives them to the model, which can be cut, changed and padded.

b batch · n tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from seqkit.data.batching import BatchDataset
from seqkit.interfaces import LabeledBatch, Objective, TokenBatch, Tokens, TokenSpec
from seqkit.testing.changed_tokens import other_content
from seqkit.testing.process import seeded

POOL = 64
"""First training examples, among which a few are chosen."""

UNCUT = 512
"""Tokens up to which examples that all have one length stay whole: their model may take no other."""


@dataclass(frozen=True)
class Given:
    """One example as the model gets it. beside: its `masked`, `reach` and `segments`, [n] each, where it has them."""

    tokens: Tokens
    beside: dict[str, Tensor]
    source: Tokens | None = None

    def first(self, n: int) -> Given:
        """At most n tokens, and as many of the source."""
        if len(self.tokens) <= n and (self.source is None or len(self.source) <= n):
            return self
        kept = {name: x[:n].clone() for name, x in self.beside.items()}
        if "reach" in kept:
            kept["reach"] = kept["reach"].clamp(max=n - 1)
        source = None if self.source is None else self.source.at(slice(n))
        return Given(self.tokens.at(slice(n)), kept, source)

    def changed(self, where: Tensor, spec: TokenSpec) -> Given:
        """Other content of the tokens at which `where` [n] is True."""
        return replace(self, tokens=other_content(self.tokens, where, spec))

    @property
    def reach(self) -> Tensor:
        """The last column that each token may attend to in a causal model, [n]."""
        return self.beside.get("reach", torch.arange(len(self.tokens)))


def collated(rows: Sequence[Given], padding: int = 0) -> tuple[TokenBatch, Tensor | None]:
    """The batch of some examples with so much more padding, and its masked tokens [b n]."""
    beside: dict[str, Any] = {
        name: pad_sequence([x.beside[name] for x in rows], batch_first=True)
        for name in rows[0].beside
    }
    masked = beside.pop("masked", None)
    batch = TokenBatch.collate([x.tokens for x in rows]).replace(**beside).pad(padding)
    sources = [x.source for x in rows if x.source is not None]
    if sources:
        batch = batch.replace(source=TokenBatch.collate(sources).pad(padding))
    return batch, None if masked is None else F.pad(masked, [0, padding])


def a_few(examples: BatchDataset) -> LabeledBatch:
    """The longest, the shortest and an example between them, as a batch. Raises DataError as the first step would."""
    lengths = list(examples.lengths[:POOL])
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    with seeded(0):
        return examples[0, list(dict.fromkeys([order[-1], order[len(order) // 2], order[0]]))]


def given_examples(
    model: nn.Module, objective: Objective, batch: LabeledBatch, longest: int
) -> list[list[Given]]:
    """Examples as a step gives them to the model, of each of its calls; at most `longest` tokens of each."""
    lengths = batch[0].valid.sum(dim=1).tolist()
    is_cut = bool(objective.causal) or len(set(lengths)) > 1 or max(lengths) > UNCUT
    with seeded(0), torch.no_grad():
        calls = [_rows(*call) for call in _calls(model, objective, batch)]
    return [[x.first(longest) if is_cut else x for x in rows] for rows in calls]


def _calls(
    model: nn.Module, objective: Objective, batch: LabeledBatch
) -> list[tuple[TokenBatch, Tensor | None]]:
    """Batch and masked tokens of the calls of a training step; each part alone is a call of its own."""
    if not objective.encodes_parts_alone:
        return [objective.first_call(model, batch)]
    calls = []

    def note(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = dict(zip(("batch", "masked"), args)) | kwargs
        calls.append((given["batch"], given.get("masked")))

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        objective.step(model, batch, training=True)
    finally:
        hook.remove()
    return calls


def _rows(batch: TokenBatch, masked: Tensor | None) -> list[Given]:
    """The examples of a batch."""
    beside = {"masked": masked, "reach": batch.reach, "segments": batch.segments}
    rows = []
    for i, real in enumerate(batch.valid):
        own = {name: x[i, real] for name, x in beside.items() if x is not None}
        source = None if batch.source is None else batch.source.example(i)
        if bool(real.any()):
            rows.append(Given(batch.example(i), own, source))
    return rows
