"""Eigenvectors of a graph equal those of a dense solver; what they are for is tested with `GraphFile`."""

import numpy as np
import pytest

from seqkit.data.spectrum import eigenvectors
from seqkit.tokenizers.graph_encodings import adjacency_of


def random_graph(n=29, seed=0):
    pairs = np.triu(np.random.default_rng(seed).random((n, n)) < 0.2, 1).nonzero()
    return np.stack(pairs)


def test_they_equal_those_of_a_dense_solver():
    n, edges = 29, random_graph()
    dense = np.zeros((n, n))
    dense[edges[0], edges[1]] = dense[edges[1], edges[0]] = 1
    degree = dense.sum(1)
    root = np.sqrt(degree + degree.mean())
    values, vectors = np.linalg.eigh(dense / root[:, None] / root)
    expected = vectors[:, np.argsort(-np.abs(values))[1:6]] * np.sqrt(n)
    got = eigenvectors(adjacency_of(edges, n), 5)
    np.testing.assert_allclose(np.abs(got), np.abs(expected), atol=1e-4)
    assert (got.max(axis=0) >= -got.min(axis=0)).all()


def test_repeated_and_reversed_edges_and_loops_change_nothing():
    n, edges = 29, random_graph()
    more = np.concatenate([edges, edges[::-1], edges[:, :7], np.full((2, 1), 3)], axis=1)
    assert np.array_equal(
        eigenvectors(adjacency_of(edges, n), 4), eigenvectors(adjacency_of(more, n), 4)
    )


@pytest.mark.parametrize(("n", "edges"), [(1, []), (2, [(0, 1)]), (3, []), (4, [(0, 1), (1, 2)])])
def test_what_a_small_graph_lacks_is_zero(n, edges):
    found = eigenvectors(adjacency_of(np.array(edges, np.int64).reshape(-1, 2).T, n), 8)
    assert found.shape == (n, 8)
    assert np.isfinite(found).all()
    assert not found[:, max(0, n - 2) :].any()
