"""Attention along links is attention under the mask of those links, and never makes a tensor of all pairs."""

import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from sizes import Sizes
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.conformance import Reader, check_backbone, laws, made_up
from seqkit.contract import Embedded, Links, TokenSpec
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.edges import Edgewise
from seqkit.layers.mechanism import ScaledDotProduct
from seqkit.layers.position import Rotary
from seqkit.layers.reading import Reading
from seqkit.mask import who_reads_whom

CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["both-ways", "causal"])


def graphs(lengths=(11, 5, 7), share=0.3):
    """valid [b n], random links of one direction with kinds 1 to 3, some of a node to itself."""
    b, n = len(lengths), max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    example, reader, read = ((torch.rand(b, n, n) < share) & valid[:, :, None] & valid[:, None, :]).nonzero().T
    edges = torch.stack([example * n + reader, example * n + read])
    return valid, Links(edges, torch.randint(1, 4, (edges.shape[1],)))


def readings(valid, links, link_bias, causal):
    """The same reading for attention along links and for attention of all pairs."""
    tokens = Embedded(torch.zeros(*valid.shape, 1), torch.zeros(*valid.shape, 0), valid, links, link_bias)
    return [who_reads_whom(tokens, causal=causal, num_heads=4, channels=5, dense=dense) for dense in (False, True)]


def heads(valid, num_kv_heads=4, dtype=torch.float64):
    b, n = valid.shape
    return [torch.randn(b, h, n, 5, dtype=dtype, requires_grad=True) for h in (4, num_kv_heads, num_kv_heads)]


def difference(mechanism, causal=False, num_kv_heads=4):
    """How far values, weights and gradients of `mechanism` are from softmax under a mask of all pairs."""
    valid, links = graphs()
    assert bool((links.edges[0] == links.edges[1]).any())
    bias = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    along, masked = readings(valid, links, bias, causal)
    q, k, v = heads(valid, num_kv_heads)
    real = valid[:, None, :, None]
    dense = ScaledDotProduct(4, 5)
    got, wanted = mechanism(q, k, v, along) * real, dense(q, k, v, masked) * real
    direction = torch.randn_like(got)
    pairs = list(zip(*(torch.autograd.grad((x * direction).sum(), (q, k, v, bias)) for x in (got, wanted))))
    pairs += [(got, wanted), (mechanism.weights(q, k, along) * real, dense.weights(q, k, masked) * real)]
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@CAUSAL
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_values_gradients_and_weights_are_those_of_dense_attention(causal, num_kv_heads):
    assert difference(Edgewise(4, 5), causal, num_kv_heads) < 1e-10


class MistakesKinds(Edgewise):
    def _scores(self, q, k, reading):
        return super()._scores(q, k, replace(reading, link_bias=reading.link_bias.roll(1, dims=0)))


class ReadsItselfTwice(Edgewise):
    def _scores(self, q, k, reading):
        own, along = super()._scores(q, k, reading)
        itself = reading.links.edges[0] == reading.links.edges[1]
        return own, torch.where(itself[:, None, None], own[reading.links.edges[0]], along)


class OneSoftmaxForAll(Edgewise):
    def _scores(self, q, k, reading):
        own, along = super()._scores(q, k, reading)
        return own + own.logsumexp(dim=0), along


@pytest.mark.parametrize("mechanism", [MistakesKinds, ReadsItselfTwice, OneSoftmaxForAll])
def test_dense_attention_notices_one_that(mechanism):
    assert difference(mechanism(4, 5)) > 1e-2


def test_a_node_without_links_reads_itself_alone():
    valid = torch.ones(2, 3, dtype=torch.bool)
    none = Links(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    q, k, v = heads(valid)
    assert_close(Edgewise(4, 5)(q, k, v, Reading(links=none)), v)


def test_a_link_to_padding_is_not_followed():
    valid = torch.tensor([[True, True, False]])
    links = Links(torch.tensor([[0, 0], [1, 2]]), torch.ones(2, dtype=torch.int64))
    q, k, v = heads(valid)
    right = Edgewise(4, 5)(q, k, v, Reading(links=Links(links.edges[:, :1], links.kinds[:1])))
    got = Edgewise(4, 5)(q, k, v, Reading(links=links, read_valid=valid))
    assert_close(got[:, :, :2], right[:, :, :2])


def test_large_scores_do_not_overflow():
    valid, links = graphs()
    along, masked = readings(valid, links, None, causal=False)
    q, k, v = (x.detach() for x in heads(valid, dtype=torch.float32))
    got, right = (m(4, 5)(300 * q, k, v, r) for m, r in ((Edgewise, along), (ScaledDotProduct, masked)))
    assert_close((got * valid[:, None, :, None]), (right * valid[:, None, :, None]), rtol=1e-3, atol=1e-4)


def test_a_hub_of_many_links_is_summed_as_exactly_in_bfloat16():
    n = 4001
    edges = torch.stack([torch.zeros(n - 1, dtype=torch.int64), torch.arange(1, n)])
    reading = Reading(links=Links(edges, torch.ones(n - 1, dtype=torch.int64)))
    q = torch.zeros(1, 1, n, 5, dtype=torch.bfloat16)  # all weights equal
    v = torch.ones_like(q) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).bfloat16()
    read = Edgewise(1, 5)(q, q, v, reading)
    assert read.dtype == torch.bfloat16
    assert_close(read[0, 0, 0], v[0, 0, 0])


def test_dropout_of_weights_acts_while_training_only_and_keeps_the_mean():
    n = 2003
    edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    reading = Reading(links=Links(edges, torch.ones(n, dtype=torch.int64)))
    q, k = torch.randn(2, 1, 3, n, 5)
    edgewise, ones = Edgewise(3, 5, dropout=0.3), torch.ones(1, 3, n, 5)
    read = edgewise(q, k, ones, reading)
    assert read.std() > 0.05
    assert float(read.mean()) == pytest.approx(1.0, abs=0.05)
    assert_close(edgewise.eval()(q, k, ones, reading), ones)


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def transformer(dim, causal, mechanism=Edgewise, **settings):
    attention = partial(Attention, mechanism=mechanism, **settings)
    return Transformer(dim, 2, num_heads=3, causal=causal, block=partial(Block, attention=attention), position=Rotary())


@pytest.mark.parametrize("num_kv_heads", [1, 3])
def test_a_transformer_along_links_keeps_the_laws(num_kv_heads):
    check_backbone(partial(transformer, num_kv_heads=num_kv_heads))


class Tampered(Edgewise):
    """Reads along other links than it is given."""

    keeps_order = True
    change = staticmethod(lambda edges, n: edges)

    def forward(self, q, k, v, reading, memory=None):
        links = Links(self.change(reading.links.edges, q.shape[2]), reading.links.kinds)
        return super().forward(q, k, v, replace(reading, links=links, causal=reading.causal and self.keeps_order))


class ReadsTheFirstExample(Tampered):
    change = staticmethod(lambda edges, n: torch.stack([edges[0], edges[1] % n]))


class ReadsBackwards(Tampered):
    change = staticmethod(lambda edges, n: edges.flip(0))


class ReadsTheMirrorImage(Tampered):
    change = staticmethod(lambda edges, n: torch.stack([edges[0], edges[1] // n * n + n - 1 - edges[1] % n]))


class ReadsAhead(Tampered):
    keeps_order = False


@pytest.mark.parametrize(
    ("mechanism", "law", "causal"),
    [
        (ReadsTheFirstExample, laws.batch_mates_change_nothing, False),
        (ReadsBackwards, laws.reads_along_links, False),
        (ReadsTheMirrorImage, laws.nothing_crosses_components, False),
        (ReadsAhead, laws.no_token_reads_the_future, True),
    ],
)
def test_a_law_notices_attention_that(mechanism, law, causal):
    spec, examples = made_up()["graph"]
    law(Reader(spec, transformer(24, causal, Tampered)), examples)
    with pytest.raises(AssertionError):
        law(Reader(spec, transformer(24, causal, mechanism)), examples)


# ── what it refuses ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_tokens_without_links_are_refused_when_the_model_is_built():
    backbone = transformer(24, False)
    backbone.check(TokenSpec(num_features=3, num_links=1))
    with pytest.raises(ValueError, match="goes along links, and these tokens have none; use the mechanism Scaled"):
        backbone.check(TokenSpec(num_features=3))


def test_tokens_without_links_are_refused_in_forward():
    q, k, v = heads(torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="reads along links, and these tokens have none"):
        Edgewise(4, 5)(q, k, v, Reading())
    with pytest.raises(ValueError, match="reads along links, and these tokens have none"):
        Edgewise(4, 5).weights(q, k, Reading())


def test_it_keeps_no_cache():
    with pytest.raises(ValueError, match="cannot go on step by step"):
        transformer(24, True).init_cache(7)


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_a_dropout_that_is_no_share_is_refused(dropout):
    with pytest.raises(ValueError, match=f"dropout={dropout} is a share of weights"):
        Edgewise(4, 5, dropout=dropout)


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_that_is_made_grows_as_the_links():
    made = []
    for n in (1009, 4036):
        reader = torch.arange(n)
        edges = torch.cat([torch.stack([reader, (reader + step) % n]) for step in (1, 2, 5)], dim=1)
        q, k, v = (torch.randn(1, 4, n, 5, requires_grad=True) for _ in range(3))
        with Sizes() as sizes:
            links = Links(edges, torch.ones(3 * n, dtype=torch.int64))
            Edgewise(4, 5)(q, k, v, Reading(links=links)).sum().backward()
        assert sizes.largest <= 3 * n * 4 * 5
        made.append(sizes.total)
    assert made[1] / made[0] == pytest.approx(4, rel=0.01)


@pytest.mark.slow
def test_a_graph_of_20_000_nodes_and_100_000_edges_trains_under_2_gigabytes():
    """Edges both ways are 200,000 links; two blocks 64 wide, forward and backward; all that the process ever held."""
    script = """
import resource
from functools import partial
import torch
from seqkit.backbones import Transformer
from seqkit.contract import Embedded, Links
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.edges import Edgewise
torch.manual_seed(0)
n, e, dim = 20_000, 100_000, 64
pairs = torch.randint(n * n, (2 * e,))
one, other = pairs // n, pairs % n
pairs = torch.unique(torch.stack([torch.minimum(one, other), torch.maximum(one, other)])[:, one != other], dim=1)
pairs = pairs[:, torch.randperm(pairs.shape[1])[:e]]
links = Links(torch.cat([pairs, pairs.flip(0)], dim=1), torch.ones(2 * e, dtype=torch.int64))
backbone = Transformer(dim, 2, num_heads=4, block=partial(Block, attention=partial(Attention, mechanism=Edgewise)))
bias = torch.zeros(2, 4, requires_grad=True)
valid = torch.ones(1, n, dtype=torch.bool)
hidden = backbone(Embedded(torch.randn(1, n, dim), torch.zeros(1, n, 0), valid, links, bias))
hidden.square().sum().backward()
assert bias.grad.abs().sum() > 0 and len(links) == 2 * e
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert float(done.stdout) < 2.0
