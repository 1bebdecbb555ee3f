"""Layers of message passing equal PyG's with the same weights, in float64."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

torch_geometric_nn = pytest.importorskip("torch_geometric.nn")

from seqkit.backbones.message_passing import APPNP, GCN, Edges, GINConvolution  # noqa: E402

DIM, NODES = 7, 11
close = {"rtol": 0, "atol": 1e-6}


def graph(num_edge_types=1):
    """Random edges, each pair once, some both ways and some not, some from a node to itself; node 0 has none."""
    g = torch.Generator().manual_seed(0)
    present = torch.rand(NODES, NODES, generator=g) < 0.3
    present[0], present[:, 0] = False, False
    source, target = present.nonzero().T
    assert 0 < (source == target).sum() < NODES - 1
    edge_type = torch.randint(1, num_edge_types + 1, (len(source),), generator=g)
    x = torch.randn(NODES, DIM, generator=g, dtype=torch.float64)
    return x, Edges(source, target, edge_type, torch.zeros(len(source), dtype=torch.bool))


def perturbed(layer):
    layer.double()
    with torch.no_grad():
        for p in layer.parameters():
            p += 0.3 * torch.randn_like(p)
    return layer


def index(edges):
    return torch.stack([edges.source, edges.target])


def mlp(layer):
    """The same two layers as PyG takes them."""
    return nn.Sequential(layer.mlp.up_proj, nn.ReLU(), layer.mlp.down_proj)


def test_gin_equals_ginconv():
    x, edges = graph()
    ours = perturbed(GINConvolution(DIM))
    theirs = torch_geometric_nn.GINConv(mlp(ours), train_eps=True).double()
    theirs.eps.data.fill_(ours.eps.item())
    assert abs(ours.eps.item()) > 1e-2
    assert_close(ours(x, edges), theirs(x, index(edges)), **close)


def test_gin_with_edge_types_equals_gineconv():
    x, edges = graph(num_edge_types=3)
    ours = GINConvolution(DIM)
    ours.add_edge_types(3)
    perturbed(ours)
    theirs = torch_geometric_nn.GINEConv(mlp(ours), train_eps=True).double()
    theirs.eps.data.fill_(ours.eps.item())
    embedding = ours.edge_embedding(edges.edge_type - 1)
    assert_close(ours(x, edges), theirs(x, index(edges), embedding), **close)


def gcn_and_pygs(num_edge_types):
    """A GCN of one layer, PyG's without a weight of its own, and the weights of the edges."""
    x, edges = graph(num_edge_types)
    ours, weight = GCN(DIM, 1), None
    if num_edge_types > 1:
        ours.add_edge_bias(num_edge_types)
        perturbed(ours)
        weight = ours.log_edge_weight.exp()[edges.edge_type - 1]
        assert weight.unique().numel() == num_edge_types
    theirs = torch_geometric_nn.GCNConv(DIM, DIM, bias=False).double()
    theirs.lin.weight.data.copy_(torch.eye(DIM))
    return ours, x, edges, theirs(x, index(edges), weight)


@pytest.mark.parametrize("num_edge_types", [1, 3])
def test_gcn_equals_gcnconv(num_edge_types):
    """With edge types its edge weights are the learned ones."""
    ours, x, edges, right = gcn_and_pygs(num_edge_types)
    assert_close(ours.run(x, edges), right, **close)


def test_gradients_equal_those_of_gcnconv():
    ours, x, edges, right = gcn_and_pygs(3)
    direction = torch.randn(NODES, DIM, dtype=torch.float64)
    expected = torch.autograd.grad(
        (right * direction).sum(), list(ours.parameters()), retain_graph=True
    )
    got = torch.autograd.grad((ours.run(x, edges) * direction).sum(), list(ours.parameters()))
    for a, b in zip(got, expected, strict=True):
        assert_close(a, b, **close)


@pytest.mark.parametrize("num_edge_types", [1, 3])
def test_appnp_equals_pygs_propagation_of_the_mlp(num_edge_types):
    x, edges = graph(num_edge_types)
    ours, weight = APPNP(DIM, num_steps=5, alpha=0.2), None
    if num_edge_types > 1:
        ours.add_edge_bias(num_edge_types)
    perturbed(ours)
    if num_edge_types > 1:
        weight = ours.log_edge_weight.exp()[edges.edge_type - 1]
    z = ours.layers[0](x.relu()).relu()
    theirs = torch_geometric_nn.APPNP(5, 0.2)(z, index(edges), weight)
    assert_close(ours.run(x, edges), theirs, **close)
