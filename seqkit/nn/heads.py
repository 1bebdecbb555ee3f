"""Heads on every token, from hidden states to predictions.

b batch · n tokens · d width · k outputs or fields · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.interfaces import Embedded
from seqkit.nn.attention.mechanism import capped
from seqkit.nn.embedder import Embedder
from seqkit.nn.mlp import Transform


def output_layer(dim: int, num_outputs: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer with small weights at the start."""
    linear = nn.Linear(dim, num_outputs, bias=bias)
    nn.init.normal_(linear.weight, std=0.02)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


class OutputHead(nn.Module):
    """Base class of heads with outputs for every token.

    transform: what hidden states of width d go through first; None: nothing. scale: factor of the product with the
    output layer's weight; a bias is added after it. softcap: c, of which outputs x become c tanh(x / c) (Gemma 2; Gemma
    Team 2024, section 2); None: they stay.
    """

    def __init__(self, transform: Transform | None, scale: float, softcap: float | None):
        super().__init__()
        self.transform = transform
        self.scale = scale
        self.softcap = softcap

    def _outputs(self, hidden: Tensor, output: Callable[[Tensor], Tensor]) -> Tensor:
        """Outputs [b n k] of hidden states [b n d]. output: the output layer."""
        if self.transform is not None:
            hidden = self.transform(hidden)
        found = output(hidden if self.scale == 1 else hidden * self.scale)
        if self.softcap is None:
            return found
        return capped(found, self.softcap)


class TokenHead(OutputHead):
    """A linear layer on every token: [b n d] → [b n k]. transform, scale, softcap: as of `OutputHead`."""

    def __init__(
        self,
        dim: int,
        num_outputs: int,
        *,
        bias: bool = True,
        transform: Transform | None = None,
        scale: float = 1.0,
        softcap: float | None = None,
    ):
        super().__init__(transform, scale, softcap)
        self.linear = output_layer(
            dim if transform is None else transform.width, num_outputs, bias=bias
        )

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Predictions [b n k]; those of padded tokens mean nothing."""
        return self._outputs(hidden, self.linear)


class FieldHead(TokenHead):
    """A linear layer for each of k fields on every token: [b n d] → logits [b n k v], v the largest vocabulary.

    Logits of ids that a smaller vocabulary does not have are -inf: their probability is 0, and they get no gradient.
    settings: of a `TokenHead`.
    """

    def __init__(self, dim: int, vocab_sizes: Sequence[int], **settings: Any):
        super().__init__(dim, sum(vocab_sizes), **settings)
        self.vocab_sizes = tuple(vocab_sizes)

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Logits [b n k v]; those of padded tokens mean nothing."""
        most = max(self.vocab_sizes)
        parts = self._outputs(hidden, self.linear).split(self.vocab_sizes, dim=-1)
        return torch.stack(
            [F.pad(part, [0, most - part.shape[-1]], value=float("-inf")) for part in parts], dim=-2
        )


class TiedHead(OutputHead):
    """Logits by the vocabulary's own embedding table (tied weights; Press and Wolf 2017): [b n d] → [b n vocabulary].

    scale: factor of the product; d^-0.5 where the table's entries are about 1, so that the logits are too (T5; Raffel
    et al. 2020). bias: whether each id has one (BERT). transform, softcap: as of `OutputHead`.
    """

    def __init__(
        self,
        table: nn.Embedding,
        *,
        scale: float = 1.0,
        bias: bool = False,
        transform: Transform | None = None,
        softcap: float | None = None,
    ):
        super().__init__(transform, scale, softcap)
        self.table = table
        self.bias = nn.Parameter(torch.zeros(table.num_embeddings)) if bias else None

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Logits [b n vocabulary]; those of padded tokens mean nothing."""
        return self._outputs(hidden, lambda x: F.linear(x, self.table.weight, self.bias))


def content_head(
    embedder: Embedder,
    *,
    tied: bool = False,
    bias: bool = True,
    transform: Callable[[int], Transform] | None = None,
    scale: float = 1.0,
    softcap: float | None = None,
) -> nn.Module:
    """The head that predicts the content of tokens: logits of an id, logits of each of several ids, or a vector.

    tied: whether its weight is the embedding table. The others: as of the heads.
    Raises ValueError for tokens of which some have no content, or whose ids are bags, and for a tied head of tokens
    without one table of the width that the head needs.
    """
    spec = embedder.spec
    made = None if transform is None else transform(embedder.dim)
    if spec.num_prefix_tokens:
        raise ValueError(
            f"the objective predicts the content of tokens, and {spec.num_prefix_tokens} before the others have none; "
            "give tokenizer.num_prefix_tokens=0, or an objective for whole examples"
        )
    if spec.vocab_sizes and spec.embedder is not None:
        raise ValueError(
            "the objective predicts ids, and these tokens are bags of ids; give tokenizer BPE, or so"
        )
    if tied:
        if spec.vocab_sizes:
            raise ValueError(
                "tied=True shares one lookup table, and tokens of several ids have several; use False"
            )
        table = embedder.table_of(embedder.dim if made is None else made.width)
        return TiedHead(
            table, scale=embedder.logit_scale * scale, bias=bias, transform=made, softcap=softcap
        )
    if spec.vocab_sizes:
        return FieldHead(
            embedder.dim, spec.vocab_sizes, bias=bias, transform=made, scale=scale, softcap=softcap
        )
    num_outputs = spec.vocab_size or spec.num_features
    return TokenHead(
        embedder.dim, num_outputs, bias=bias, transform=made, scale=scale, softcap=softcap
    )
