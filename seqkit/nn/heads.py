"""Heads, from hidden states to predictions. Pooling happens here, so no [CLS] token shifts positions.

b batch · n tokens · d width · k outputs
"""

from __future__ import annotations

from typing import Literal

from einops import rearrange
from torch import Tensor, nn

Pool = Literal["mean", "sum", "max", "last"]


class TokenHead(nn.Module):
    """A linear layer on every token: [b n d] → [b n k]."""

    def __init__(self, dim: int, num_outputs: int, *, bias: bool = True):
        super().__init__()
        self.linear = nn.Linear(dim, num_outputs, bias=bias)
        nn.init.normal_(self.linear.weight, std=0.02)
        if bias:
            nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor, valid: Tensor) -> Tensor:
        """Predictions [b n k]; those of padded tokens mean nothing."""
        return self.linear(hidden)


class TiedHead(nn.Module):
    """Logits by the vocabulary's own embedding table (tied weights; Press and Wolf 2017): [b n d] → [b n vocabulary].

    std: of the table's entries. Where it is large the logits are divided by sqrt(d), as in T5, so that they start at
    about 1.
    """

    def __init__(self, table: nn.Embedding, std: float):
        super().__init__()
        self.table = table
        self.scale = min(1.0, 1 / (std * table.embedding_dim**0.5))

    def forward(self, hidden: Tensor, valid: Tensor) -> Tensor:
        """Logits [b n vocabulary]; those of padded tokens mean nothing."""
        return nn.functional.linear(hidden * self.scale if self.scale < 1 else hidden, self.table.weight)


class SequenceHead(nn.Module):
    """Pool the real tokens, then a linear layer: [b n d] → [b k].

    pool: "mean", "sum" (for quantities that add up over tokens), "max" or "last" (for causal backbones).
    """

    def __init__(self, dim: int, num_outputs: int, *, pool: Pool = "mean"):
        super().__init__()
        self.pool = pool
        self.linear = nn.Linear(dim, num_outputs)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor, valid: Tensor) -> Tensor:
        """Predictions [b k] from hidden [b n d]."""
        return self.linear(pooled(hidden, valid, self.pool))


def pooled(hidden: Tensor, valid: Tensor, pool: Pool) -> Tensor:
    """One vector [b d] per example from its real tokens. Raises ValueError for an unknown pooling."""
    real = rearrange(valid, "b n -> b n 1")
    if pool == "max":
        return hidden.masked_fill(~real, float("-inf")).amax(dim=1)
    if pool == "last":
        return hidden[range(len(hidden)), valid.sum(dim=1) - 1]
    total = hidden.masked_fill(~real, 0.0).sum(dim=1)
    if pool == "sum":
        return total
    if pool == "mean":
        return total / real.sum(dim=1)
    raise ValueError(f"pool={pool!r}; it is one of 'mean', 'sum', 'max', 'last'")
