"""Attention masks as functions, and what the edges of graphs add to attention.

A mask is a function of indices, like `mask_mod` of FlexAttention: whether query i of example b may attend to key j. The
indices broadcast, so the same function gives the dense mask [b n m] and the mask of a sliding window's blocks. Kernels
that take such functions would be chosen in `attention_context`; none is used, since none is tested here.

b batch · n queries · m keys · h heads
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_

import torch
from einops import rearrange
from torch import Tensor

from seqkit.interfaces import Adjacency
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
        if graphs is None:
            return joined
        return joined | ~_in_one_graph(graphs)(b, i, j)

    return mask


def _in_one_graph(graphs: Tensor) -> Mask:
    return lambda b, i, j: (graphs[b, i] == graphs[b, j]) & (graphs[b, i] > 0)


def dense(masks: Sequence[Mask], b: int, n: int, m: int, device: torch.device) -> Tensor:
    """The conjunction of all masks, [b|1 1 n|1 m]; queries are the last n of m columns."""
    example = rearrange(torch.arange(b, device=device), "b -> b 1 1")
    key = rearrange(torch.arange(m, device=device), "m -> 1 1 m")
    query = rearrange(torch.arange(m - n, m, device=device), "n -> 1 n 1")
    return rearrange(
        reduce(and_, (mask(example, query, key) for mask in masks)), "b n m -> b 1 n m"
    )


def dense_edge_types(adjacency: Adjacency, b: int, n: int) -> Tensor:
    """Edge types as [b n n] (target, source), 0 where there is no edge. O(b n^2) memory, for some hundred tokens."""
    edge_types = torch.zeros(b * n * n, dtype=torch.int64, device=adjacency.edge_type.device)
    source, target = adjacency.edge_index
    # ONNX has no source % n
    column = torch.arange(n, device=source.device).expand(b, n).reshape(-1)
    edge_types[target * n + column[source]] = adjacency.edge_type
    return rearrange(edge_types, "(b n m) -> b n m", b=b, n=n)


def bias_of_edges(edge_bias: Tensor, edge_types: Tensor, graphs: Tensor | None) -> Tensor:
    """The bias [b h n n] of edge types [b n n]; row 0 is for a token with itself, not for pairs outside of a graph."""
    bias = rearrange(bias_of_types(edge_bias, edge_types), "b n m h -> b h n m")
    if graphs is None:
        return bias
    b, n = graphs.shape
    return bias.masked_fill(~dense([_in_one_graph(graphs)], b, n, n, graphs.device), 0.0)
