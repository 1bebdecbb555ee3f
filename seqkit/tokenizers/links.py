"""From the edges of a graph to who reads whom: direct neighbours, k hops, or every pair by its distance.

n nodes · e edges · l links · h hops
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqkit.contract import DataError, Links

MAX_LINKS = 2**26
"""More links than this (a gigabyte of them) are refused: a graph of that size wants a smaller reach."""

_BITMAP_NODES = 8192  # up to here a bit table of all pairs (64 MB at most) is faster than sorting them


def num_kinds(num_edge_types: int, reach: int | None, max_hops: int) -> int:
    """How many kinds of link there are: one per type of edge, then one per hop count from 2 on, the last for "or more".

    reach: hops that a link may span; None: any number. Raises ValueError on counts below 1.
    """
    for name, value in (("num_edge_types", num_edge_types), ("reach", reach), ("max_hops", max_hops)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}; it counts something, so make it at least 1")
    return num_edge_types + (max_hops if reach is None else min(reach, max_hops)) - 1


def merge_edges(edges: Tensor, types: Tensor | None, num_nodes: int, *, directed: bool) -> tuple[Tensor, Tensor]:
    """Each edge once: without loops (a token always reads itself), and both ways unless directed.

    edges: [2 e] int64 (source, target). types: [e] int64 or None: all 0. Returns both, sorted, for the edges that stay.
    Raises DataError if edges of different types join the same two nodes.
    """
    types = torch.zeros(edges.shape[1], dtype=torch.int64) if types is None else types
    if not directed:
        edges, types = torch.cat([edges, edges.flip(0)], dim=1), torch.cat([types, types])
    kept = edges[0] != edges[1]
    keys, types = (edges[0] * num_nodes + edges[1])[kept], types[kept]
    unique, place = keys.unique(return_inverse=True)
    merged = torch.zeros_like(unique).scatter_(0, place, types)
    differ = merged[place] != types
    if bool(differ.any()):
        source, target = divmod(int(keys[differ][0]), num_nodes)
        raise DataError(
            f"edges of different types join nodes {source} and {target}; a pair has one kind of link, so merge them "
            "into one type of their own"
        )
    return torch.stack([unique // num_nodes, unique % num_nodes]), merged


def link(
    edges: Tensor, types: Tensor, num_nodes: int, *, num_edge_types: int, reach: int | None, max_hops: int
) -> Links:
    """Links along merged edges: a node reads those that have an edge to it, and, further on, those that reach it.

    edges: [2 e] int64 (source, target), types [e], as from `merge_edges`. Kinds: 1 + type for a direct edge,
    num_edge_types + h - 1 for a shortest path of h >= 2 edges, h counted up to max_hops. Nodes that no path joins,
    or only one longer than `reach`, stay unlinked.
    Raises DataError if there were more than MAX_LINKS links.
    """
    reader, read, kinds = edges[1], edges[0], types + 1
    if reach != 1:
        # edges come sorted by what is read; reading lists are wanted by reader
        order = torch.argsort(reader, stable=True)
        reader, read, kinds = reader[order], read[order], kinds[order]
        further, hops = _further(reader.numpy(), read.numpy(), num_nodes, reach)
        reader, read = (torch.cat([near, torch.from_numpy(far)]) for near, far in zip((reader, read), further))
        kinds = torch.cat([kinds, num_edge_types - 1 + torch.from_numpy(hops).clamp(max=max_hops)])
    return Links(torch.stack([reader, read]), kinds)


def _further(reader: np.ndarray, read: np.ndarray, n: int, reach: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Pairs [2 l] (reader, read) two or more hops apart, and how many hops [l]; breadth first from all nodes at once.

    Never n x n unless n is small: a pair is a number i * n + j, and only pairs that are linked are held.
    """
    degree = np.bincount(reader, minlength=n)
    start = np.cumsum(degree) - degree
    layer = reader * n + read
    seen = np.concatenate([np.arange(n) * (n + 1), layer])
    table = None
    if n <= _BITMAP_NODES:
        table = np.zeros(n * n, bool)
        table[seen] = True
    layers: list[np.ndarray] = []
    hop = 1
    while len(layer) and (reach is None or hop < reach):
        i, via = layer // n, layer % n
        width = degree[via]
        total = int(width.sum())
        _check_size(total, n, reach)
        # for each pair (i, via) the reading list of `via`, one after the other
        offset = np.arange(total) - np.repeat(np.cumsum(width) - width, width)
        found = np.unique(np.repeat(i * n, width) + read[np.repeat(start[via], width) + offset])
        if table is None:
            layer = found[~np.isin(found, seen)]
            seen = np.concatenate([seen, layer])
        else:
            layer = found[~table[found]]
            table[layer] = True
        hop += 1
        layers.append(layer)
        _check_size(sum(map(len, layers)), n, reach)
    if not layers:
        return np.zeros((2, 0), np.int64), np.zeros(0, np.int64)
    pairs = np.concatenate(layers)
    hops = np.repeat(np.arange(2, hop + 1), [len(layer) for layer in layers])
    return np.stack([pairs // n, pairs % n]), hops


def _check_size(num_links: int, n: int, reach: int | None) -> None:
    if num_links > MAX_LINKS:
        raise DataError(
            f"a graph of {n} nodes with reach={reach} has more links to look at ({num_links}) than memory allows "
            f"({MAX_LINKS}); take a smaller reach, such as 1"
        )
