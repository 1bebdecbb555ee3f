"""Attention along edges is attention under the mask of those edges, and never makes a tensor of all pairs."""

import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from sizes import Sizes
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.interfaces import Adjacency, Embedded, TokenSpec
from seqkit.nn.attention.context import AttentionContext, attention_context
from seqkit.nn.attention.edge import EdgeAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary
from seqkit.testing import EmbeddedBackbone, check_backbone, synthetic
from seqkit.testing.laws import (
    attends_along_edges,
    batch_mates_change_nothing,
    no_token_attends_to_the_future,
    nothing_crosses_components,
)

CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


def graphs(lengths=(11, 5, 7), share=0.3):
    """valid [b n], random directed edges of types 1 to 3, some of a node to itself."""
    b, n = len(lengths), max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    example, target, source = (
        ((torch.rand(b, n, n) < share) & valid[:, :, None] & valid[:, None, :]).nonzero().T
    )
    edge_index = torch.stack([example * n + source, example * n + target])
    return valid, Adjacency(edge_index, torch.randint(1, 4, (edge_index.shape[1],)))


def contexts(valid, adjacency, edge_bias, causal):
    """The same context for attention along edges and for attention under a mask of all pairs."""
    tokens = Embedded(torch.zeros(*valid.shape, 1), torch.zeros(*valid.shape, 0), valid, adjacency)
    return [
        attention_context(
            tokens,
            causal=causal,
            num_heads=4,
            head_dim=5,
            edge_bias=edge_bias,
            needs_mask=needs_mask,
        )
        for needs_mask in (False, True)
    ]


def heads(valid, num_kv_heads=4, dtype=torch.float64):
    b, n = valid.shape
    return [
        torch.randn(b, h, n, 5, dtype=dtype, requires_grad=True)
        for h in (4, num_kv_heads, num_kv_heads)
    ]


def difference(mechanism, causal=False, num_kv_heads=4):
    """How far output, weights and gradients of `mechanism` are from softmax under a mask of all pairs."""
    valid, adjacency = graphs()
    assert bool((adjacency.edge_index[0] == adjacency.edge_index[1]).any())
    bias = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    sparse, masked = contexts(valid, adjacency, bias, causal)
    q, k, v = heads(valid, num_kv_heads)
    real = valid[:, None, :, None]
    dense = ScaledDotProductAttention(4, 5)
    got, wanted = mechanism(q, k, v, sparse) * real, dense(q, k, v, masked) * real
    direction = torch.randn_like(got)
    pairs = list(
        zip(*(torch.autograd.grad((x * direction).sum(), (q, k, v, bias)) for x in (got, wanted)))
    )
    pairs += [
        (got, wanted),
        (
            mechanism.attention_weights(q, k, sparse) * real,
            dense.attention_weights(q, k, masked) * real,
        ),
    ]
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@CAUSAL
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_output_gradients_and_weights_are_those_of_dense_attention(causal, num_kv_heads):
    assert difference(EdgeAttention(4, 5), causal, num_kv_heads) < 1e-10


class ConfusesEdgeTypes(EdgeAttention):
    def _scores(self, q, k, context):
        return super()._scores(q, k, replace(context, edge_bias=context.edge_bias.roll(1, dims=0)))


class AttendsToItselfTwice(EdgeAttention):
    def _scores(self, q, k, context):
        own, edge = super()._scores(q, k, context)
        source, target = context.adjacency.edge_index
        return own, torch.where((source == target)[:, None, None], own[target], edge)


class OneSoftmaxForAll(EdgeAttention):
    def _scores(self, q, k, context):
        own, edge = super()._scores(q, k, context)
        return own + own.logsumexp(dim=0), edge


@pytest.mark.parametrize("mechanism", [ConfusesEdgeTypes, AttendsToItselfTwice, OneSoftmaxForAll])
def test_dense_attention_notices_a_mechanism_that(mechanism):
    assert difference(mechanism(4, 5)) > 1e-2


def test_a_node_without_edges_attends_to_itself_alone():
    valid = torch.ones(2, 3, dtype=torch.bool)
    none = Adjacency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    q, k, v = heads(valid)
    assert_close(EdgeAttention(4, 5)(q, k, v, AttentionContext(adjacency=none)), v)


def test_the_target_of_an_edge_attends_to_its_source():
    edge = Adjacency(torch.tensor([[0], [2]]), torch.tensor([1]))
    q, k, _ = heads(torch.ones(1, 3, dtype=torch.bool))
    weights = EdgeAttention(4, 5).attention_weights(q, k, AttentionContext(adjacency=edge))
    assert (weights[0, 0] > 0).tolist() == [
        [True, False, False],
        [False, True, False],
        [True, False, True],
    ]


def test_an_edge_from_padding_is_masked():
    valid = torch.tensor([[True, True, False]])
    adjacency = Adjacency(torch.tensor([[1, 2], [0, 0]]), torch.ones(2, dtype=torch.int64))
    q, k, v = heads(valid)
    right = EdgeAttention(4, 5)(
        q,
        k,
        v,
        AttentionContext(adjacency=Adjacency(adjacency.edge_index[:, :1], adjacency.edge_type[:1])),
    )
    got = EdgeAttention(4, 5)(q, k, v, AttentionContext(adjacency=adjacency, key_valid=valid))
    assert_close(got[:, :, :2], right[:, :, :2])


def test_large_scores_do_not_overflow():
    valid, adjacency = graphs()
    sparse, masked = contexts(valid, adjacency, None, causal=False)
    q, k, v = (x.detach() for x in heads(valid, dtype=torch.float32))
    got, right = (
        m(4, 5)(300 * q, k, v, r)
        for m, r in ((EdgeAttention, sparse), (ScaledDotProductAttention, masked))
    )
    assert_close(
        (got * valid[:, None, :, None]), (right * valid[:, None, :, None]), rtol=1e-3, atol=1e-4
    )


def test_many_edges_to_one_node_are_summed_exactly_in_bfloat16():
    n = 4001
    edge_index = torch.stack([torch.arange(1, n), torch.zeros(n - 1, dtype=torch.int64)])
    context = AttentionContext(
        adjacency=Adjacency(edge_index, torch.ones(n - 1, dtype=torch.int64))
    )
    q = torch.zeros(1, 1, n, 5, dtype=torch.bfloat16)  # all weights equal
    v = torch.ones_like(q) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).bfloat16()
    output = EdgeAttention(1, 5)(q, q, v, context)
    assert output.dtype == torch.bfloat16
    assert_close(output[0, 0, 0], v[0, 0, 0])


def test_dropout_of_attention_weights_acts_while_training_only_and_keeps_the_mean():
    n = 2003
    edge_index = torch.stack([(torch.arange(n) + 1) % n, torch.arange(n)])
    context = AttentionContext(adjacency=Adjacency(edge_index, torch.ones(n, dtype=torch.int64)))
    q, k = torch.randn(2, 1, 3, n, 5)
    mechanism, ones = EdgeAttention(3, 5, dropout=0.3), torch.ones(1, 3, n, 5)
    output = mechanism(q, k, ones, context)
    assert output.std() > 0.05
    assert float(output.mean()) == pytest.approx(1.0, abs=0.05)
    assert_close(mechanism.eval()(q, k, ones, context), ones)


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def transformer(dim, causal, mechanism=EdgeAttention, **settings):
    attention = partial(MultiHeadAttention, mechanism=mechanism, **settings)
    return Transformer(
        dim,
        2,
        num_heads=3,
        causal=causal,
        block=partial(PreNormBlock, attention=attention),
        position=Rotary(),
    )


def test_a_transformer_that_attends_along_edges_keeps_the_laws():
    check_backbone(partial(transformer, num_kv_heads=1), kinds=["graph"], quick=True)


class Tampered(EdgeAttention):
    """Attends along other edges than it is given."""

    keeps_order = True
    change = staticmethod(lambda source, target, n: (source, target))

    def forward(self, q, k, v, context, cache=None):
        edge_index = torch.stack(self.change(*context.adjacency.edge_index, q.shape[2]))
        adjacency = Adjacency(edge_index, context.adjacency.edge_type)
        is_causal = context.is_causal and self.keeps_order
        return super().forward(q, k, v, replace(context, adjacency=adjacency, is_causal=is_causal))


class AttendsToTheFirstExample(Tampered):
    change = staticmethod(lambda source, target, n: (source % n, target))


class AttendsBackwards(Tampered):
    change = staticmethod(lambda source, target, n: (target, source))


class AttendsToTheMirrorImage(Tampered):
    change = staticmethod(lambda source, target, n: (source // n * n + n - 1 - source % n, target))


class AttendsAhead(Tampered):
    keeps_order = False


@pytest.mark.parametrize(
    ("mechanism", "law", "causal"),
    [
        (AttendsToTheFirstExample, batch_mates_change_nothing, False),
        (AttendsBackwards, attends_along_edges, False),
        (AttendsToTheMirrorImage, nothing_crosses_components, False),
        (AttendsAhead, no_token_attends_to_the_future, True),
    ],
)
def test_a_law_notices_attention_that(mechanism, law, causal):
    spec, examples = synthetic()["graph"]
    law(EmbeddedBackbone(spec, transformer(24, causal, Tampered)), examples)
    with pytest.raises(AssertionError):
        law(EmbeddedBackbone(spec, transformer(24, causal, mechanism)), examples)


# ── what it refuses ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_tokens_without_adjacency_are_refused_when_the_model_is_built():
    backbone = transformer(24, False)
    backbone.check_supported(TokenSpec(num_features=3, num_edge_types=1))
    with pytest.raises(ValueError, match="along edges"):
        backbone.check_supported(TokenSpec(num_features=3))


def test_tokens_without_adjacency_are_refused_in_forward():
    q, k, v = heads(torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="EdgeAttention"):
        EdgeAttention(4, 5)(q, k, v, AttentionContext())
    with pytest.raises(ValueError, match="EdgeAttention"):
        EdgeAttention(4, 5).attention_weights(q, k, AttentionContext())


def test_it_has_no_cache():
    with pytest.raises(ValueError, match="no cache"):
        transformer(24, True).init_cache(7)


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_a_dropout_that_is_no_probability_is_refused(dropout):
    with pytest.raises(ValueError, match=f"dropout={dropout}"):
        EdgeAttention(4, 5, dropout=dropout)


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_sum_of_all_tensors_grows_linearly_with_the_edges():
    totals = []
    for n in (1009, 4036):
        target = torch.arange(n)
        edge_index = torch.cat(
            [torch.stack([(target + step) % n, target]) for step in (1, 2, 5)], dim=1
        )
        q, k, v = (torch.randn(1, 4, n, 5, requires_grad=True) for _ in range(3))
        with Sizes() as sizes:
            adjacency = Adjacency(edge_index, torch.ones(3 * n, dtype=torch.int64))
            EdgeAttention(4, 5)(q, k, v, AttentionContext(adjacency=adjacency)).sum().backward()
        assert sizes.largest <= 3 * n * 4 * 5
        totals.append(sizes.total)
    assert totals[1] / totals[0] == pytest.approx(4, rel=0.01)


@pytest.mark.slow
def test_a_graph_of_20_000_nodes_and_100_000_edges_trains_under_2_gigabytes():
    """Listed both ways, 200,000 edges; two blocks of width 64, forward and backward; peak memory of the process."""
    script = """
from functools import partial
from pathlib import Path
import torch
from seqkit.backbones import Transformer
from seqkit.interfaces import Adjacency, Embedded
from seqkit.nn.attention.edge import EdgeAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
torch.manual_seed(0)
n, e, dim = 20_000, 100_000, 64
pairs = torch.randint(n * n, (2 * e,))
one, other = pairs // n, pairs % n
pairs = torch.unique(torch.stack([torch.minimum(one, other), torch.maximum(one, other)])[:, one != other], dim=1)
pairs = pairs[:, torch.randperm(pairs.shape[1])[:e]]
adjacency = Adjacency(torch.cat([pairs, pairs.flip(0)], dim=1), torch.ones(2 * e, dtype=torch.int64))
attention = partial(MultiHeadAttention, mechanism=EdgeAttention)
backbone = Transformer(dim, 2, num_heads=4, block=partial(PreNormBlock, attention=attention))
backbone.add_edge_bias(1)
valid = torch.ones(1, n, dtype=torch.bool)
hidden = backbone(Embedded(torch.randn(1, n, dim), torch.zeros(1, n, 0), valid, adjacency))
hidden.square().sum().backward()
assert backbone.edge_biases["4"].weight.grad.abs().sum() > 0 and len(adjacency) == 2 * e
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) < 2 * 2**20, (
        "kilobytes; not ru_maxrss, which a process takes over from its parent"
    )
