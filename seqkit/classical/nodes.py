"""Features of the nodes of a graph: their own, those of neighbours, classes of training neighbours, eigenvectors.

n nodes · f features · k classes
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from seqkit.raw import GraphData

NUM_PARTS = 10
"""Parts of the training nodes; a node's features hold the classes of the nodes in other parts alone."""

NUM_STEPS = 20
"""Steps over which classes are propagated."""

STAYS = 0.15
"""Share of a walk that begins anew at each step, as in personalised PageRank."""


class NodeFeatures(NamedTuple):
    """Features [n f] of all nodes. own: of a node and its neighbours, sparse. votes: classes of training nodes one and
    two steps away, and of all by random walks. place: eigenvectors of the normalized adjacency, and log degree."""

    own: Any
    votes: np.ndarray
    place: np.ndarray


def node_features(graph: GraphData, fitted: np.ndarray, target: Tensor) -> NodeFeatures:
    """Features of all nodes. fitted: nodes whose class is read from target [n]; their own class is not among theirs."""
    from scipy import sparse

    n = len(graph.nodes)
    start, end = graph.edges[:, graph.edges[0] != graph.edges[1]].numpy()
    both_ways = (np.r_[start, end], np.r_[end, start])
    adjacency = sparse.coo_array((np.ones(2 * len(start)), both_ways), (n, n)).tocsr() > 0
    own = graph.nodes.numpy()  # features [n f], or an id of each node [n]
    if own.ndim == 1:
        own = sparse.eye_array(own.max() + 1).tocsr()[own]
    degree = np.maximum(adjacency.sum(axis=1), 1)
    mean = (sparse.diags_array(1 / degree) @ adjacency).tocsr()
    scale = sparse.diags_array(degree**-0.5)
    even = (scale @ adjacency @ scale).tocsr()
    if n > 9:
        # of ones, which regular graphs have as an eigenvector, SciPy 1.17 would draw others that no seed decides
        start = np.random.default_rng(0).normal(size=n)
        vectors = sparse.linalg.eigsh(even, 8, v0=start)[1]
    else:
        vectors = np.zeros((n, 8))
    own = sparse.csr_array(own)
    near = mean @ own
    place = np.column_stack([np.sqrt(n) * vectors, np.log(degree)])
    return NodeFeatures(
        sparse.hstack([own, near, mean @ near]).tocsr(),
        _votes(mean, even, fitted, target),
        place,
    )


def _votes(mean: Any, even: Any, fitted: np.ndarray, target: Tensor) -> np.ndarray:
    """Shares of classes one and two steps away and by random walks, [n 3k], from nodes of other parts alone."""
    num_classes = int(target[fitted].max()) + 1
    part = np.full(len(target), -1)
    part[fitted] = np.random.default_rng(0).permutation(len(fitted)) % NUM_PARTS
    found = np.zeros((len(target), 3 * num_classes))
    for i in range(-1, NUM_PARTS):
        given = fitted[part[fitted] != i]
        classes = np.zeros((len(target), num_classes))
        classes[given, target[given]] = 1
        near = mean @ classes
        even_classes = classes / np.maximum(classes.sum(axis=0), 1)
        walked = even_classes
        for _ in range(NUM_STEPS):
            walked = (1 - STAYS) * (even @ walked) + STAYS * even_classes
        walked = walked / np.maximum(walked.sum(axis=1, keepdims=True), 1e-12)
        own = part == i
        found[own] = np.hstack([near, mean @ near, walked])[own]
    return found
