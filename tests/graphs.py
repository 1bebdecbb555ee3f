"""Graphs of tests, from nodes as a number, a list or a tensor, and from pairs of them."""

import torch

from seqkit.raw import GraphData


def graph_of(nodes, pairs=(), directed=False):
    nodes = torch.zeros(nodes, 0) if isinstance(nodes, int) else torch.as_tensor(nodes)
    return GraphData(
        nodes, torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T, directed=directed
    )
