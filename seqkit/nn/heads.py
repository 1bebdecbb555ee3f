"""Heads, from hidden states to predictions. Pooling happens here, so no class token is needed.

b batch · n tokens · d width · k outputs or fields · v vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Embedded, TokenSpec
from seqkit.interfaces.parts import Part, Parts
from seqkit.nn.embedder import TokenEmbedder

Pool = Literal["mean", "sum", "max", "last", "first", "parts"]


def _linear(dim: int, num_outputs: int, *, bias: bool = True) -> nn.Linear:
    linear = nn.Linear(dim, num_outputs, bias=bias)
    nn.init.normal_(linear.weight, std=0.02)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


class TokenHead(nn.Module):
    """A linear layer on every token: [b n d] → [b n k]."""

    def __init__(self, dim: int, num_outputs: int, *, bias: bool = True):
        super().__init__()
        self.linear = _linear(dim, num_outputs, bias=bias)

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Predictions [b n k]; those of padded tokens mean nothing."""
        return self.linear(hidden)


class FieldHead(nn.Module):
    """A linear layer for each of k fields on every token: [b n d] → logits [b n k v], v the largest vocabulary.

    Logits of ids that a smaller vocabulary does not have are -inf: their probability is 0, and they get no gradient.
    """

    def __init__(self, dim: int, vocab_sizes: Sequence[int], *, bias: bool = True):
        super().__init__()
        self.vocab_sizes = tuple(vocab_sizes)
        self.linear = _linear(dim, sum(self.vocab_sizes), bias=bias)

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Logits [b n k v]; those of padded tokens mean nothing."""
        most, parts = max(self.vocab_sizes), self.linear(hidden).split(self.vocab_sizes, dim=-1)
        return torch.stack([F.pad(part, [0, most - part.shape[-1]], value=float("-inf")) for part in parts], dim=-2)


def content_head(dim: int, spec: TokenSpec, *, bias: bool = True) -> nn.Module:
    """The head that predicts the content of tokens: logits of an id, logits of each of several ids, or a vector."""
    if spec.is_joined:
        raise ValueError("joined tokens have no content of one kind; predict that of a part (model.objective.part)")
    if spec.num_prefix_tokens:
        raise ValueError(
            f"the objective predicts the content of tokens, and {spec.num_prefix_tokens} before the others have none; "
            "give tokenizer.num_prefix_tokens=0, or an objective for whole examples"
        )
    if spec.vocab_sizes:
        return FieldHead(dim, spec.vocab_sizes, bias=bias)
    return TokenHead(dim, spec.vocab_size or spec.num_features, bias=bias)


END = 0
"""Number of the end of a run among the predictions of a `PartHead` before its tokens; id i has the number i + 1."""


class PartHead(nn.Module):
    """A head on the tokens of one part of joined tokens: [b n d] → predictions [r m ...] of its r runs.

    In a batch of which no example has the part r is 0, and the head's parameters get gradients of zero.
    before: True: the prediction for a token, and one for the end of the run, come from the column before it, [r m + 1
    ...]; that of a row's first token comes from no column and means nothing.
    """

    def __init__(self, part: str, head: nn.Module, *, before: bool = False):
        super().__init__()
        self.part, self.head, self.before = part, head, before

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Predictions of the runs of the part."""
        assert embedded.parts is not None
        columns = embedded.parts.columns_of(self.part, hidden.device)
        if self.before:
            columns = columns_before(columns, hidden.shape[1])
        prediction: Tensor = self.head(rearrange(hidden, "b n d -> (b n) d")[columns], embedded)
        return prediction


class HeadsOfParts(nn.Module):
    """A head for each part of joined tokens: [b n d] → name to prediction, of the parts that the batch has."""

    def __init__(self, heads: Mapping[str, PartHead]):
        super().__init__()
        self.heads = nn.ModuleDict(dict(heads))

    def forward(self, hidden: Tensor, embedded: Embedded) -> dict[str, Tensor]:
        """Prediction of each part."""
        return {name: head(hidden, embedded) for name, head in self.heads.items() if name in (embedded.parts or {})}


def columns_before(columns: Tensor, n: int) -> Tensor:
    """Columns [r m + 1] that predict the tokens of runs, [r m], and the end of each, in a batch of n columns.

    They are those before each token; before the first token of an example there is none, so it is its own.
    """
    first = columns[:, :1]
    return torch.cat([first - (first % n > 0).long(), columns], dim=1)


class TiedHead(nn.Module):
    """Logits by the vocabulary's own embedding table (tied weights; Press and Wolf 2017): [b n d] → [b n vocabulary].

    scale: factor of the hidden states before the product; d^-0.5 where the table's entries are about 1, so that the
    logits are too (T5; Raffel et al. 2020). bias: whether each id has one (BERT).
    """

    def __init__(self, table: nn.Embedding, *, scale: float = 1.0, bias: bool = False):
        super().__init__()
        self.table, self.scale = table, scale
        self.bias = nn.Parameter(torch.zeros(table.num_embeddings)) if bias else None

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Logits [b n vocabulary]; those of padded tokens mean nothing."""
        return F.linear(hidden if self.scale == 1 else hidden * self.scale, self.table.weight, self.bias)


class SequenceHead(nn.Module):
    """Pool the real tokens, then a linear layer: [b n d] → [b k].

    pool: "mean", "sum" (for quantities that add up over tokens), "max", "last" (for causal backbones), "first" (a class
    token) or "parts" (of joined tokens: the mean of the means of the parts that an example has).
    """

    def __init__(self, dim: int, num_outputs: int, *, pool: Pool = "mean"):
        super().__init__()
        self.pool = pool
        self.linear = _linear(dim, num_outputs)

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Predictions [b k] from hidden [b n d]."""
        return self.linear(pooled(hidden, embedded.valid, self.pool, embedded.parts))


def sequence_head(embedder: TokenEmbedder, num_outputs: int, pool: Pool) -> SequenceHead:
    """A `SequenceHead` for tokens of that embedder. Raises ValueError for a pooling by parts of tokens without any."""
    if pool == "parts" and not embedder.spec.is_joined:
        raise ValueError("pool=parts is for joined tokens, and these have no parts; use mean")
    return SequenceHead(embedder.dim, num_outputs, pool=pool)


def pooled(hidden: Tensor, valid: Tensor, pool: Pool, parts: Parts | None = None) -> Tensor:
    """One vector [b d] per example from its real tokens. Raises ValueError for an unknown pooling."""
    if pool == "parts" and parts is not None:
        return mean_of_parts(hidden, parts)
    real = rearrange(valid, "b n -> b n 1")
    if pool == "max":
        return hidden.masked_fill(~real, float("-inf")).amax(dim=1)
    if pool == "last":
        return hidden[torch.arange(len(hidden), device=hidden.device), valid.sum(dim=1) - 1]
    if pool == "first":
        return hidden[:, 0]  # sequences are padded on the right
    total = hidden.masked_fill(~real, 0.0).sum(dim=1)
    if pool == "sum":
        return total
    if pool == "mean":
        return total / real.sum(dim=1)
    raise ValueError(f"pool={pool!r}; it is one of 'mean', 'sum', 'max', 'last', 'first', 'parts'")


def mean_of_parts(hidden: Tensor, parts: Parts) -> Tensor:
    """Mean [b d] of the means of the parts that each example has."""
    means, number = torch.zeros_like(hidden[:, 0]), hidden.new_zeros(len(hidden))
    for part in parts.values():
        mean, count = mean_of_runs(hidden, part)
        means, number = means + mean, number + (count > 0)
    return means / rearrange(number, "b -> b 1")


def mean_of_runs(hidden: Tensor, part: Part) -> tuple[Tensor, Tensor]:
    """Mean [b d] of an example's tokens of a part, 0 where it has none, and their number [b]."""
    b, n, _ = hidden.shape
    real, rows = part.batch.valid, part.rows(n)
    sums = rearrange(hidden, "b n d -> (b n) d")[part.columns]
    sums = sums.masked_fill(~rearrange(real, "r m -> r m 1"), 0.0).sum(dim=1)
    total = torch.zeros_like(hidden[:, 0]).index_add(0, rows, sums)
    count = hidden.new_zeros(b).index_add(0, rows, real.sum(dim=1).to(hidden.dtype))
    return total / rearrange(count.clamp(min=1), "b -> b 1"), count
