"""Builds the attention mask and bias from padding, causality, adjacency, segments and cache.

All attention masks are built here, once per forward pass and kind of layer; mechanisms with needs_mask=False get the
same `AttentionContext` without one.

b batch · n queries · m keys (n, or with a cache all columns so far) · h heads · p axes
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor

from seqkit.interfaces import Adjacency, Embedded
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.position.base import RelativePosition


class Past(NamedTuple):
    """Columns in a cache: valid [b t], positions [b t p], and whether some of them are padding."""

    valid: Tensor
    positions: Tensor
    is_padded: bool


def attention_context(
    embedded: Embedded,
    *,
    causal: bool,
    num_heads: int,
    head_dim: int,
    position: RelativePosition | None = None,
    edge_bias: Tensor | None = None,
    past: Past | None = None,
    needs_mask: bool = True,
) -> AttentionContext:
    """The context of self-attention over `embedded`, by heads of `head_dim` channels.

    edge_bias: [1 + num_edge_types, h], as in `AttentionContext`. past: the columns in the cache; they are keys too.
    needs_mask: False: for attention that makes no [n m] scores, so no mask is made either.
    Where nothing is masked no mask is made: SDPA is fastest without. Sequences are padded on the right, so a causal
    query never reaches padding, and padded queries may attend to anything: backbones give zeros there.
    Raises ValueError for adjacency or segments with a past: graphs and packed sequences are not generated step by step.
    """
    valid, positions, is_padded = embedded.valid, embedded.positions, embedded.is_padded
    if past is not None:
        if embedded.adjacency is not None or embedded.segments is not None or embedded.reach is not None:
            raise ValueError("a cache supports plain sequences only; encode graphs and packed sequences without one")
        valid, positions = torch.cat([past.valid, valid], dim=1), torch.cat([past.positions, positions], dim=1)
        is_padded = is_padded or past.is_padded
    rotary = position.rotary(embedded.positions, head_dim) if position is not None else None
    relative = position.relative(embedded.positions, positions) if position is not None else None
    bias = position.bias(embedded.positions, positions, num_heads) if position is not None else None

    def context(attn_mask: Tensor | None, is_causal: bool) -> AttentionContext:
        return AttentionContext(
            attn_mask, is_causal, rotary, relative, embedded.valid, valid, embedded.adjacency, edge_bias
        )

    n, m = embedded.valid.shape[1], valid.shape[1]
    plain = embedded.adjacency is None and embedded.segments is None and embedded.reach is None and bias is None
    if not needs_mask or (plain and causal and n == m):
        return context(None, causal)
    if plain and (not causal or n == 1) and not is_padded:
        return context(None, False)

    attn_mask = rearrange(valid, "b m -> b 1 1 m")
    if causal and n > 1:
        attn_mask = attn_mask & torch.ones(n, m, dtype=torch.bool, device=valid.device).tril(m - n)
    if embedded.reach is not None:
        reached = torch.arange(m, device=valid.device) <= rearrange(embedded.reach, "b n -> b n 1")
        attn_mask = attn_mask & rearrange(reached, "b n m -> b 1 n m")
    if embedded.segments is not None:
        segments = embedded.segments
        attn_mask = attn_mask & (rearrange(segments, "b n -> b 1 n 1") == rearrange(segments, "b m -> b 1 1 m"))
    if embedded.adjacency is not None:
        edge_types = dense_edge_types(embedded.adjacency, *embedded.valid.shape)
        joined = (edge_types > 0) | torch.eye(n, dtype=torch.bool, device=valid.device)
        if embedded.graphs is not None:  # beside other parts, edges say who attends to whom within a graph alone
            graphs = embedded.graphs
            same = rearrange(graphs, "b n -> b n 1") == rearrange(graphs, "b m -> b 1 m")
            joined = joined | ~same | rearrange(graphs == 0, "b n -> b n 1")
        attn_mask = attn_mask & rearrange(joined, "b n m -> b 1 n m")
        if edge_bias is not None:
            by_type = rearrange(edge_bias[edge_types], "b n m h -> b h n m")
            bias = by_type if bias is None else bias + by_type
    if bias is not None:
        # on CPUs without AVX2 torch's kernel misreads a mask of fewer bits than the queries (torch 2.11)
        bias = bias.to(torch.promote_types(bias.dtype, embedded.hidden.dtype))
        attn_mask = bias.masked_fill(~attn_mask, -torch.inf)
    return context(attn_mask, False)


def cross_attention_context(valid: Tensor, memory: Embedded, *, needs_mask: bool = True) -> AttentionContext:
    """The context of cross-attention from tokens, valid [b n], to all real ones of the memory."""
    attn_mask = rearrange(memory.valid, "b m -> b 1 1 m") if needs_mask and memory.is_padded else None
    return AttentionContext(attn_mask, query_valid=valid, key_valid=memory.valid)


def dense_edge_types(adjacency: Adjacency, b: int, n: int) -> Tensor:
    """Edge types as [b n n] (target, source), 0 where there is no edge. O(b n^2) memory: for some hundred tokens."""
    edge_types = torch.zeros(b * n * n, dtype=torch.int64, device=adjacency.edge_type.device)
    source, target = adjacency.edge_index
    column = torch.arange(n, device=source.device).expand(b, n).reshape(-1)  # source % n has no form in ONNX
    edge_types[target * n + column[source]] = adjacency.edge_type
    return rearrange(edge_types, "(b n m) -> b n m", b=b, n=n)
