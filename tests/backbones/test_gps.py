"""GPS block: the sum of its branches, on the right edges, with the laws of every backbone; it refuses the rest."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import GPSBlock, Transformer
from seqkit.backbones.message_passing import edges_of
from seqkit.interfaces import Adjacency, Embedded, TokenSpec
from seqkit.nn.attention.context import attention_context
from seqkit.nn.attention.edge import EdgeAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.raw import GraphData
from seqkit.testing import check_backbone, check_embedded_backbone
from seqkit.tokenizers import Degree, Graph, Molecule, RandomWalk, ShortestPath

DIM, HEADS = 12, 3
ALONG_EDGES = partial(GPSBlock, attention=partial(MultiHeadAttention, mechanism=EdgeAttention))


def gps(dim, causal=False, block=GPSBlock, **settings):
    return Transformer(dim, 2, num_heads=HEADS, causal=causal, block=partial(block, **settings))


@pytest.mark.parametrize("block", [partial(GPSBlock, max_edge_type=1), ALONG_EDGES])
def test_it_keeps_the_laws_on_synthetic_graphs(block):
    check_backbone(partial(gps, block=block), dim=DIM, causal=[False], kinds=["graph"])


def test_attention_goes_beyond_neighbours_or_the_model_is_not_built():
    path = GraphData(torch.zeros(6, 0), torch.stack([torch.arange(5), torch.arange(1, 6)]))
    local, all_pairs = (
        Graph(encodings=[Degree()]),
        Graph(encodings=[Degree(), ShortestPath(max_hops=5)]),
    )
    with pytest.raises(ValueError, match="attention sees neighbours alone; give it max_edge"):
        gps(DIM).add_edge_bias(local.spec.num_edge_types)
    with pytest.raises(ValueError, match="attention sees neighbours alone"):
        gps(DIM, max_edge_type=1).add_edge_bias(local.spec.num_edge_types)
    model = gps(DIM, max_edge_type=1)
    model.add_edge_bias(all_pairs.spec.num_edge_types)
    tokens = all_pairs.encode(path)
    hidden = torch.randn(1, 6, DIM, requires_grad=True)
    valid = torch.ones(1, 6, dtype=torch.bool)
    x = Embedded(hidden, tokens.positions[None], valid, tokens.adjacency)
    (model(x)[0, 0] @ torch.randn(DIM)).backward()
    assert bool((hidden.grad[0].abs().sum(dim=-1) > 0).all())


def test_it_keeps_the_laws_on_molecules():
    tokenizer = Molecule()
    examples = [tokenizer.encode(smiles) for smiles in ("CC(=O)O", "c1ccccc1O", "[Na+].[Cl-]")]
    check_embedded_backbone(tokenizer.spec, gps(DIM, max_edge_type=5), examples)


def embedded():
    g = torch.Generator().manual_seed(0)
    adjacency = Adjacency(
        torch.tensor([[0, 1, 1, 2, 5], [1, 0, 2, 1, 6]]), torch.tensor([1, 1, 2, 2, 3])
    )
    valid = torch.tensor([[True] * 4, [True, True, True, False]])
    hidden = torch.randn(2, 4, DIM, generator=g).masked_fill(~valid[..., None], 0.0)
    return Embedded(hidden, torch.zeros(2, 4, 0), valid, adjacency)


@pytest.mark.parametrize("max_edge_type", [None, 1, 2])
def test_it_is_the_sum_of_attention_and_messages_and_then_an_mlp(max_edge_type):
    block, x = GPSBlock(DIM, HEADS, max_edge_type=max_edge_type), embedded()
    block.convolution.add_edge_types(3)
    context = attention_context(x, causal=False, num_heads=HEADS, head_dim=DIM // HEADS)
    y = block.attention_norm(x.hidden)
    messages = block.convolution(
        y.flatten(0, 1), edges_of(x.adjacency, x.valid, max_edge_type)
    ).reshape(y.shape)
    z = x.hidden + block.attention(y, context) + messages
    assert_close(block(x.hidden, context), z + block.mlp(block.mlp_norm(z)))


def test_messages_go_along_edges_up_to_the_last_type():
    x, block = embedded(), GPSBlock(DIM, HEADS, max_edge_type=2)
    edges = edges_of(x.adjacency, x.valid, block.max_edge_type)
    assert edges.masked.tolist() == [False, False, False, False, True]


def test_the_gradient_reaches_every_parameter():
    tokenizer, model = Molecule(), gps(DIM, max_edge_type=5)
    model.add_edge_bias(tokenizer.spec.num_edge_types)
    x = embedded()
    (model(x) * torch.randn(2, 4, DIM)).sum().backward()
    unused = {name for name, p in model.named_parameters() if p.grad is None}
    assert not unused


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda: gps(DIM, causal=True), "does not support causal"),
        (lambda: gps(DIM, causal=None), "does not support causal"),
        (lambda: gps(DIM).check_supported(TokenSpec(vocab_size=7)), "no adjacency"),
        (lambda: GPSBlock(DIM, HEADS, max_edge_type=0), "max_edge_type=0"),
        (lambda: gps(DIM, max_edge_type=6).add_edge_bias(5), "edge types 1 to 5"),
    ],
)
def test_wrong_use_is_refused(use, reason):
    with pytest.raises(ValueError, match=reason):
        use()


def test_it_takes_what_graph_encodings_give():
    tokenizer = Graph(encodings=[Degree(), RandomWalk(5)])
    gps(DIM, block=ALONG_EDGES).check_supported(tokenizer.spec)
