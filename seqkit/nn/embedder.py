"""Token batches to embeddings of one width: the only module that knows what a tokenizer's content is.

b batch · n tokens · k fields, or learned tokens before the others · f features · d width · r runs of a part
m tokens of a run
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Backbone, Embedded, TokenBatch, TokenSpec
from seqkit.nn.position.absolute import NoPosition, Sinusoidal
from seqkit.nn.position.base import PositionalEncoding


def default_position(backbone: Backbone | None, spec: TokenSpec) -> type[PositionalEncoding]:
    """The positional encoding for `backbone` (None: unknown) where none was chosen.

    None where it uses positions itself, is recurrent and positions have one axis, or is to know no order; else
    sinusoids.
    """
    if spec.num_axes == 0:
        return NoPosition
    if backbone is None:
        return Sinusoidal
    knows_columns = backbone.is_recurrent and spec.num_axes == 1
    return NoPosition if backbone.uses_positions or knows_columns or backbone.ignores_order else Sinusoidal


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
        return torch.stack([table(ids) for table, ids in zip(self.tables, content.unbind(dim=-1), strict=True)]).sum(0)


class PrefixEmbedding(nn.Module):
    """A linear layer over f features, and a learned vector for each of k tokens that have none (`num_prefix_tokens`).

    std: standard deviation of the learned vectors at the start. bias: whether the linear layer has one.
    """

    def __init__(self, num_features: int, num_prefix_tokens: int, width: int, *, std: float, bias: bool = True):
        super().__init__()
        self.prefix = nn.Parameter(torch.randn(num_prefix_tokens, width) * std)
        self.projection = nn.Linear(num_features, width, bias=bias)

    def forward(self, content: Tensor) -> Tensor:
        """Embeddings [b n d] of content [b n k+f], which begins with the flags of the k tokens."""
        flags, features = content.tensor_split([len(self.prefix)], dim=-1)
        is_prefix = flags.sum(dim=-1, keepdim=True) > 0.5
        return torch.where(is_prefix, flags @ self.prefix, self.projection(features))


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


class Embedder(TokenEmbedder):
    """Embeddings [b n d] of a token batch: lookup table or linear layer, mask token, positional encoding, dropout.

    Tokens of several ids have a table for each field, and the embeddings are summed (as those of the codebooks in
    MusicGen; Copet et al. 2023, section 2.2); numbers beside them are added through a linear layer. Tokens before the
    others that have no content (`num_prefix_tokens`) are learned vectors.
    spec: shape of the tokens. position: `(dim, num_axes) -> PositionalEncoding`. dropout: dropout of the sum.
    uses_mask_token: True: an objective will mask tokens.
    embedding_dim: width of content and positions, projected to d afterwards (Lan et al. 2020, ALBERT, section 3.1);
    None: d itself. norm: norm of the sum, before the projection; None: none. scale: factor of the embedded content,
    before positions are added: sqrt(d) in the first Transformer (Vaswani et al. 2017, section 3.4), so that the table
    starts that much smaller. bias: whether linear layers over numbers have one (not in CLIP).
    Raises ValueError for a scale that is not above 0, and in `forward` where the spec's own embedder changes the number
    of tokens.
    """

    def __init__(
        self,
        spec: TokenSpec,
        dim: int,
        *,
        position: Callable[[int, int], PositionalEncoding] = Sinusoidal,
        dropout: float = 0.0,
        uses_mask_token: bool = False,
        embedding_dim: int | None = None,
        norm: Callable[[int], nn.Module] | None = None,
        scale: float = 1.0,
        bias: bool = True,
    ):
        super().__init__()
        if not 0 < scale < math.inf:
            raise ValueError(f"the embeddings' scale={scale} is a factor; make it larger than 0, or leave it out")
        self.spec, self.dim, self.scale, self.takes_numbers = spec, dim, scale, not spec.is_categorical
        self.embedding_dim = dim if embedding_dim is None else embedding_dim
        if self.embedding_dim < 1:
            raise ValueError(f"embedding_dim={embedding_dim} counts channels; make it 1 or more")
        self.position = position(self.embedding_dim, spec.num_axes)
        width, std = self.embedding_dim - self.position.num_position_channels, self.position.std / scale
        if spec.embedder is not None:
            self.content: nn.Module = spec.embedder(width)
        elif spec.vocab_sizes:
            self.content = FieldEmbedding(spec.vocab_sizes, width, std=std)
        elif spec.ids:
            self.content = nn.Embedding(spec.vocab_size, width)
            nn.init.normal_(self.content.weight, std=std)
        elif k := spec.num_prefix_tokens:
            self.content = PrefixEmbedding(spec.num_features - k, k, width, std=std, bias=bias)
        else:
            self.content = nn.Linear(spec.num_features, width, bias=bias)
        has_features = bool(spec.vocab_sizes) and spec.num_features > 0 and spec.embedder is None
        self.features = nn.Linear(spec.num_features, width, bias=bias) if has_features else None
        self.mask_token = nn.Parameter(torch.randn(width) * std) if uses_mask_token else None
        self.norm = None if norm is None else norm(self.embedding_dim)
        self.projection = None if embedding_dim in (None, dim) else nn.Linear(self.embedding_dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: TokenBatch, masked: Tensor | None = None) -> Embedded:
        """masked: [b n] bool, True: the mask token replaces the token's content (its position stays)."""
        real = rearrange(batch.valid, "b n -> b n 1")
        content = batch.content
        if self.takes_numbers:
            content = content.masked_fill(~real, 0.0)  # NaN times zero is NaN: padding must not reach a product
            content = content.to(next((p.dtype for p in self.content.parameters()), content.dtype))
        hidden = self.content(content)
        if self.features is not None:
            if batch.features is None:
                raise ValueError(f"the batch has no features, but the spec says {self.spec.num_features} a token")
            features = self.spec.numbers_of(batch).masked_fill(~real, 0.0).to(self.features.weight.dtype)
            hidden = hidden + self.features(features)
        if hidden.shape[:2] != batch.valid.shape:
            raise ValueError(
                f"the tokenizer's own embedder made {list(hidden.shape[:2])} tokens of {list(batch.valid.shape)}; "
                "it must keep their number, or positions and padding would belong to others"
            )
        if masked is not None:
            if self.mask_token is None:
                raise ValueError("tokens are masked, but the embedder was built with uses_mask_token=False")
            hidden = torch.where(rearrange(masked, "b n -> b n 1"), self.mask_token.to(hidden.dtype), hidden)
        if self.scale != 1:
            hidden = hidden * self.scale
        if self.position.num_position_channels:
            hidden = F.pad(hidden, [0, self.position.num_position_channels])
        positions = batch.positions.masked_fill(~real, 0.0)
        if self.position.mixes_tokens:
            if batch.segments is not None or batch.reach is not None:
                name = type(self.position).__name__
                raise ValueError(f"{name} mixes tokens of packed sequences and later ones; use other positions")
            hidden = hidden.masked_fill(~real, 0.0)
        if not isinstance(self.position, NoPosition):
            hidden = self.position.add(hidden, positions)
        if self.norm is not None:
            hidden = self.norm(hidden)
        if self.projection is not None:
            hidden = self.projection(hidden)
        hidden = self.dropout(hidden).masked_fill(~real, 0.0)
        embedded = Embedded(
            hidden=hidden, positions=positions, valid=batch.valid, adjacency=batch.adjacency, segments=batch.segments
        )
        return embedded.with_known_padding(batch)

    def part(self, name: str | None) -> Embedder:
        """The embedder itself. Raises ValueError where a part is named."""
        if name is not None:
            raise ValueError(f"the objective is of the part {name}, and these tokens have no parts; leave it out")
        return self

    @property
    def logit_scale(self) -> float:
        """Factor of the hidden states before a tied head, so that logits start at about 1.

        d^-0.5 for a table of width d whose scaled entries start with a standard deviation of 1 (as in T5), times their
        scale; else 1.
        """
        return float(self.embedding_dim**-0.5 * self.scale) if self.position.std == 1.0 else 1.0

    @property
    def table(self) -> nn.Embedding:
        """The lookup table [vocabulary d], for a head that shares it. Raises ValueError as `table_of`."""
        return self.table_of(self.dim)

    def table_of(self, width: int) -> nn.Embedding:
        """The lookup table [vocabulary width], for a head that shares it, after a transform to that width or without.

        Raises ValueError where there is none, or it has another width: that of narrow embeddings, or of positions with
        channels of their own.
        """
        if not isinstance(self.content, nn.Embedding):
            raise ValueError(
                "tied=True shares the lookup table, which this tokenizer's own embedder does not have; use tied=False"
            )
        own = self.content.embedding_dim
        if own != width and self.position.num_position_channels:
            raise ValueError(
                f"tied=True shares the lookup table, which {type(self.position).__name__} makes narrower than the "
                f"hidden states ({own} of {width}); use tied=False, or add the positions"
            )
        if own != width:
            unlike = "narrower" if own < width else "wider"
            raise ValueError(
                f"tied=True shares the lookup table, which is {unlike} than the hidden states ({own} of {width}); use "
                f"tied=False, or with Masked a transform to its width (model.objective.transform.width={own})"
            )
        return self.content


class JoinEmbedder(TokenEmbedder):
    """Embeddings [b n d] of joined tokens: an embedder for each part, and a learned vector for each modality.

    spec: shape of the joined tokens. make: embedder of a part, from its name and spec. encoders: backbones that encode
    a part's own tokens before they are joined, by name of the part (a `GIN` over a molecule's atoms). is_shared: False:
    no network sees tokens of two parts, so modalities have no vectors.
    The vectors of the modalities start at zero, so one part joined alone has its own embeddings. The last channels of
    parts that are narrower than d are zero. A part that no example of a batch has adds zero times its parameters, since
    `DistributedDataParallel` waits for every gradient.
    """

    def __init__(
        self,
        spec: TokenSpec,
        dim: int,
        make: Callable[[str, TokenSpec], Embedder],
        encoders: Mapping[str, Backbone] | None = None,
        *,
        is_shared: bool = True,
    ):
        super().__init__()
        self.spec, self.dim = spec, dim
        self.parts = nn.ModuleDict({name: make(name, part) for name, part in spec.parts})
        self.encoders = nn.ModuleDict(dict(encoders or {}))
        self.modality = nn.Parameter(torch.zeros(len(spec.parts), dim)) if is_shared else None

    def forward(self, batch: TokenBatch, masked: Tensor | None = None) -> Embedded:
        """masked: [b n] bool, True: the mask token of its part replaces the token's content (its position stays).

        Raises ValueError for tokens that are not joined.
        """
        if batch.parts is None:
            raise ValueError("the batch has no parts, and this model joins them; encode the examples with Join")
        b, n = batch.valid.shape
        if self.modality is None:
            dtype = next((p.dtype for p in self.parameters()), batch.positions.dtype)
            flat = torch.zeros(b * n, self.dim, device=batch.valid.device, dtype=dtype)
        else:
            hidden = self.modality[batch.content].masked_fill(~rearrange(batch.valid, "b n -> b n 1"), 0.0)
            flat = rearrange(hidden, "b n d -> (b n) d")
        for name in self.parts:
            if name not in batch.parts:
                flat = flat + sum(p.sum() for p in self._parameters_of(name)) * 0.0
                continue
            part = batch.parts[name]
            hides = None if masked is None else masked.reshape(-1)[part.columns] & part.batch.valid
            embedded: Embedded = self.parts[name](part.batch, hides)
            own = self.encoders[name](embedded) if name in self.encoders else embedded.hidden
            own = rearrange(F.pad(own, [0, self.dim - own.shape[-1]]), "r m d -> (r m) d")
            # padding of a run is zero and is added to column 0: nothing waits for an accelerator to count tokens
            flat = flat.index_add(0, part.columns.reshape(-1), own.to(flat.dtype))
        embedded = Embedded(
            hidden=rearrange(flat, "(b n) d -> b n d", b=b, n=n),
            positions=batch.positions.masked_fill(~rearrange(batch.valid, "b n -> b n 1"), 0.0),
            valid=batch.valid,
            adjacency=batch.adjacency,
            segments=batch.segments,
            graphs=batch.graphs,
            parts=batch.parts,
        )
        return embedded.with_known_padding(batch)

    def part(self, name: str | None) -> Embedder:
        """The embedder of that part. Raises ValueError where it is not named."""
        names = ", ".join(part for part, _ in self.spec.parts)
        if name is None:
            raise ValueError(f"these tokens are joined of {names}; name the part to predict (model.objective.part)")
        self.spec.part(name)
        found = self.parts[name]
        assert isinstance(found, Embedder)
        return found

    def _parameters_of(self, name: str) -> list[nn.Parameter]:
        own = [*self.parts[name].parameters()]
        return own + ([*self.encoders[name].parameters()] if name in self.encoders else [])
