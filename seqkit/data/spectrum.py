"""Eigenvectors of a graph as features of its nodes.

n nodes · k eigenvectors
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigsh


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
