"""Multi-head attention equals its formula written out, whatever is masked and rotated; so it does with a cache."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.bias import T5Bias
from seqkit.nn.position.rotary import Rotary
from seqkit.testing import check_backbone


def written_out(attention, x, attn_mask=None, rotary=None):
    """softmax(q k / sqrt(c)) v, token by token and head by head, in Python. rotary: [n r] complex."""
    heads, c, norms_all = attention.num_heads, attention.head_dim, not attention.norms_heads
    q, k, v = (x @ attention.qkv_proj.weight.T + attention.qkv_proj.bias).split(heads * c, dim=-1)
    if attention.query_norm is not None and norms_all:
        q, k = attention.query_norm(q), attention.key_norm(k)
    output = torch.zeros_like(q)
    for h in range(heads):
        at = slice(h * c, (h + 1) * c)
        queries, keys = q[:, at], k[:, at]
        if attention.query_norm is not None and not norms_all:
            queries, keys = attention.query_norm(queries), attention.key_norm(keys)
        if rotary is not None:
            queries, keys = (rotated(vectors, rotary) for vectors in (queries, keys))
        for i in range(len(x)):
            scores = [float(queries[i] @ key) / math.sqrt(c) for key in keys]
            weights = [
                math.exp(s) if attn_mask is None or attn_mask[i, j] else 0.0
                for j, s in enumerate(scores)
            ]
            output[i, at] = sum(w / sum(weights) * v[j, at] for j, w in enumerate(weights))
    return output @ attention.out_proj.weight.T + (
        0.0 if attention.out_proj.bias is None else attention.out_proj.bias
    )


def rotated(vectors, rotary):
    """RoFormer, section 3.2: pairs of channels as complex numbers, times exp(i angle)."""
    result = vectors.clone()
    for t in range(len(vectors)):
        for i in range(rotary.shape[1]):
            z = complex(*vectors[t, 2 * i : 2 * i + 2].tolist()) * complex(rotary[t, i])
            result[t, 2 * i], result[t, 2 * i + 1] = z.real, z.imag
    return result


@pytest.fixture
def x():
    return torch.randn(2, 5, 21)


def shaken(attention):
    """Norms too, which start as ones, where a wrong width or order would not be noticed."""
    for norm in (attention.query_norm, attention.key_norm):
        for p in [] if norm is None else norm.parameters():
            nn.init.normal_(p)
    return attention


@pytest.mark.parametrize("qk_norm_level", ["head", "all"])
@pytest.mark.parametrize("qk_norm", [None, nn.RMSNorm, nn.LayerNorm])
@pytest.mark.parametrize(("num_heads", "head_dim"), [(3, None), (3, 5), (3, 11), (4, 7)])
def test_attention_equals_its_formula(x, qk_norm, qk_norm_level, num_heads, head_dim):
    attention = shaken(
        MultiHeadAttention(
            21, num_heads, head_dim=head_dim, qk_norm=qk_norm, qk_norm_level=qk_norm_level
        )
    )
    assert attention.head_dim == (head_dim or 7)
    with torch.no_grad():
        for i in range(2):
            assert_close(attention(x, AttentionContext())[i], written_out(attention, x[i]))


def test_a_masked_token_is_not_attended_to(x):
    attention = MultiHeadAttention(21, 3)
    attn_mask = torch.rand(5, 5) < 0.5
    attn_mask |= torch.eye(5, dtype=torch.bool)
    with torch.no_grad():
        right = written_out(attention, x[0], attn_mask)
        assert_close(attention(x, AttentionContext(attn_mask[None, None]))[0], right)
        bias = torch.zeros(5, 5).masked_fill(~attn_mask, -torch.inf)
        assert_close(attention(x, AttentionContext(bias[None, None]))[0], right)


def test_causal_attention_attends_to_the_past_only(x):
    attention = MultiHeadAttention(21, 3)
    with torch.no_grad():
        triangle = torch.ones(5, 5, dtype=torch.bool).tril()
        assert_close(
            attention(x, AttentionContext(is_causal=True))[0],
            written_out(attention, x[0], triangle),
        )


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_queries_and_keys_are_rotated_by_position(x, num_axes):
    attention = MultiHeadAttention(21, 3)
    rotary = Rotary(base=7.0).rotary(torch.randn(2, 5, num_axes), 7)
    with torch.no_grad():
        got = attention(x, AttentionContext(rotary=rotary))
        for i in range(2):
            assert_close(got[i], written_out(attention, x[i], rotary=rotary[i, 0]))
        assert (got - attention(x, AttentionContext())).abs().max() > 1e-4


def test_without_bias_there_is_none():
    assert {name for name, _ in MultiHeadAttention(21, 3, bias=False).named_parameters()} == {
        "qkv_proj.weight",
        "out_proj.weight",
    }


def test_the_output_may_have_another_bias_than_queries_keys_and_values(x):
    without = MultiHeadAttention(21, 3, out_bias=False)
    nn.init.normal_(without.qkv_proj.bias)
    assert [name for name, _ in without.named_parameters()] == [
        "qkv_proj.weight",
        "qkv_proj.bias",
        "out_proj.weight",
    ]
    with torch.no_grad():
        assert_close(without(x, AttentionContext())[0], written_out(without, x[0]))
    alone = MultiHeadAttention(21, 3, bias=False, out_bias=True)
    assert [name for name, _ in alone.named_parameters()] == [
        "qkv_proj.weight",
        "out_proj.weight",
        "out_proj.bias",
    ]


@pytest.mark.parametrize("level", ["head", "all"])
def test_queries_and_keys_are_normalised_to_the_width_of_their_level(level):
    attention = MultiHeadAttention(
        21, 6, head_dim=5, num_kv_heads=2, qk_norm=nn.RMSNorm, qk_norm_level=level
    )
    widths = (attention.query_norm.weight.shape, attention.key_norm.weight.shape)
    assert widths == (((5,), (5,)) if level == "head" else ((30,), (10,)))


def test_dropout_of_attention_weights_acts_while_training_only(x):
    attention = MultiHeadAttention(21, 3, mechanism=partial(ScaledDotProductAttention, dropout=0.5))
    assert not torch.equal(attention(x, AttentionContext()), attention(x, AttentionContext()))
    attention.eval()
    assert_close(attention(x, AttentionContext()), attention(x, AttentionContext()))


def test_a_width_that_does_not_split_is_refused():
    with pytest.raises(ValueError, match=r"dim=21.*num_heads=4"):
        MultiHeadAttention(21, 4)


@pytest.mark.parametrize(
    ("dim", "num_heads", "message"),
    [(21, 0, "num_heads=0; make it 1"), (21, -3, "num_heads=-3"), (0, 3, "dim=0; make it 1")],
)
def test_no_heads_and_no_width_are_refused(dim, num_heads, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(dim, num_heads)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head_dim": 0}, "head_dim=0"),
        ({"qk_norm_level": "both"}, "qk_norm_level"),
        ({"output_gate": "G1"}, "output_gate='G1'; it is one of 'elementwise', 'headwise'"),
    ],
)
def test_heads_without_width_and_an_unknown_level_or_gate_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(21, 3, **settings)


def repeated(attention):
    """The same attention with a key and value head for every query head."""
    heads, kv_heads, c = attention.num_heads, attention.num_kv_heads, attention.head_dim
    full = MultiHeadAttention(attention.qkv_proj.in_features, heads, head_dim=c)
    with torch.no_grad():
        for name in ("weight", "bias"):
            q, k, v = attention.qkv_proj.get_parameter(name).split(
                [heads * c, kv_heads * c, kv_heads * c]
            )
            k, v = (
                torch.cat([x[h * kv_heads // heads * c :][:c] for h in range(heads)])
                for x in (k, v)
            )
            full.qkv_proj.get_parameter(name).copy_(torch.cat([q, k, v]))
        full.out_proj.load_state_dict(attention.out_proj.state_dict())
    return full


@pytest.mark.parametrize("dim", [30, 17])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 3])
def test_grouped_query_attention_is_the_same_weights_repeated(num_kv_heads, dim):
    attention = MultiHeadAttention(dim, 6, head_dim=5, num_kv_heads=num_kv_heads)
    x = torch.randn(2, 5, dim)
    attn_mask = (torch.rand(2, 1, 5, 5) < 0.5) | torch.eye(5, dtype=torch.bool)
    rotary = Rotary(base=7.0).rotary(torch.randn(2, 5, 1), 5)
    for context in (
        AttentionContext(),
        AttentionContext(is_causal=True),
        AttentionContext(attn_mask),
        AttentionContext(rotary=rotary),
    ):
        assert_close(attention(x, context), repeated(attention)(x, context))
    assert attention.qkv_proj.out_features == 30 + 2 * num_kv_heads * 5


@pytest.mark.parametrize("level", ["head", "all"])
@pytest.mark.parametrize("dim", [30, 17])
def test_shared_keys_and_values_are_cached_once(dim, level):
    attention = shaken(
        MultiHeadAttention(
            dim, 6, head_dim=5, num_kv_heads=2, qk_norm=nn.RMSNorm, qk_norm_level=level
        )
    )
    x = torch.randn(2, 5, dim)
    cache = attention.init_cache(5)
    with torch.no_grad():
        steps = [
            attention(x[:, at], AttentionContext(is_causal=at.start == 0), cache)
            for at in (slice(0, 4), slice(4, 5))
        ]
        assert_close(torch.cat(steps, dim=1), attention(x, AttentionContext(is_causal=True)))
    assert cache.self_attention.keys.shape == (2, 2, 5, 5)


@pytest.mark.parametrize("num_kv_heads", [0, 4, 12])
def test_key_value_heads_that_do_not_divide_the_heads_are_refused(num_kv_heads):
    with pytest.raises(ValueError, match=f"num_kv_heads={num_kv_heads}"):
        MultiHeadAttention(30, 6, num_kv_heads=num_kv_heads)


def torchs(attention):
    """Torch's attention with the weights of a layer for self-attention."""
    theirs = nn.MultiheadAttention(
        attention.out_proj.in_features, attention.num_heads, batch_first=True
    )
    theirs.in_proj_weight, theirs.in_proj_bias = attention.qkv_proj.weight, attention.qkv_proj.bias
    theirs.out_proj = attention.out_proj
    return theirs


def test_cross_attention_is_torchs(x):
    attention, memory = MultiHeadAttention(21, 3), torch.randn(2, 7, 21)
    nn.init.normal_(attention.qkv_proj.bias)
    valid = torch.arange(7) < torch.tensor([[7], [3]])
    right, _ = torchs(attention)(x, memory, memory, key_padding_mask=~valid, need_weights=False)
    attention.for_cross_attention()
    got = attention(x, AttentionContext(valid[:, None, None], memory=memory))
    assert_close(got, right)
    hostile = memory.masked_fill(~valid[..., None], 5.0)
    assert_close(attention(x, AttentionContext(valid[:, None, None], memory=hostile)), right)


OPTIONS = pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_kv_heads": 1},
        {"qk_norm": nn.RMSNorm},
        {"head_dim": 5, "bias": False},
        {
            "head_dim": 11,
            "num_kv_heads": 1,
            "qk_norm": nn.LayerNorm,
            "qk_norm_level": "all",
            "out_bias": False,
        },
        {"output_gate": "headwise", "num_kv_heads": 1},
        {"output_gate": "elementwise", "bias": False},
    ],
)


@OPTIONS
def test_cross_attention_to_the_tokens_themselves_is_self_attention(x, settings):
    attention = shaken(MultiHeadAttention(21, 3, **settings))
    if attention.qkv_proj.bias is not None:
        nn.init.normal_(attention.qkv_proj.bias)
    context = AttentionContext((torch.rand(2, 1, 5, 5) < 0.5) | torch.eye(5, dtype=torch.bool))
    right = attention(x, context)
    with pytest.raises(ValueError, match="for_cross_attention"):
        attention(x, replace(context, memory=x))
    attention.for_cross_attention()
    assert_close(attention(x, replace(context, memory=x)), right)
    with pytest.raises(ValueError, match="no memory"):
        attention(x, context)


@OPTIONS
def test_keys_and_values_of_the_memory_are_computed_once(x, settings):
    attention = shaken(MultiHeadAttention(21, 3, **settings).for_cross_attention())
    memory = torch.randn(2, 7, 21)
    cache = attention.init_cache(5)
    with torch.no_grad():
        right = attention(x, AttentionContext(memory=memory))
        first = attention(x[:, :2], AttentionContext(memory=memory), cache)
        later = attention(x[:, 2:], AttentionContext(memory=memory.fill_(torch.nan)), cache)
    assert_close(torch.cat([first, later], dim=1), right)


@pytest.mark.parametrize("level", ["head", "all"])
def test_a_transformer_with_heads_of_another_width_keeps_the_laws(level):
    attention = partial(
        MultiHeadAttention,
        head_dim=5,
        num_kv_heads=1,
        qk_norm=nn.RMSNorm,
        qk_norm_level=level,
        out_bias=False,
    )
    block = partial(PreNormBlock, attention=attention)
    check_backbone(
        lambda dim, causal: Transformer(
            dim, 2, num_heads=3, causal=causal, block=block, position=Rotary(share=0.8)
        ),
        kinds=["text"],
        quick=True,
    )


@OPTIONS
def test_layers_of_cross_attention_start_as_parts_of_one(settings):
    """No random number is drawn for them."""
    torch.manual_seed(7)
    joint, number = MultiHeadAttention(21, 3, **settings), torch.rand(())
    torch.manual_seed(7)
    attention = MultiHeadAttention(21, 3, **settings).for_cross_attention()
    assert torch.rand(()) == number
    for kind, rows in joint.qkv_proj.state_dict().items():
        assert torch.cat(
            [attention.q_proj.get_parameter(kind), attention.kv_proj.get_parameter(kind)]
        ).equal(rows)


@pytest.mark.slow
def test_a_transformer_with_a_gated_bias_keeps_the_laws():
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, gated_bias=True))

    def make(dim, causal):
        position = T5Bias(3, num_buckets=8, max_distance=20, causal=causal)
        position.table.data.normal_()
        return Transformer(dim, 2, num_heads=3, causal=causal, block=block, position=position)

    check_backbone(make, kinds=["text"], quick=True)


def test_a_gated_bias_without_a_bias_is_refused():
    attention = MultiHeadAttention(12, 3, gated_bias=True)
    with pytest.raises(ValueError, match="give the backbone position T5Bias"):
        attention(torch.randn(1, 4, 12), AttentionContext())
