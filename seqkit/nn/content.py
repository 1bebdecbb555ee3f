"""Embeddings of the content of tokens: a table, a table for each of several ids, or a linear layer over numbers.

b batch · n tokens · k fields, or learned tokens before the others · f features · d width
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqkit.interfaces import TokenSpec


def content_embedding(spec: TokenSpec, width: int, *, std: float, bias: bool) -> nn.Module:
    """Module from the content of tokens to [b n width]: the spec's own, tables, or linear layers.

    std: standard deviation of a table's entries at the start. bias: whether linear layers have one.
    """
    if spec.embedder is not None:
        return spec.embedder(width)
    if spec.vocab_sizes:
        return FieldEmbedding(spec.vocab_sizes, width, std=std)
    if spec.ids:
        table = nn.Embedding(spec.vocab_size, width)
        nn.init.normal_(table.weight, std=std)
        return table
    if k := spec.num_prefix_tokens:
        return PrefixEmbedding(spec.num_features - k, k, width, std=std, bias=bias)
    return nn.Linear(spec.num_features, width, bias=bias)


class FieldEmbedding(nn.Module):
    """Sum of the embeddings of k ids a token, with a lookup table for each field.

    vocab_sizes: number of ids of each field. std: standard deviation of the sum's entries at the start.
    """

    def __init__(self, vocab_sizes: Sequence[int], width: int, *, std: float):
        super().__init__()
        tables = [nn.Embedding(size, width) for size in vocab_sizes]
        for table in tables:
            nn.init.normal_(table.weight, std=std * len(tables) ** -0.5)
        self.tables = nn.ModuleList(tables)

    def forward(self, content: Tensor) -> Tensor:
        """Embeddings [b n d] of ids [b n k]."""
        return torch.stack(
            [table(ids) for table, ids in zip(self.tables, content.unbind(dim=-1), strict=True)]
        ).sum(0)


class PrefixEmbedding(nn.Module):
    """A linear layer over f features, and a learned vector for each of k tokens that have none (`num_prefix_tokens`).

    std: standard deviation of the learned vectors at the start. bias: whether the linear layer has one.
    """

    def __init__(
        self,
        num_features: int,
        num_prefix_tokens: int,
        width: int,
        *,
        std: float,
        bias: bool = True,
    ):
        super().__init__()
        self.prefix = nn.Parameter(torch.randn(num_prefix_tokens, width) * std)
        self.projection = nn.Linear(num_features, width, bias=bias)

    def forward(self, content: Tensor) -> Tensor:
        """Embeddings [b n d] of content [b n k+f], which begins with the flags of the k tokens."""
        flags, features = content.tensor_split([len(self.prefix)], dim=-1)
        is_prefix = flags.sum(dim=-1, keepdim=True) > 0.5
        return torch.where(is_prefix, flags @ self.prefix, self.projection(features))
