"""Adjacency from the edges of a graph: direct neighbours, k hops, or every connected pair by its distance.

n nodes · e edges of the graph · a edges of the adjacency
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Adjacency
from seqkit.tokenizers.settings import check_counts

MAX_EDGES = 2**26
"""An adjacency of more edges than this (a gigabyte of them) is refused: a graph of that size needs a smaller
`max_distance`."""

# up to here a bit table of all pairs (64 MB at most) is faster than sorting them
_BITMAP_NODES = 8192


def num_adjacency_types(num_edge_types: int, max_distance: int | None, max_hops: int) -> int:
    """Number of edge types of an adjacency: one per type of edge in the graph, then one per hop count from 2 on.

    The last hop count, max_hops, stands for "or more". max_distance: most hops between two joined nodes; None: any.
    Raises ValueError on counts below 1.
    """
    check_counts(num_edge_types=num_edge_types, max_distance=max_distance, max_hops=max_hops)
    if max_distance is not None:
        max_hops = min(max_distance, max_hops)
    return num_edge_types + max_hops - 1


def merge_edges(
    edges: Tensor, types: Tensor | None, num_nodes: int, *, directed: bool
) -> tuple[Tensor, Tensor]:
    """Edges without repetition and self-loops (a token always attends to itself), both ways unless directed.

    edges: [2 e] int64 (source, target). types: [e] int64 or None: all 0. Returns both, by (source, target), for the
    edges that stay.
    Raises DataError if edges of different types or features join the same two nodes.
    """
    types = torch.zeros(edges.shape[1], dtype=torch.int64) if types is None else types
    if not directed:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
        types = torch.cat([types, types])
    kept = edges[0] != edges[1]
    keys = (edges[0] * num_nodes + edges[1])[kept]
    types = types[kept]
    unique, place = keys.unique(return_inverse=True)
    merged = torch.zeros_like(unique).scatter_(0, place, types)
    differ = merged[place] != types
    if bool(differ.any()):
        source, target = divmod(int(keys[differ][0]), num_nodes)
        raise DataError(
            f"edges of different types or features join nodes {source} and {target}; merge them into one"
        )
    return torch.stack([unique // num_nodes, unique % num_nodes]), merged


def build_adjacency(
    edges: Tensor,
    types: Tensor,
    num_nodes: int,
    *,
    num_edge_types: int,
    max_distance: int | None,
    max_hops: int,
) -> Adjacency:
    """Adjacency along merged edges: a node attends to those that have an edge, or a short enough path, to it.

    edges: [2 e] int64 (source, target), types [e], as from `merge_edges`. The edge types of the adjacency are 1 + type
    for a direct edge and num_edge_types + h - 1 for a shortest path of h >= 2 edges, h counted up to max_hops. Nodes
    that no path joins, or only one longer than `max_distance`, are not adjacent.
    Raises DataError if the adjacency had more than MAX_EDGES edges.
    """
    source = edges[0]
    target = edges[1]
    edge_type = types + 1
    if max_distance != 1:
        # merged edges come by source; the search needs each target's sources side by side
        order = torch.argsort(target, stable=True)
        source = source[order]
        target = target[order]
        edge_type = edge_type[order]
        distant, hops = _distant_pairs(source.numpy(), target.numpy(), num_nodes, max_distance)
        source, target = (
            torch.cat([near, torch.from_numpy(far)]) for near, far in zip((source, target), distant)
        )
        edge_type = torch.cat(
            [edge_type, num_edge_types - 1 + torch.from_numpy(hops).clamp(max=max_hops)]
        )
    return Adjacency(torch.stack([source, target]), edge_type)


def add_unreachable(adjacency: Adjacency, num_nodes: int, edge_type: int) -> Adjacency:
    """The adjacency with an edge of that type for each pair of two nodes that it lacks. Raises DataError as above."""
    _check_size(num_nodes**2, num_nodes, None)
    lacks = torch.ones(num_nodes, num_nodes, dtype=torch.bool).fill_diagonal_(False)
    lacks[adjacency.edge_index[1], adjacency.edge_index[0]] = False
    target, source = lacks.nonzero().T
    index = torch.cat([adjacency.edge_index, torch.stack([source, target])], dim=1)
    return Adjacency(index, torch.cat([adjacency.edge_type, torch.full_like(source, edge_type)]))


def _distant_pairs(
    source: np.ndarray, target: np.ndarray, n: int, max_distance: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs [2 a] (source, target) two or more hops apart, and how many hops [a]; breadth first from all nodes at once.

    Edges come by target. Never n x n unless n is small: a pair is a number target * n + source, and only adjacent
    pairs are held.
    """
    degree = np.bincount(target, minlength=n)
    start = np.cumsum(degree) - degree
    layer = target * n + source
    seen = np.concatenate([np.arange(n) * (n + 1), layer])
    table = None
    if n <= _BITMAP_NODES:
        table = np.zeros(n * n, bool)
        table[seen] = True
    layers: list[np.ndarray] = []
    hop = 1
    while len(layer) and (max_distance is None or hop < max_distance):
        end = layer // n
        via = layer % n
        width = degree[via]
        total = int(width.sum())
        _check_size(total, n, max_distance)
        # for each pair (via, end) the sources of `via`, one after the other
        offset = np.arange(total) - np.repeat(np.cumsum(width) - width, width)
        found = np.unique(np.repeat(end * n, width) + source[np.repeat(start[via], width) + offset])
        if table is None:
            layer = found[~np.isin(found, seen)]
            seen = np.concatenate([seen, layer])
        else:
            layer = found[~table[found]]
            table[layer] = True
        hop += 1
        layers.append(layer)
        _check_size(sum(map(len, layers)), n, max_distance)
    if not layers:
        return np.zeros((2, 0), np.int64), np.zeros(0, np.int64)
    pairs = np.concatenate(layers)
    hops = np.repeat(np.arange(2, hop + 1), [len(layer) for layer in layers])
    return np.stack([pairs % n, pairs // n]), hops


def _check_size(num_edges: int, n: int, max_distance: int | None) -> None:
    if num_edges > MAX_EDGES:
        raise DataError(
            f"{n} nodes with {max_distance=} get more than {MAX_EDGES:,} edges; use a smaller max_distance and "
            "unreachable=false in ShortestPath, or leave it out"
        )
