"""From token batches to vectors of one width: the only module that knows what a tokenizer's content looks like.

b batch · n tokens · f features · d width · h heads
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.contract import Backbone, Embedded, TokenBatch, TokenSpec
from seqkit.layers.position import AddedPosition, NoPosition, Sinusoidal


def default_position(reader: Backbone | None, spec: TokenSpec) -> type[AddedPosition]:
    """What to add for `reader` (None: a backbone that tells nothing of itself) where nobody chose.

    Nothing where it reads positions itself, or goes along tokens that stand on one axis; else sinusoids.
    """
    told = reader is not None and (reader.reads_positions or (reader.ordered and spec.num_axes == 1))
    return NoPosition if told or spec.num_axes == 0 else Sinusoidal


class Embedder(nn.Module):
    """content → lookup or linear layer, + position, with one learned vector where a token is hidden.

    spec: of the tokenizer. position: `(dim, num_axes) -> AddedPosition`. dropout: of the sum, while training.
    hides: True: an objective will hide tokens. num_heads: of the backbone; > 0 and links: a learned bias per kind of
    link and head is added to the scores (Ying et al. 2021, Graphormer, equation 6).
    """

    def __init__(
        self,
        spec: TokenSpec,
        dim: int,
        *,
        position: Callable[[int, int], AddedPosition] = Sinusoidal,
        dropout: float = 0.0,
        hides: bool = False,
        num_heads: int = 0,
    ):
        super().__init__()
        self.spec, self.dim = spec, dim
        self.position = position(dim, spec.num_axes)
        width = dim - self.position.own_channels
        if spec.embedder is not None:
            self.content: nn.Module = spec.embedder(width)
        elif spec.ids:
            self.content = nn.Embedding(spec.vocab_size, width)
            nn.init.normal_(self.content.weight, std=self.position.std)
        else:
            self.content = nn.Linear(spec.num_features, width)
        self.stand_in = nn.Parameter(torch.randn(width) * self.position.std) if hides else None
        biased = spec.num_links > 0 and num_heads > 0
        self.link_bias = nn.Parameter(torch.zeros(1 + spec.num_links, num_heads)) if biased else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: TokenBatch, hide: Tensor | None = None) -> Embedded:
        """hide: [b n] bool, True: the token's content is replaced by the learned stand-in (its position stays)."""
        real = rearrange(batch.valid, "b n -> b n 1")
        content = batch.content
        if not self.spec.ids:
            content = content.masked_fill(~real, 0.0)  # NaN times zero is NaN: padding must not reach a product
        hidden = self.content(content)
        if hide is not None:
            if self.stand_in is None:
                raise ValueError("tokens are to be hidden, but the embedder was built with hides=False")
            hidden = torch.where(rearrange(hide, "b n -> b n 1"), self.stand_in, hidden)
        if self.position.own_channels:
            hidden = F.pad(hidden, [0, self.position.own_channels])
        positions = batch.positions.masked_fill(~real, 0.0)
        hidden = self.dropout(hidden + self.position(positions)).masked_fill(~real, 0.0)
        return Embedded(hidden, positions, batch.valid, batch.links, self.link_bias, batch.segments)

    @property
    def table(self) -> nn.Embedding:
        """The lookup table [vocabulary d], for a head that shares it.

        Raises ValueError where content is not looked up, or positions keep a part of the width to themselves.
        """
        if not isinstance(self.content, nn.Embedding):
            raise ValueError(
                "tied=True shares the lookup table, which this tokenizer's own embedder has not; use tied=False"
            )
        if self.position.own_channels:
            raise ValueError(
                f"tied=True shares the lookup table, which {type(self.position).__name__} makes narrower than the "
                f"hidden vectors ({self.content.embedding_dim} of {self.dim}); use tied=False, or add the positions"
            )
        return self.content
