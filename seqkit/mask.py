"""The only place that decides who reads whom.

Padding, causality, links, segments and what a cache has read meet here and leave as one `Reading` for all layers.

b batch · n tokens that read · m tokens that are read (n, or with a cache all so far) · h heads · p axes
"""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor

from seqkit.contract import Embedded, Links
from seqkit.layers.attention import Reading
from seqkit.layers.position import AttentionPosition


def who_reads_whom(
    embedded: Embedded,
    *,
    causal: bool,
    num_heads: int,
    channels: int,
    position: AttentionPosition | None = None,
    past: tuple[Tensor, Tensor] | None = None,
) -> Reading:
    """One `Reading` for tokens `embedded`, read by heads of `channels`.

    past: valid [b t] and positions [b t p] of what a cache has read before these tokens; they are read too.
    Where nothing needs hiding no mask is made: SDPA is fastest without. Padding stands on the right, so a causal token
    never reaches it, and padded readers may read what they like: backbones give zeros there.
    Raises ValueError for links or segments with a past: graphs and packed sequences are not generated stepwise.
    """
    valid, where = embedded.valid, embedded.positions
    if past is not None:
        if embedded.links is not None or embedded.segments is not None:
            raise ValueError(
                "a cache continues plain sequences; encode graphs and packed sequences at once, without one"
            )
        valid, where = torch.cat([past[0], valid], dim=1), torch.cat([past[1], where], dim=1)
    rotation = position.rotation(embedded.positions, channels) if position is not None else None
    bias = position.bias(embedded.positions, where, num_heads) if position is not None else None

    n, m = embedded.valid.shape[1], valid.shape[1]
    plain = embedded.links is None and embedded.segments is None and bias is None
    if plain and causal and n == m:
        return Reading(None, True, rotation)
    hidden_somewhere = not bool(valid.all())
    if plain and not hidden_somewhere and (not causal or n == 1):
        return Reading(None, False, rotation)

    attend = rearrange(valid, "b m -> b 1 1 m")
    if causal and n > 1:
        attend = attend & torch.ones(n, m, dtype=torch.bool, device=valid.device).tril(m - n)
    if embedded.segments is not None:
        segments = embedded.segments
        attend = attend & (rearrange(segments, "b n -> b 1 n 1") == rearrange(segments, "b m -> b 1 1 m"))
    if embedded.links is not None:
        kinds = dense_kinds(embedded.links, *embedded.valid.shape)
        itself = torch.eye(n, dtype=torch.bool, device=valid.device)
        attend = attend & rearrange((kinds > 0) | itself, "b n m -> b 1 n m")
        if embedded.link_bias is not None:
            by_kind = rearrange(embedded.link_bias[kinds], "b n m h -> b h n m")
            bias = by_kind if bias is None else bias + by_kind
    if bias is not None:
        attend = bias.masked_fill(~attend, -torch.inf)
    return Reading(attend, False, rotation)


def dense_kinds(links: Links, b: int, n: int) -> Tensor:
    """Kinds as [b n n] (reader, read), 0 where there is no link. O(b n^2) memory: for graphs of some hundred tokens."""
    kinds = torch.zeros(b * n * n, dtype=torch.int64, device=links.kinds.device)
    reader, read = links.edges
    kinds[reader * n + read % n] = links.kinds
    return rearrange(kinds, "(b n m) -> b n m", b=b, n=n)
