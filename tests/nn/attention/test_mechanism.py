"""Every mechanism's attention weights are those that its output comes from; what masks everything gives zeros."""

import inspect
from functools import partial

import pytest
import torch
from heads import random_heads
from torch.testing import assert_close

from seqkit.backbones import EncoderDecoder, Transformer
from seqkit.interfaces import Adjacency, Embedded
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.context import AttentionContext, attention_context, cross_attention_context
from seqkit.nn.attention.features import ALL_FEATURES, AttentionFeature, check_supported
from seqkit.nn.attention.mechanism import AttentionMechanism, softmax
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.attention.top_k import TopKAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.bias import ALiBi
from seqkit.registry import components
from seqkit.testing import check_backbone

SETTINGS = {
    "k": 3,
    "size": 3,
    "max_tokens": 11,
    "rank": 5,
    "num_features": 13,
    "bucket_size": 4,
    "num_rounds": 2,
}
"""What a mechanism is built with where its constructor requires it, by the parameter's name."""

WITHOUT_WEIGHTS: set[str] = set()
"""Mechanisms that raise ValueError because they have no attention weights."""


def test_a_row_that_is_masked_entirely_gives_zeros_and_finite_gradients():
    scores = torch.randn(3, 5)
    scores[1] = -torch.inf
    scores.requires_grad_()
    weights = softmax(scores)
    assert_close(weights[1], torch.zeros(5))
    assert_close(
        weights[[0, 2]], scores[[0, 2]].exp() / scores[[0, 2]].exp().sum(dim=-1, keepdim=True)
    )
    (weights @ torch.randn(5)).sum().backward()
    assert scores.grad[[0, 2]].abs().min() > 0
    assert_close(scores.grad[1], torch.zeros(5))


@pytest.mark.parametrize("missing", list(AttentionFeature))
def test_a_required_feature_that_is_not_supported_is_refused_by_name(missing):
    check_supported("Plain", ALL_FEATURES, ALL_FEATURES)
    check_supported("Plain", ~missing, ~missing)
    with pytest.raises(ValueError, match=r"^Plain does not support .+"):
        check_supported("Plain", ~missing, missing)


# ── every registered mechanism ───────────────────────────────────────────────────────────────────────────────────────


def build(name):
    """Four heads of six channels in float64, evaluating."""
    mechanism = components("mechanism")[name].load()
    parameters = inspect.signature(mechanism).parameters.values()
    required = [
        p.name
        for p in parameters
        if p.default is p.empty and p.name not in ("num_heads", "head_dim")
    ]
    if unknown := set(required) - set(SETTINGS):
        pytest.fail(
            f"mechanism {name} requires {unknown}, which no test knows; add them to SETTINGS in {__file__}"
        )
    return mechanism(4, 6, **{key: SETTINGS[key] for key in required}).double().eval()


def context(mechanism, required):
    """Seven tokens and five, padded, attended to by heads of six channels with the required features."""
    valid = torch.arange(7) < torch.tensor([[7], [5]])
    positions = torch.arange(7.0).double().expand(2, 7)[..., None]
    if AttentionFeature.CROSS_ATTENTION in required:
        memory = Embedded(torch.zeros(2, 7, 24).double(), positions, valid)
        return cross_attention_context(valid, memory, needs_mask=mechanism.needs_mask)
    adjacency, edge_bias, segments, position = None, None, None, None
    if AttentionFeature.ADJACENCY in required:
        edge_index = torch.tensor([[0, 1, 1, 4, 6, 7, 9, 10], [1, 0, 4, 1, 0, 9, 7, 11]]).flip(0)
        adjacency = Adjacency(edge_index, torch.tensor([1, 1, 2, 2, 1, 2, 1, 1]))
        edge_bias = torch.randn(3, 4).double()
    if AttentionFeature.SEGMENTS in required:
        segments = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1, 1]])
    if AttentionFeature.BIAS in required:
        position = ALiBi()
    return attention_context(
        Embedded(torch.zeros(2, 7, 24).double(), positions, valid, adjacency, segments),
        causal=AttentionFeature.CAUSAL in required,
        num_heads=4,
        head_dim=6,
        position=position,
        edge_bias=edge_bias,
        needs_mask=mechanism.needs_mask,
    )


NONE = AttentionFeature(0)
CASES = [
    direction | others
    for direction in (AttentionFeature.BIDIRECTIONAL, AttentionFeature.CAUSAL)
    for others in (
        NONE,
        AttentionFeature.ADJACENCY,
        AttentionFeature.SEGMENTS,
        AttentionFeature.BIAS,
        AttentionFeature.GROUPED_QUERY,
        AttentionFeature.ADJACENCY | AttentionFeature.BIAS,
    )
] + [
    AttentionFeature.CROSS_ATTENTION,
    AttentionFeature.CROSS_ATTENTION | AttentionFeature.GROUPED_QUERY,
]


@pytest.mark.parametrize("name", sorted(components("mechanism")))
def test_attention_weights_times_values_are_the_output(name):
    mechanism, checked = build(name), 0
    assert isinstance(mechanism, AttentionMechanism)
    for required in CASES:
        if required & ~mechanism.supports:
            continue
        if mechanism.needs_adjacency and AttentionFeature.ADJACENCY not in required:
            continue
        num_kv_heads = 2 if AttentionFeature.GROUPED_QUERY in required else 4
        q, k, v = (x.double() for x in random_heads(4, num_kv_heads, n=7, c=6))
        made = context(mechanism, required)
        if name in WITHOUT_WEIGHTS:
            with pytest.raises(ValueError):
                mechanism.attention_weights(q, k, made)
            return
        with torch.no_grad():
            weights, output = mechanism.attention_weights(q, k, made), mechanism(q, k, v, made)
        assert weights.shape == (2, 4, 7, 7)
        values = v.repeat_interleave(4 // v.shape[1], dim=1)
        for b, length in enumerate((7, 5)):  # padded queries may attend to anything
            fault = f"{required}: weights @ values is not the output"
            assert_close((weights @ values)[b, :, :length], output[b, :, :length], msg=fault)
            assert not weights[b, :, :length, length:].any(), f"{required}: padding is attended to"
        checked += 1
    assert checked, f"none of the cases fits what {name} supports"


def test_the_law_notices_weights_that_are_not_those_of_the_output(monkeypatch):
    even = torch.eye(7).double().expand(2, 4, 7, 7)
    monkeypatch.setattr(
        ScaledDotProductAttention, "attention_weights", lambda self, q, k, context: even
    )
    with pytest.raises(AssertionError, match="BIDIRECTIONAL"):
        test_attention_weights_times_values_are_the_output("ScaledDotProductAttention")


# ── mechanisms that materialise all scores, inside a backbone ────────────────────────────────────────────────────────

DENSE = {"additive": AdditiveAttention, "top-k": partial(TopKAttention, k=5)}
DENSE_MECHANISMS = pytest.mark.parametrize("mechanism", DENSE.values(), ids=DENSE)


def transformer(mechanism, dim, causal, *, cross_attention=False, position=None):
    attention = partial(MultiHeadAttention, mechanism=mechanism)
    block = partial(PreNormBlock, attention=attention, cross_attention=cross_attention)
    return Transformer(dim, 2, num_heads=3, causal=causal, block=block, position=position)


@DENSE_MECHANISMS
@pytest.mark.parametrize(
    ("position", "kinds"),
    [(None, ["text", "graph"]), (ALiBi, ["text"])],
    ids=["none", "ALiBi"],
)
def test_a_backbone_with_other_scores_keeps_the_laws(mechanism, position, kinds):
    check_backbone(
        lambda dim, causal: transformer(mechanism, dim, causal, position=position and position()),
        kinds=kinds,
        quick=True,
    )


@DENSE_MECHANISMS
def test_cross_attention_ignores_padding_of_the_source(mechanism):
    encoder, decoder = (
        transformer(mechanism, 24, False),
        transformer(mechanism, 24, True, cross_attention=True),
    )
    model = EncoderDecoder(encoder, decoder).double().eval()
    valid, source_valid = (
        torch.ones(1, 4, dtype=torch.bool),
        torch.tensor([[True] * 5 + [False] * 2]),
    )
    positions, x = torch.zeros(1, 7, 1).double(), torch.randn(1, 4, 24).double()
    content = torch.randn(1, 7, 24).double() * source_valid[..., None]

    def hidden(m):
        source = Embedded(content[:, :m], positions[:, :m], source_valid[:, :m])
        return model(Embedded(x, positions[:, :4], valid, source=source))

    assert_close(hidden(7), hidden(5))
    assert (hidden(5) - hidden(4)).abs().max() > 1e-6


@DENSE_MECHANISMS
def test_gradients_are_right_and_finite_where_everything_is_masked(mechanism):
    built = mechanism(2, 3).double()
    q, k, v = (x.double().requires_grad_() for x in random_heads(2, 1))
    attn_mask = torch.rand(2, 1, 5, 7) < 0.7
    attn_mask[1, 0, 3] = False
    assert torch.autograd.gradcheck(
        lambda *qkv: built(*qkv, AttentionContext(attn_mask)), (q, k, v)
    )


@DENSE_MECHANISMS
def test_single_precision_is_near_double(mechanism):
    built, qkv = mechanism(4, 3), random_heads(4, 4)
    single = built(*qkv, AttentionContext())
    double = built.double()(*(x.double() for x in qkv), AttentionContext())
    assert_close(single.double(), double, rtol=0, atol=1e-4 * float(double.detach().abs().max()))
