"""Token batches to embeddings of one width: the only module that knows what a tokenizer's content is.

b batch · n tokens · f features · d width · h heads
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Backbone, Embedded, TokenBatch, TokenSpec
from seqkit.nn.position.absolute import NoPosition, Sinusoidal
from seqkit.nn.position.base import PositionalEncoding


def default_position(backbone: Backbone | None, spec: TokenSpec) -> type[PositionalEncoding]:
    """The positional encoding for `backbone` (None: unknown) where none was chosen.

    None where it uses positions itself, or is recurrent and positions have one axis; else sinusoids.
    """
    has_positions = backbone is not None and (backbone.uses_positions or (backbone.is_recurrent and spec.num_axes == 1))
    return NoPosition if has_positions or spec.num_axes == 0 else Sinusoidal


class Embedder(nn.Module):
    """Embeddings [b n d] of a token batch: lookup table or linear layer, mask token, positional encoding, dropout.

    spec: of the tokenizer. position: `(dim, num_axes) -> PositionalEncoding`. dropout: of the sum.
    uses_mask_token: True: an objective will mask tokens. num_heads: of the backbone; > 0 and edge types: a learned bias
    per edge type and head is added to attention scores (Ying et al. 2021, Graphormer, equation 6).
    """

    def __init__(
        self,
        spec: TokenSpec,
        dim: int,
        *,
        position: Callable[[int, int], PositionalEncoding] = Sinusoidal,
        dropout: float = 0.0,
        uses_mask_token: bool = False,
        num_heads: int = 0,
    ):
        super().__init__()
        self.spec, self.dim = spec, dim
        self.position = position(dim, spec.num_axes)
        width = dim - self.position.num_position_channels
        if spec.embedder is not None:
            self.content: nn.Module = spec.embedder(width)
        elif spec.ids:
            self.content = nn.Embedding(spec.vocab_size, width)
            nn.init.normal_(self.content.weight, std=self.position.std)
        else:
            self.content = nn.Linear(spec.num_features, width)
        self.mask_token = nn.Parameter(torch.randn(width) * self.position.std) if uses_mask_token else None
        biased = spec.num_edge_types > 0 and num_heads > 0
        self.edge_bias = nn.Parameter(torch.zeros(1 + spec.num_edge_types, num_heads)) if biased else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: TokenBatch, masked: Tensor | None = None) -> Embedded:
        """masked: [b n] bool, True: the mask token replaces the token's content (its position stays)."""
        real = rearrange(batch.valid, "b n -> b n 1")
        content = batch.content
        if not self.spec.ids:
            content = content.masked_fill(~real, 0.0)  # NaN times zero is NaN: padding must not reach a product
        hidden = self.content(content)
        if masked is not None:
            if self.mask_token is None:
                raise ValueError("tokens are masked, but the embedder was built with uses_mask_token=False")
            hidden = torch.where(rearrange(masked, "b n -> b n 1"), self.mask_token, hidden)
        if self.position.num_position_channels:
            hidden = F.pad(hidden, [0, self.position.num_position_channels])
        positions = batch.positions.masked_fill(~real, 0.0)
        hidden = self.dropout(hidden + self.position(positions)).masked_fill(~real, 0.0)
        return Embedded(hidden, positions, batch.valid, batch.adjacency, self.edge_bias, batch.segments)

    @property
    def table(self) -> nn.Embedding:
        """The lookup table [vocabulary d], for a head that shares it.

        Raises ValueError where there is none, or it is narrower than d because positions have channels of their own.
        """
        if not isinstance(self.content, nn.Embedding):
            raise ValueError(
                "tied=True shares the lookup table, which this tokenizer's own embedder does not have; use tied=False"
            )
        if self.position.num_position_channels:
            raise ValueError(
                f"tied=True shares the lookup table, which {type(self.position).__name__} makes narrower than the "
                f"hidden states ({self.content.embedding_dim} of {self.dim}); use tied=False, or add the positions"
            )
        return self.content
