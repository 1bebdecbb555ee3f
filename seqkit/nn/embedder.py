"""Token batches to embeddings of one width: the only module that knows what a tokenizer's content is.

b batch · n tokens · f features · d width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Embedded, TokenBatch, TokenSpec
from seqkit.nn.checks import check_above_0, check_at_least
from seqkit.nn.content import content_embedding
from seqkit.nn.position.absolute import NoPosition, Sinusoidal
from seqkit.nn.position.base import PositionalEncoding


class TokenEmbedder(nn.Module, ABC):
    """Base class of embedders: of one tokenizer's tokens, or of joined ones.

    spec: shape of the tokens. dim: width of the embeddings.
    """

    spec: TokenSpec
    dim: int

    @abstractmethod
    def part(self, name: str | None) -> Embedder:
        """Embedder of the tokens that a per-token objective predicts. name: `Objective.part`; None: of all.

        Raises ValueError where joined tokens have no such part, or it is not named.
        """


@dataclass(frozen=True)
class EmbeddingSettings:
    """How the content of tokens is embedded.

    embedding_dim: width of content and positions, projected to the backbone's afterwards (Lan et al. 2020, ALBERT,
    section 3.1); None: as wide as that. embedding_norm: norm of the sum of both, before the projection (ELECTRA); None:
    none. embedding_scale: factor of the embedded content, before positions are added (Gemma, Granite): sqrt(d) in the
    first Transformer (Vaswani et al. 2017, section 3.4), so that the table starts that much smaller. embedding_bias:
    whether linear layers that embed numbers, such as patches, have a bias (not in CLIP). share_embeddings: True: source
    and target of an encoder–decoder have one table (BART, T5); their tokenizers must be alike.
    Raises ValueError for a width below 1, or a scale that is not above 0.
    """

    is_settings: ClassVar[bool] = True

    embedding_dim: int | None = None
    embedding_norm: Callable[[int], nn.Module] | None = None
    embedding_scale: float = 1.0
    embedding_bias: bool = True
    share_embeddings: bool = False

    def __post_init__(self) -> None:
        check_at_least(1, embedding_dim=self.embedding_dim)
        check_above_0(embedding_scale=self.embedding_scale)


class Embedder(TokenEmbedder):
    """Embeddings [b n d] of a token batch: lookup table or linear layer, mask token, positional encoding, dropout.

    Tokens of several ids have a table for each field, and the embeddings are summed (as those of the codebooks in
    MusicGen; Copet et al. 2023, section 2.2); numbers beside them are added through a linear layer. Tokens before the
    others that have no content (`num_prefix_tokens`) are learned vectors.
    spec: shape of the tokens. position: `(dim, num_axes) -> PositionalEncoding`. dropout: dropout of the sum.
    uses_mask_token: True: an objective will mask tokens. embedding: how content is embedded.
    unit: True: content of size 1, ids included, and positions each begin with about unit variance, for a backbone that
    does not normalise its inputs (`Backbone.needs_unit_inputs`); False: content begins as small as positions do
    (`PositionalEncoding.std`).
    Raises ValueError in `forward` where the spec's own embedder changes the number of tokens.
    """

    def __init__(
        self,
        spec: TokenSpec,
        dim: int,
        *,
        position: Callable[[int, int], PositionalEncoding] = Sinusoidal,
        dropout: float = 0.0,
        uses_mask_token: bool = False,
        embedding: EmbeddingSettings = EmbeddingSettings(),
        unit: bool = False,
    ):
        super().__init__()
        self.spec = spec
        self.dim = dim
        self.scale = embedding.embedding_scale
        self.takes_numbers = not spec.is_categorical
        width = dim if embedding.embedding_dim is None else embedding.embedding_dim
        bias = embedding.embedding_bias
        norm = embedding.embedding_norm
        self.embedding_dim = width
        self.position = position(width, spec.num_axes)
        self.unit = unit
        std = (1.0 if unit else self.position.std) / self.scale
        self.content = content_embedding(spec, width, std=std, bias=bias)
        has_features = bool(spec.vocab_sizes) and spec.num_features > 0 and spec.embedder is None
        self.features = None
        if has_features:
            self.features = nn.Linear(spec.num_features, width, bias=bias)
        self.mask_token = None
        if uses_mask_token:
            self.mask_token = nn.Parameter(torch.randn(width) * std)
        self.norm = None if norm is None else norm(width)
        self.projection = None if width == dim else nn.Linear(width, dim)
        self.dropout = nn.Dropout(dropout)
        if unit:
            self.position.begin_with_std(1.0)
            for module in self.children():
                if module is not self.content or spec.embedder is None:
                    _begin_linear(module, std if module in (self.content, self.features) else 1.0)

    def forward(self, batch: TokenBatch, masked: Tensor | None = None) -> Embedded:
        """masked: [b n] bool, True: the mask token replaces the token's content (its position stays)."""
        real = rearrange(batch.valid, "b n -> b n 1")
        content = batch.content
        if self.takes_numbers:
            # NaN times zero is NaN: padding must not reach a product
            content = content.masked_fill(~real, 0.0)
            content = content.to(next((p.dtype for p in self.content.parameters()), content.dtype))
        hidden = self.content(content)
        if self.features is not None:
            if batch.features is None:
                raise ValueError(
                    f"the batch has no features, but the spec says {self.spec.num_features} a token"
                )
            features = (
                self.spec.numbers_of(batch).masked_fill(~real, 0.0).to(self.features.weight.dtype)
            )
            hidden = hidden + self.features(features)
        if hidden.shape[:2] != batch.valid.shape:
            raise ValueError(
                f"the tokenizer's own embedder made {list(hidden.shape[:2])} tokens of {list(batch.valid.shape)}; "
                "it must keep their number, or positions and padding would belong to others"
            )
        if masked is not None:
            if self.mask_token is None:
                raise ValueError(
                    "tokens are masked, but the embedder was built with uses_mask_token=False"
                )
            hidden = torch.where(
                rearrange(masked, "b n -> b n 1"), self.mask_token.to(hidden.dtype), hidden
            )
        if self.scale != 1:
            hidden = hidden * self.scale
        positions = batch.positions.masked_fill(~real, 0.0)
        if self.position.mixes_tokens:
            if batch.segments is not None or batch.reach is not None:
                name = type(self.position).__name__
                raise ValueError(
                    f"{name} mixes tokens of packed sequences and later ones; use other positions"
                )
            hidden = hidden.masked_fill(~real, 0.0)
        if not isinstance(self.position, NoPosition):
            hidden = self.position.add(hidden, positions)
        if self.norm is not None:
            hidden = self.norm(hidden)
        if self.projection is not None:
            hidden = self.projection(hidden)
        hidden = self.dropout(hidden).masked_fill(~real, 0.0)
        return Embedded(
            hidden=hidden,
            positions=positions,
            valid=batch.valid,
            adjacency=batch.adjacency,
            segments=batch.segments,
        ).know(batch.padding)

    def part(self, name: str | None) -> Embedder:
        """The embedder itself. Raises ValueError where a part is named."""
        if name is not None:
            raise ValueError(
                f"the objective is of the part {name}, and these tokens have no parts; leave it out"
            )
        return self

    @property
    def logit_scale(self) -> float:
        """Factor of the hidden states before a tied head, so that logits start at about 1.

        d^-0.5 for a table of width d whose scaled entries start with a standard deviation of 1 (as in T5), times their
        scale; else 1.
        """
        is_unit = self.unit or self.position.std == 1.0
        if is_unit:
            return float(self.embedding_dim**-0.5 * self.scale)
        return 1.0

    @property
    def table(self) -> nn.Embedding:
        """The lookup table [vocabulary d], for a head that shares it. Raises ValueError as `table_of`."""
        return self.table_of(self.dim)

    def table_of(self, width: int) -> nn.Embedding:
        """The lookup table [vocabulary width], for a head that shares it, after a transform to that width or without.

        Raises ValueError where there is none, or it has another width.
        """
        if not isinstance(self.content, nn.Embedding):
            raise ValueError(
                "tied=True shares the lookup table, which this tokenizer's own embedder does not have; use tied=False"
            )
        if (own := self.content.embedding_dim) != width:
            raise ValueError(
                f"tied=True shares the lookup table, which is not as wide as the hidden states ({own} of {width}); use "
                f"tied=False, or with Masked a transform to its width (model.objective.transform.width={own})"
            )
        return self.content


def _begin_linear(module: nn.Module, std: float) -> None:
    """Let inputs of size 1 begin with outputs of that standard deviation, where torch's own start gives about 0.6."""
    for linear in module.modules():
        if isinstance(linear, nn.Linear):
            nn.init.normal_(linear.weight, std=std * linear.in_features**-0.5)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
