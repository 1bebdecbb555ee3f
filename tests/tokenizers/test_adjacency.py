"""Adjacency from edges: edge types are networkx's shortest-path lengths, and large graphs never become n x n."""

import tracemalloc

import networkx as nx
import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from seqkit.errors import DataError
from seqkit.tokenizers import adjacency as adjacency_module
from seqkit.tokenizers.adjacency import build_adjacency, merge_edges, num_adjacency_types


def edges_of(graph):
    return torch.tensor(list(graph.edges), dtype=torch.int64).reshape(-1, 2).T.contiguous()


def edge_types(adjacency):
    """{(source, target): edge type}, each pair once."""
    found = {
        (i, j): k for i, j, k in zip(*adjacency.edge_index.tolist(), adjacency.edge_type.tolist())
    }
    assert len(found) == len(adjacency)
    return found


@pytest.mark.parametrize("bitmap_nodes", [8192, 0], ids=["bitmap", "sorted"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(
    ("max_distance", "max_hops"), [(1, 7), (2, 7), (3, 2), (None, 3), (None, 11), (5, 1)]
)
def test_edge_types_are_shortest_path_lengths(
    monkeypatch, bitmap_nodes, directed, max_distance, max_hops
):
    monkeypatch.setattr(adjacency_module, "_BITMAP_NODES", bitmap_nodes)
    for seed in range(5):
        # falls into several components
        graph = nx.gnp_random_graph(17, 0.09, seed=seed, directed=directed)
        edges, types = merge_edges(edges_of(graph), None, 17, directed=directed)
        got = edge_types(
            build_adjacency(
                edges, types, 17, num_edge_types=1, max_distance=max_distance, max_hops=max_hops
            )
        )
        expected = {
            (source, target): min(hops, max_hops)
            for source, lengths in nx.all_pairs_shortest_path_length(graph)
            for target, hops in lengths.items()
            if hops > 0 and (max_distance is None or hops <= max_distance)
        }
        assert got == expected
        assert max(got.values()) <= num_adjacency_types(1, max_distance, max_hops)


def test_direct_edges_keep_their_type_and_hops_count_on_from_there():
    edges, types = merge_edges(
        torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([2, 0, 1]), 4, directed=True
    )
    got = edge_types(
        build_adjacency(edges, types, 4, num_edge_types=3, max_distance=None, max_hops=5)
    )
    assert got == {(0, 1): 3, (1, 2): 1, (2, 3): 2, (0, 2): 4, (1, 3): 4, (0, 3): 5}


def test_edges_are_merged_without_self_loops_and_both_ways_unless_directed():
    edges, types = torch.tensor([[1, 0, 2, 2, 1], [0, 1, 2, 1, 0]]), torch.tensor([1, 1, 0, 0, 1])
    both, both_types = merge_edges(edges, types, 3, directed=False)
    assert_close(both, torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    assert_close(both_types, torch.tensor([1, 1, 0, 0]))
    one, one_types = merge_edges(edges, types, 3, directed=True)
    assert_close(one, torch.tensor([[0, 1, 2], [1, 0, 1]]))
    assert_close(one_types, torch.tensor([1, 1, 0]))


@pytest.mark.parametrize("types", [[0, 1], [1, 0]])
def test_one_pair_with_two_types_is_refused(types):
    with pytest.raises(DataError, match="different types or features join nodes"):
        merge_edges(torch.tensor([[3, 4], [4, 3]]), torch.tensor(types), 5, directed=False)


@pytest.mark.parametrize("max_distance", [2, None])
def test_edges_of_each_hop_count_come_sorted_by_target_and_then_by_source(max_distance):
    edges, types = merge_edges(
        edges_of(nx.gnp_random_graph(17, 0.09, seed=1)), None, 17, directed=False
    )
    adjacency = build_adjacency(
        edges, types, 17, num_edge_types=1, max_distance=max_distance, max_hops=17
    )
    source, target = adjacency.edge_index
    keys = [*zip(adjacency.edge_type.tolist(), target.tolist(), source.tolist())]
    assert keys == sorted(keys)


@pytest.mark.parametrize("max_distance", [1, 3, None])
def test_no_edges_are_an_empty_adjacency(max_distance):
    edges, types = merge_edges(torch.zeros(2, 0, dtype=torch.int64), None, 3, directed=False)
    assert (
        len(
            build_adjacency(
                edges, types, 3, num_edge_types=1, max_distance=max_distance, max_hops=2
            )
        )
        == 0
    )


class Largest(TorchDispatchMode):
    """How many elements the largest tensor has that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.numel = max(
            [
                self.numel,
                *(
                    x.numel()
                    for x in torch.utils._pytree.tree_leaves(out)
                    if isinstance(x, torch.Tensor)
                ),
            ]
        )
        return out


@pytest.mark.parametrize("max_distance", [1, 3])
def test_a_graph_of_20000_nodes_never_becomes_n_by_n(max_distance):
    def ring(n):
        edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
        edges, types = merge_edges(edges, None, n, directed=False)
        return build_adjacency(
            edges, types, n, num_edge_types=1, max_distance=max_distance, max_hops=8
        )

    with Largest():
        ring(11)  # what torch imports on first use is not to be counted
    n = 20_011
    tracemalloc.start()
    with Largest() as largest:
        adjacency = ring(n)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(adjacency) == 2 * max_distance * n
    assert n < largest.numel <= 4 * len(adjacency)
    assert peak_bytes < n * n / 20


def test_more_edges_than_memory_holds_are_refused():
    star = torch.stack([torch.zeros(9999, dtype=torch.int64), torch.arange(1, 10_000)])
    edges, types = merge_edges(star, None, 10_000, directed=False)
    with pytest.raises(DataError, match="use a smaller max_distance"):
        build_adjacency(edges, types, 10_000, num_edge_types=1, max_distance=2, max_hops=8)


@pytest.mark.parametrize(
    ("counts", "name"),
    [((0, 1, 1), "num_edge_types"), ((1, 0, 1), "max_distance"), ((1, None, 0), "max_hops")],
)
def test_counts_below_one_are_refused(counts, name):
    with pytest.raises(ValueError, match=f"{name}=0"):
        num_adjacency_types(*counts)
