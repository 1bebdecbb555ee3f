"""Relabelling law: the order in which a graph's nodes are listed changes nothing, for each encoding and backbone."""

from dataclasses import dataclass
from functools import partial

import networkx
import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import APPNP, GCN, GIN, GPSBlock, Transformer
from seqkit.interfaces import TokenBatch
from seqkit.nn.attention.edge import EdgeAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.raw import GraphData
from seqkit.registry import components
from seqkit.testing import EmbeddedBackbone
from seqkit.tokenizers import Degree, Graph, Laplacian, Molecule, RandomWalk
from seqkit.tokenizers.graph_encodings import GraphEncoding

DIM = 12
# no two nodes of it are alike
SPIDER = networkx.Graph([(0, 1), (0, 2), (2, 3), (0, 4), (4, 5), (5, 6)])
GRAPHS = {
    "spider": SPIDER,
    "two spiders": networkx.disjoint_union(SPIDER, SPIDER),
    "C6": networkx.cycle_graph(6),
    "K4": networkx.complete_graph(4),
    "two triangles": networkx.disjoint_union(networkx.cycle_graph(3), networkx.cycle_graph(3)),
    "no edges": networkx.empty_graph(3),
}
DEGENERATE = {"C6", "K4", "two triangles"}
BACKBONES = {
    "Transformer": partial(Transformer, num_heads=3),
    "EdgeAttention": partial(
        Transformer,
        num_heads=3,
        block=partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=EdgeAttention)),
    ),
    "GPS": partial(
        Transformer,
        num_heads=3,
        block=partial(GPSBlock, attention=partial(MultiHeadAttention, mechanism=EdgeAttention)),
    ),
    "GIN": GIN,
    "GCN": GCN,
    "APPNP": APPNP,
}


def graph_data(graph, directed=False):
    edges = torch.tensor([*graph.edges], dtype=torch.int64).reshape(-1, 2).T
    return GraphData(torch.zeros(len(graph), 0), edges, directed=directed)


def assert_relabelling_changes_nothing(tokenizer, make, graph):
    """Hidden states of the nodes move with them, and those of tokens that are no nodes have the same sum."""
    n = len(graph.nodes)
    torch.manual_seed(0)
    backbone = make(DIM, 2)
    if hasattr(backbone, "add_edge_bias"):
        backbone.add_edge_bias(tokenizer.spec.num_edge_types)
    model = EmbeddedBackbone(tokenizer.spec, backbone).eval().double()
    with torch.inference_mode():
        hidden = model(TokenBatch.collate([tokenizer.encode(graph)]).with_dtype(torch.float64))[0]
        for seed in range(3):
            place = torch.randperm(n, generator=torch.Generator().manual_seed(seed))  # of each node
            nodes = torch.empty_like(graph.nodes)
            nodes[place] = graph.nodes
            after = tokenizer.encode(GraphData(nodes, place[graph.edges], directed=graph.directed))
            got = model(TokenBatch.collate([after]).with_dtype(torch.float64))[0]
            assert_close(
                got[place], hidden[:n], atol=1e-5, rtol=0, msg=lambda m: f"nodes relabelled: {m}"
            )
            assert_close(
                got.sum(0),
                hidden.sum(0),
                atol=1e-4,
                rtol=0,
                msg=lambda m: f"sum after relabelling: {m}",
            )


def graph_tokenizer(encoding, directed=False):
    encodings = [encoding] if isinstance(encoding, Degree) else [Degree(), encoding]
    return Graph(encodings=encodings, directed=directed)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("name", components("graph_encoding"))
def test_no_encoding_depends_on_the_order_of_the_nodes(name, backbone):
    encoding = components("graph_encoding")[name].load()()
    for graph in GRAPHS.keys() - (DEGENERATE if name == "Laplacian" else set()):
        assert_relabelling_changes_nothing(
            graph_tokenizer(encoding), BACKBONES[backbone], graph_data(GRAPHS[graph])
        )
    if name != "Laplacian":
        assert_relabelling_changes_nothing(
            graph_tokenizer(encoding, True),
            BACKBONES[backbone],
            graph_data(networkx.DiGraph(SPIDER), True),
        )


@pytest.mark.parametrize("graph", sorted(DEGENERATE))
def test_eigenvectors_of_a_repeated_eigenvalue_fail_the_law(graph):
    """Known: any rotation of them is as good (`Laplacian` says so)."""
    with pytest.raises(AssertionError, match="relabel"):
        assert_relabelling_changes_nothing(
            graph_tokenizer(Laplacian()), BACKBONES["GIN"], graph_data(GRAPHS[graph])
        )


@pytest.mark.parametrize("name", components("graph_encoding"))
def test_atoms_in_another_order_are_the_same_molecule(name):
    chem = pytest.importorskip("rdkit.Chem")
    molecule = chem.MolFromSmiles("CCCC(C)CC")
    tokenizer = Molecule(encodings=[components("graph_encoding")[name].load()()])
    torch.manual_seed(0)
    model = EmbeddedBackbone(tokenizer.spec, GIN(DIM, 2)).eval()
    order = torch.randperm(
        molecule.GetNumAtoms(), generator=torch.Generator().manual_seed(1)
    ).tolist()
    one, other = (tokenizer.encode(x) for x in (molecule, chem.RenumberAtoms(molecule, order)))
    both = [model(TokenBatch.collate([x]))[0] for x in (one, other)]
    assert_close(both[1][: len(order)], both[0][order], atol=1e-4, rtol=0)


@dataclass(frozen=True)
class UnsortedEigenvectors(Laplacian):
    """Planted: eigenvectors in the order of their entries at the first node."""

    def columns(self, edges, num_nodes, *, directed):
        found = super().columns(edges, num_nodes, directed=directed)
        return found[:, found[0].abs().argsort()]


@dataclass(frozen=True)
class OneColumn(GraphEncoding):
    def width(self, *, directed):
        return 1

    def columns(self, edges, num_nodes, *, directed):
        return self.of(edges, num_nodes).float()[:, None]


class NeighbourOrder(OneColumn):
    """Planted: the degree of the neighbour that is listed first."""

    def of(self, edges, num_nodes):
        degree, first = edges[0].bincount(minlength=num_nodes), torch.arange(num_nodes)
        for source, target in edges.flip(1).T.tolist():
            first[source] = target
        return degree[first]


class DistanceByIndex(OneColumn):
    """Planted: how far the neighbours are in the list."""

    def of(self, edges, num_nodes):
        return torch.zeros(num_nodes).index_add(0, edges[0], (edges[0] - edges[1]).abs().float())


@pytest.mark.parametrize("faulty", [UnsortedEigenvectors, NeighbourOrder, DistanceByIndex])
@pytest.mark.parametrize("backbone", ["Transformer", "GIN"])
def test_the_law_catches_planted_faults(faulty, backbone):
    with pytest.raises(AssertionError, match="relabel"):
        assert_relabelling_changes_nothing(
            graph_tokenizer(faulty()), BACKBONES[backbone], graph_data(SPIDER)
        )


def test_random_walks_tell_apart_what_message_passing_cannot():
    one, other = networkx.disjoint_union(*[networkx.cycle_graph(6)] * 2), networkx.cycle_graph(12)
    torch.manual_seed(0)
    gaps = []
    for encoding in (Degree(), RandomWalk()):
        tokenizer = Graph(encodings=[encoding])
        model = EmbeddedBackbone(tokenizer.spec, GIN(DIM, 3)).eval()
        sums = [
            model(TokenBatch.collate([tokenizer.encode(graph)])).sum(1) for graph in (one, other)
        ]
        gaps.append(float((sums[0] - sums[1]).abs().max().detach()))
    assert gaps[0] < 1e-4
    assert gaps[1] > 1e-2
