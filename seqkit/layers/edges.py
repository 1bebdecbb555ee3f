"""Attention along the links of graphs, in O(edges).

b batch · n tokens · h heads · g heads of keys and values · r heads that share one · c channels of one head
N = b n tokens of the whole batch · e links
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange, reduce
from torch import Tensor

from seqkit.contract import Links
from seqkit.layers.mechanism import Mechanism
from seqkit.layers.reading import Reading


class Edgewise(Mechanism):
    """Softmax of dot products over what a token is linked to and itself: ScaledDotProduct's numbers, no [n n] tensor.

    As graph attention networks gather neighbours (Velickovic et al. 2018, section 2.2), with scaled dot products and
    `link_bias` as scores. dropout: of weights, while training.
    Time and memory O((n + e) width). On graphs of some hundred tokens ScaledDotProduct is as fast (docs/efficient.md).
    Raises ValueError for a dropout outside [0, 1), and in `forward` for tokens without links.
    """

    honours = frozenset({"both ways", "causal", "links", "rotation", "groups"})
    dense = False
    needs_links = True

    def __init__(self, num_heads: int, channels: int, *, dropout: float = 0.0):
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout} is a share of weights; make it at least 0 and below 1")
        self.scale, self.dropout = channels**-0.5, dropout

    def forward(self, q: Tensor, k: Tensor, v: Tensor, reading: Reading, memory: Any = None) -> Tensor:
        """[b h n c]; sums are made in float32 at least."""
        links = _links(reading)
        reader, read = links.edges
        own, along = self._scores(q, k, reading)
        highest = _highest(own.detach(), reader, along.detach())
        own, along = (own - highest).exp(), (along - highest[reader]).exp()
        total = own.index_add(0, reader, along)
        own, along = (rearrange(F.dropout(x, self.dropout, self.training), "e g r -> e g r 1") for x in (own, along))
        values = _flat(v.to(own.dtype), v.shape[1])
        result = (own * values).index_add(0, reader, along * values.index_select(0, read))
        result = result / rearrange(total, "N g r -> N g r 1")
        return rearrange(result, "(b n) g r c -> b (g r) n c", b=len(q)).to(v.dtype)

    def weights(self, q: Tensor, k: Tensor, reading: Reading) -> Tensor:
        """[b h n m], without dropout; O(n^2) memory."""
        n, (reader, read) = q.shape[2], _links(reading).edges
        own, along = (rearrange(x, "e g r -> e (g r)") for x in self._scores(q, k, reading))
        scores = own.new_full((len(own), n, own.shape[1]), -torch.inf)
        token = torch.arange(len(own), device=q.device)
        scores = scores.index_put((reader, read % n), along).index_put((token, token % n), own)
        return rearrange(scores.softmax(dim=1), "(b n) m h -> b h n m", n=n).to(q.dtype)

    def _scores(self, q: Tensor, k: Tensor, reading: Reading) -> tuple[Tensor, Tensor]:
        """Of each token with itself, [N g r], and along each link, [e g r]; -inf where a link may not be used."""
        links = _links(reading)
        reader, read = links.edges
        wide = torch.promote_types(q.dtype, torch.float32)
        queries, keys = _flat(q.to(wide) * self.scale, k.shape[1]), _flat(k.to(wide), k.shape[1])
        own = reduce(queries * keys, "N g r c -> N g r", "sum")
        along = reduce(queries.index_select(0, reader) * keys.index_select(0, read), "e g r c -> e g r", "sum")
        itself = reader == read
        if reading.link_bias is not None:
            bias = rearrange(reading.link_bias.to(wide), "kind (g r) -> kind g r", g=k.shape[1])
            # a link of a token to itself names the kind of what it reads anyway
            kind = links.kinds.new_zeros(len(own)).index_add(0, reader, links.kinds * itself)
            own, along = own + bias[kind], along + bias[links.kinds]
        unused = itself
        if reading.causal:
            unused = unused | (read > reader)
        if reading.read_valid is not None:
            unused = unused | ~rearrange(reading.read_valid, "b n -> (b n)")[read]
        return own, along.masked_fill(rearrange(unused, "e -> e 1 1"), -torch.inf)


def _links(reading: Reading) -> Links:
    if reading.links is None:
        raise ValueError("Edgewise reads along links, and these tokens have none; use the mechanism ScaledDotProduct")
    return reading.links


def _highest(own: Tensor, reader: Tensor, along: Tensor) -> Tensor:
    """The highest score of each reader, [N g r]."""
    return own.scatter_reduce(0, rearrange(reader, "e -> e 1 1").expand_as(along), along, "amax")


def _flat(x: Tensor, num_groups: int) -> Tensor:
    """Heads [b h n c] of all examples in a row, by the keys that they share, [N g r c]."""
    return rearrange(x, "b (g r) n c -> (b n) g r c", g=num_groups)
