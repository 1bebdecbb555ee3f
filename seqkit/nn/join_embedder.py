"""Embeddings of joined tokens.

b batch · n tokens · d width · r runs of a part · m tokens of a run
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Backbone, Embedded, TokenBatch, TokenSpec
from seqkit.nn.embedder import Embedder, TokenEmbedder
from seqkit.nn.padding import zero_padded


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
        self.spec = spec
        self.dim = dim
        self.parts = nn.ModuleDict({name: make(name, part) for name, part in spec.parts})
        self.encoders = nn.ModuleDict(dict(encoders or {}))
        self.modality = None
        if is_shared:
            self.modality = nn.Parameter(torch.zeros(len(spec.parts), dim))

    def forward(self, batch: TokenBatch, masked: Tensor | None = None) -> Embedded:
        """masked: [b n] bool, True: the mask token of its part replaces the token's content (its position stays).

        Raises ValueError for tokens that are not joined.
        """
        if batch.parts is None:
            raise ValueError(
                "the batch has no parts, and this model joins them; encode the examples with Join"
            )
        b, n = batch.valid.shape
        if self.modality is None:
            dtype = next((p.dtype for p in self.parameters()), batch.positions.dtype)
            flat = torch.zeros(b * n, self.dim, device=batch.valid.device, dtype=dtype)
        else:
            hidden = zero_padded(self.modality[batch.content], batch.valid)
            flat = rearrange(hidden, "b n d -> (b n) d")
        for name in self.parts:
            if name not in batch.parts:
                flat = flat + sum(p.sum() for p in self._parameters_of(name)) * 0.0
                continue
            part = batch.parts[name]
            if masked is None:
                hides = None
            else:
                hides = masked.reshape(-1)[part.columns] & part.batch.valid
            embedded: Embedded = self.parts[name](part.batch, hides)
            if name in self.encoders:
                own = self.encoders[name](embedded)
            else:
                own = embedded.hidden
            own = rearrange(F.pad(own, [0, self.dim - own.shape[-1]]), "r m d -> (r m) d")
            # padding of a run is zero and is added to column 0: nothing waits for an accelerator to count tokens
            flat = flat.index_add(0, part.columns.reshape(-1), own.to(flat.dtype))
        return Embedded(
            hidden=rearrange(flat, "(b n) d -> b n d", b=b, n=n),
            positions=zero_padded(batch.positions, batch.valid),
            valid=batch.valid,
            adjacency=batch.adjacency,
            segments=batch.segments,
            graphs=batch.graphs,
            parts=batch.parts,
        ).know(batch.padding)

    def part(self, name: str | None) -> Embedder:
        """The embedder of that part. Raises ValueError where it is not named."""
        names = ", ".join(part for part, _ in self.spec.parts)
        if name is None:
            raise ValueError(
                f"these tokens are joined of {names}; name the part to predict (model.objective.part)"
            )
        self.spec.part(name)
        found = self.parts[name]
        assert isinstance(found, Embedder)
        return found

    def _parameters_of(self, name: str) -> list[nn.Parameter]:
        own = [*self.parts[name].parameters()]
        return own + ([*self.encoders[name].parameters()] if name in self.encoders else [])
