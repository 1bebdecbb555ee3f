"""Attention masks as functions, and the context of each kind of layer, built from its tokens.

A mask is a function of indices, like `mask_mod` of FlexAttention: whether query i of example b may attend to key j. The
indices broadcast, so the same function gives the dense mask [b n m] and the mask of a sliding window's blocks. Kernels
that take such functions would be chosen in `attention_context`; none is used, since none is tested here.

b batch · n queries · m keys (n, or with a cache all columns so far) · h heads · p axes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor

from seqkit.interfaces import Adjacency, Embedded
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.position.base import RelativePosition
from seqkit.nn.position.bias import bias_of_types

Mask = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(example, query, key) → True where the query may attend to the key. Indices broadcast, as [b 1 1], [n 1], [m]."""


def causal_mask(_b: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Keys up to the query itself."""
    return j <= i


def padding_mask(valid: Tensor) -> Mask:
    """Real keys. valid: [b m]."""
    return lambda b, _i, j: valid[b, j]


def reach_mask(reach: Tensor) -> Mask:
    """Keys up to the last column that each query may attend to, reach [b n]."""
    return lambda b, i, j: j <= reach[b, i]


def segment_mask(segments: Tensor) -> Mask:
    """Keys of the query's own packed sequence. segments: [b n]."""
    return lambda b, i, j: segments[b, i] == segments[b, j]


def edge_mask(edge_types: Tensor, graphs: Tensor | None) -> Mask:
    """Keys that the query has an edge to (edge_types [b n n] above 0), itself, and all keys outside of its graph.

    graphs: as in `Embedded`; if graphs are joined with other parts, edges mask only pairs within one graph.
    """

    def mask(b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        joined = (edge_types[b, i, j] > 0) | (i == j)
        return joined if graphs is None else joined | ~_in_one_graph(graphs)(b, i, j)

    return mask


def _in_one_graph(graphs: Tensor) -> Mask:
    return lambda b, i, j: (graphs[b, i] == graphs[b, j]) & (graphs[b, i] > 0)


def dense(masks: Sequence[Mask], b: int, n: int, m: int, device: torch.device) -> Tensor:
    """The conjunction of all masks, [b|1 1 n|1 m]; queries are the last n of m columns."""
    example = rearrange(torch.arange(b, device=device), "b -> b 1 1")
    key = rearrange(torch.arange(m, device=device), "m -> 1 1 m")
    query = rearrange(torch.arange(m - n, m, device=device), "n -> 1 n 1")
    return rearrange(reduce(and_, (mask(example, query, key) for mask in masks)), "b n m -> b 1 n m")


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
    """The context of self-attention over `embedded`, with heads of `head_dim` channels.

    edge_bias: [1 + num_edge_types, h], as in `AttentionContext`. past: columns in the cache, which are keys too.
    needs_mask: False: the attention makes no [n m] scores, so no mask is made either.
    If nothing is masked, there is no mask: SDPA is fastest without one. Sequences are padded on the right, so a real
    causal query never attends to padding. Padded queries may attend to anything: backbones return zeros there.
    Raises ValueError for adjacency, segments or reach with a past: only plain sequences are generated step by step.
    """
    valid, positions, is_padded = embedded.valid, embedded.positions, embedded.is_padded
    adjacency, segments, reach = embedded.adjacency, embedded.segments, embedded.reach
    if past is not None:
        if adjacency is not None or segments is not None or reach is not None:
            raise ValueError("a cache supports plain sequences only; encode graphs and packed sequences without one")
        valid, positions = torch.cat([past.valid, valid], dim=1), torch.cat([past.positions, positions], dim=1)
        is_padded = is_padded or past.is_padded
    (b, n), m = embedded.valid.shape, valid.shape[1]
    rotary = relative = bias = None
    if position is not None:
        rotary = position.rotary(embedded.positions, head_dim)
        relative = position.relative(embedded.positions, positions)
        bias = position.bias(embedded.positions, positions, num_heads)
    masks: list[Mask] = []
    if reach is not None:
        masks.append(reach_mask(reach))
    if segments is not None:
        masks.append(segment_mask(segments))
    if adjacency is not None and needs_mask:
        edge_types = dense_edge_types(adjacency, b, n)
        masks.append(edge_mask(edge_types, embedded.graphs))
        if edge_bias is not None:
            by_type = rearrange(bias_of_types(edge_bias, edge_types), "b n m h -> b h n m")
            if embedded.graphs is not None:  # row 0 is for a token with itself, not for pairs outside a graph
                by_type = by_type.masked_fill(~dense([_in_one_graph(embedded.graphs)], b, n, n, valid.device), 0.0)
            bias = by_type if bias is None else bias + by_type
    # torch's kernels are causal without a mask where queries and keys are the same columns
    is_plain_causal = causal and n == m and not masks and bias is None
    if causal and n > 1 and not is_plain_causal:
        masks.append(causal_mask)
    if is_padded and not is_plain_causal:
        masks.append(padding_mask(valid))

    attn_mask = dense(masks, b, n, m, valid.device) if masks and needs_mask else None
    if attn_mask is not None and adjacency is not None:  # padding has no edges, and ONNX's softmax over no key is NaN
        attn_mask = attn_mask | torch.eye(n, dtype=torch.bool, device=valid.device)
    if bias is not None:
        # on CPUs without AVX2, torch's kernel misreads a mask of a narrower dtype than the queries (torch 2.11)
        bias = bias.to(torch.promote_types(bias.dtype, embedded.hidden.dtype))
        attn_mask = bias if attn_mask is None else bias.masked_fill(~attn_mask, -torch.inf)
    return AttentionContext(
        attn_mask,
        is_causal=causal if not needs_mask else is_plain_causal,
        rotary=rotary,
        relative=relative,
        query_valid=embedded.valid if embedded.is_padded else None,
        key_valid=valid if is_padded else None,
        adjacency=adjacency,
        edge_bias=edge_bias,
    )


def cross_attention_context(valid: Tensor, memory: Embedded, *, needs_mask: bool = True) -> AttentionContext:
    """The context of cross-attention from tokens, valid [b n], to all real tokens of the memory."""
    (b, m), device = memory.valid.shape, memory.valid.device
    attn_mask = dense([padding_mask(memory.valid)], b, 1, m, device) if needs_mask and memory.is_padded else None
    key_valid = memory.valid if memory.is_padded else None
    return AttentionContext(attn_mask, query_valid=valid, key_valid=key_valid, memory=memory.hidden)


def dense_edge_types(adjacency: Adjacency, b: int, n: int) -> Tensor:
    """Edge types as [b n n] (target, source), 0 where there is no edge. O(b n^2) memory, for some hundred tokens."""
    edge_types = torch.zeros(b * n * n, dtype=torch.int64, device=adjacency.edge_type.device)
    source, target = adjacency.edge_index
    column = torch.arange(n, device=source.device).expand(b, n).reshape(-1)  # ONNX has no source % n
    edge_types[target * n + column[source]] = adjacency.edge_type
    return rearrange(edge_types, "(b n m) -> b n m", b=b, n=n)
