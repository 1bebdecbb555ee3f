"""The only place that decides who reads whom.

Padding, causality, links, segments and what a cache has read meet here and leave as one `Reading` for all layers.

b batch · n tokens that read · m tokens that are read (n, or with a cache all so far) · h heads · p axes
"""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor

from seqkit.contract import Embedded, Links
from seqkit.layers.position import AttentionPosition
from seqkit.layers.reading import Reading


def who_reads_whom(
    embedded: Embedded,
    *,
    causal: bool,
    num_heads: int,
    channels: int,
    position: AttentionPosition | None = None,
    past: tuple[Tensor, Tensor] | None = None,
    dense: bool = True,
) -> Reading:
    """One `Reading` for tokens `embedded`, read by heads of `channels`.

    past: valid [b t] and positions [b t p] of what a cache has read before these tokens; they are read too.
    dense: False: for attention that makes no [n m] scores, so neither is a mask made.
    Where nothing needs hiding no mask is made either: SDPA is fastest without. Padding stands on the right, so a causal
    token never reaches it, and padded readers may read what they like: backbones give zeros there.
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
    relative = position.relative(embedded.positions, where) if position is not None else None
    bias = position.bias(embedded.positions, where, num_heads) if position is not None else None

    def reading(attend: Tensor | None, triangle: bool) -> Reading:
        return Reading(attend, triangle, rotation, relative, embedded.valid, valid, embedded.links, embedded.link_bias)

    n, m = embedded.valid.shape[1], valid.shape[1]
    plain = embedded.links is None and embedded.segments is None and bias is None
    if not dense or (plain and causal and n == m):
        return reading(None, causal)
    if plain and (not causal or n == 1) and all_real(valid):
        return reading(None, False)

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
    return reading(attend, False)


def who_reads_memory(embedded: Embedded, *, dense: bool = True) -> Reading:
    """The `Reading` of tokens that read all real tokens of another sequence, `embedded.memory`, wherever they stand."""
    assert embedded.memory is not None
    valid = embedded.memory.valid
    attend = None if not dense or all_real(valid) else rearrange(valid, "b m -> b 1 1 m")
    return Reading(attend, valid=embedded.valid, read_valid=valid)


def all_real(valid: Tensor) -> bool:
    """True: there is no padding. Tensors without numbers (device meta) are taken to have none."""
    return valid.is_meta or bool(valid.all())


def dense_kinds(links: Links, b: int, n: int) -> Tensor:
    """Kinds as [b n n] (reader, read), 0 where there is no link. O(b n^2) memory: for graphs of some hundred tokens."""
    kinds = torch.zeros(b * n * n, dtype=torch.int64, device=links.kinds.device)
    reader, read = links.edges
    kinds[reader * n + read % n] = links.kinds
    return rearrange(kinds, "(b n m) -> b n m", b=b, n=n)
