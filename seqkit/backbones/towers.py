"""A backbone for each part of joined tokens.

b batch · n tokens · d width · r runs of a part · m tokens of the longest run
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.errors import suggest
from seqkit.interfaces import Backbone, Cache, Embedded, TokenSpec
from seqkit.nn.padding import zero_padded


class Towers(Backbone):
    """A backbone for each part of joined tokens, with weights of its own, as CLIP has (Radford et al. 2021).

    parts: backbones by name of the part. Their widths may differ: d is the largest, and the last channels of tokens of
    a narrower part are zero. So may their causality, and `causal` is then False. Tokens attend within a run of their
    part alone, so objectives that need the parts together are refused; one backbone over all parts serves these.

    >>> from seqkit.backbones import GRU, TCN
    >>> towers = Towers({"text": GRU(8), "image": TCN(12)})
    >>> towers.dim, towers.part("text").dim
    (12, 8)
    """

    supports_adjacency = True
    joins_graphs = True
    # a run is in one packed example
    supports_segments = True

    def __init__(self, parts: Mapping[str, Backbone]):
        super().__init__()
        if not parts:
            raise ValueError("Towers has no parts; give a backbone for each, by name")
        self.parts = nn.ModuleDict(dict(parts))
        self.dim = max(backbone.dim for backbone in parts.values())
        first, *others = {backbone.causal for backbone in parts.values()}
        self.causal = False if others else first
        self.takes_causality = all(backbone.takes_causality for backbone in parts.values())

    def part(self, name: str) -> Backbone:
        """Backbone of that part. Raises ValueError, with the names that there are, for another one."""
        if name not in self.parts:
            raise ValueError(
                f"Towers has no backbone for the part {name!r}; {suggest(name, self.parts)}"
            )
        found = self.parts[name]
        assert isinstance(found, Backbone)
        return found

    def check_supported(self, spec: TokenSpec) -> None:
        """Raise ValueError where the tokens are not joined of these very parts."""
        names = [name for name, _ in spec.parts]
        if set(names) != set(self.parts):
            given = f"joined of {', '.join(names)}" if names else "of one tokenizer"
            raise ValueError(
                f"Towers has backbones for {', '.join(self.parts)}, and the tokens are {given}"
            )

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded. Raises ValueError for tokens that are not joined."""
        if embedded.parts is None:
            raise ValueError(
                "the batch has no parts, and Towers has a backbone for each; encode examples with Join"
            )
        hidden = rearrange(embedded.hidden, "b n d -> (b n) d")
        found = torch.zeros_like(hidden)
        for name in self.parts:
            backbone = self.part(name)
            if name not in embedded.parts:  # `DistributedDataParallel` waits for every gradient
                found = found + sum(p.sum() for p in backbone.parameters()) * 0.0
                continue
            columns = embedded.parts[name].columns
            batch = embedded.parts[name].batch
            run = Embedded(
                hidden=zero_padded(hidden[columns][..., : backbone.dim], batch.valid),
                positions=zero_padded(batch.positions, batch.valid),
                valid=batch.valid,
                adjacency=None if embedded.adjacency is None else batch.adjacency,
                causal=embedded.causal,
            ).know(batch.padding)
            # padding of a run is zero and is added to column 0
            own = rearrange(F.pad(backbone(run), [0, self.dim - backbone.dim]), "r m d -> (r m) d")
            found = found.index_add(0, columns.reshape(-1), own.to(found.dtype))
        return rearrange(found, "(b n) d -> b n d", b=embedded.valid.shape[0])
