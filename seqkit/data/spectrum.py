"""Eigenvectors of a graph as features of its nodes, and whether they help to tell the classes apart.

n nodes · e edges · f features · k eigenvectors or classes
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigsh

MAX_COMPARED = 2_000
"""Most labelled nodes of the regressions that decide: their memory and time grow with its square and cube."""


def eigenvectors(adjacency: sparse.csr_matrix, k: int) -> np.ndarray:
    """Eigenvectors [n k] of the normalised adjacency, from the second largest absolute eigenvalue on, of variance 1.

    The mean degree is added to each degree, without which the first ones are those of small components (regularised
    spectral clustering; Qin and Rohe 2013). The entry of the largest absolute value is positive. Columns beyond n - 2
    are 0. Large negative eigenvalues belong to groups whose nodes link to other groups.
    """
    n = adjacency.shape[0]
    found = np.zeros((n, k), np.float32)
    num = min(k + 1, n - 1)
    if num > 1 and adjacency.nnz:
        degree = np.asarray(adjacency.sum(axis=1)).ravel()
        scale = sparse.diags(1 / np.sqrt(degree + degree.mean()))
        start = np.random.default_rng(0).normal(size=n)  # ARPACK's own start is random
        values, vectors = eigsh(scale @ adjacency @ scale, k=num, which="LM", v0=start)
        vectors = vectors[:, np.argsort(-np.abs(values), kind="stable")[1:]]
        largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(num - 1)]
        found[:, : num - 1] = vectors * np.sign(largest) * np.sqrt(n)
    return found


def help_to_classify(
    vectors: np.ndarray, features: np.ndarray, adjacency: sparse.csr_matrix, label: np.ndarray
) -> bool:
    """Whether eigenvectors [n k] beside features [n f] and their means over neighbours tell more labelled nodes apart.

    label: class of each node [n], below 0 where it is not known. Ridge regressions predict each labelled node from all
    others; the eigenvectors must win by the standard error of the difference.
    """
    nodes = np.flatnonzero(label >= 0)
    nodes = nodes[np.random.default_rng(0).permutation(len(nodes))[:MAX_COMPARED]]
    degree = np.asarray(adjacency.sum(axis=1))[nodes]
    around = (adjacency[nodes] @ features) / np.maximum(degree, 1)
    own = np.concatenate([features[nodes], around, np.log1p(degree)], axis=1)
    right = [_left_out_right(blocks, label[nodes]) for blocks in ([own], [own, vectors[nodes]])]
    differ = int((right[0] != right[1]).sum())
    return differ > 0 and int(right[1].sum()) - int(right[0].sum()) >= differ**0.5


def _left_out_right(blocks: list[np.ndarray], label: np.ndarray) -> np.ndarray:
    """Whether a ridge regression of the others predicts each node's class, with the best of five penalties.

    blocks: features [n f] that weigh the same together, whatever their number. An example that is left out is
    predicted in closed form (Golub, Heath and Wahba 1979, section 2).
    """
    n = len(label)
    kernel = np.zeros((len(label), len(label)))
    for block in blocks:
        centred = block - block.mean(axis=0)
        product = centred @ centred.T
        kernel += product / max(np.trace(product) / n, 1e-9)
    classes = (label[:, None] == np.unique(label)).astype(float)
    share = classes.mean(axis=0)
    found = np.zeros(n, bool)
    for penalty in (0.03, 0.1, 0.3, 1.0, 3.0):
        inverse = np.linalg.inv(kernel + penalty * np.eye(n))
        predicted = classes - (inverse @ (classes - share)) / np.diag(inverse)[:, None]
        right = predicted.argmax(axis=1) == classes.argmax(axis=1)
        found = right if right.sum() > found.sum() else found
    return found
