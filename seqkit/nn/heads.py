"""Heads, from hidden states to predictions. Pooling happens here, so no class token is needed.

b batch · n tokens · d width · k outputs or fields · v vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Embedded, TokenSpec

Pool = Literal["mean", "sum", "max", "last", "first"]


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
    if spec.vocab_sizes:
        return FieldHead(dim, spec.vocab_sizes, bias=bias)
    return TokenHead(dim, spec.vocab_size or spec.num_features, bias=bias)


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

    pool: "mean", "sum" (for quantities that add up over tokens), "max", "last" (for causal backbones) or "first" (a
    class token).
    """

    def __init__(self, dim: int, num_outputs: int, *, pool: Pool = "mean"):
        super().__init__()
        self.pool = pool
        self.linear = _linear(dim, num_outputs)

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Predictions [b k] from hidden [b n d]."""
        return self.linear(pooled(hidden, embedded.valid, self.pool))


def pooled(hidden: Tensor, valid: Tensor, pool: Pool) -> Tensor:
    """One vector [b d] per example from its real tokens. Raises ValueError for an unknown pooling."""
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
    raise ValueError(f"pool={pool!r}; it is one of 'mean', 'sum', 'max', 'last', 'first'")
