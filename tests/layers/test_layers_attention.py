"""Attention equals its formula written out, whatever hides and turns; keys and values are kept as they came."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.layers.attention import Attention
from seqkit.layers.mechanism import ScaledDotProduct
from seqkit.layers.position import Rotary
from seqkit.layers.reading import Reading


def written_out(attention, x, attend=None, turn=None):
    """softmax(q k / sqrt(c)) v, token by token and head by head, in Python. turn: [n r] complex."""
    d, heads = x.shape[-1], attention.num_heads
    c = d // heads
    q, k, v = (x @ attention.qkv.weight.T + attention.qkv.bias).split(d, dim=-1)
    read = torch.zeros_like(x)
    for h in range(heads):
        at = slice(h * c, (h + 1) * c)
        queries, keys = q[:, at], k[:, at]
        if attention.query_norm is not None:
            queries, keys = attention.query_norm(queries), attention.key_norm(keys)
        if turn is not None:
            queries, keys = (turned(vectors, turn) for vectors in (queries, keys))
        for i in range(len(x)):
            scores = [float(queries[i] @ key) / math.sqrt(c) for key in keys]
            weights = [math.exp(s) if attend is None or attend[i, j] else 0.0 for j, s in enumerate(scores)]
            read[i, at] = sum(w / sum(weights) * v[j, at] for j, w in enumerate(weights))
    return read @ attention.out.weight.T + attention.out.bias


def turned(vectors, turn):
    """RoFormer, section 3.2: pairs of channels as complex numbers, times exp(i angle)."""
    result = vectors.clone()
    for t in range(len(vectors)):
        for i in range(turn.shape[1]):
            z = complex(*vectors[t, 2 * i : 2 * i + 2].tolist()) * complex(turn[t, i])
            result[t, 2 * i], result[t, 2 * i + 1] = z.real, z.imag
    return result


@pytest.fixture
def x():
    return torch.randn(2, 5, 21)


@pytest.mark.parametrize("qk_norm", [None, nn.RMSNorm, nn.LayerNorm])
def test_attention_equals_its_formula(x, qk_norm):
    attention = Attention(21, 3, qk_norm=qk_norm)
    with torch.no_grad():
        for i in range(2):
            assert_close(attention(x, Reading())[i], written_out(attention, x[i]))


def test_a_hidden_token_is_not_read(x):
    attention = Attention(21, 3)
    attend = torch.rand(5, 5) < 0.5
    attend |= torch.eye(5, dtype=torch.bool)
    with torch.no_grad():
        right = written_out(attention, x[0], attend)
        assert_close(attention(x, Reading(attend[None, None]))[0], right)
        scores = torch.zeros(5, 5).masked_fill(~attend, -torch.inf)
        assert_close(attention(x, Reading(scores[None, None]))[0], right)


def test_causal_reads_the_past_only(x):
    attention = Attention(21, 3)
    with torch.no_grad():
        triangle = torch.ones(5, 5, dtype=torch.bool).tril()
        assert_close(attention(x, Reading(causal=True))[0], written_out(attention, x[0], triangle))


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_queries_and_keys_are_turned_by_position(x, num_axes):
    attention = Attention(21, 3)
    turn = Rotary(base=7.0).rotation(torch.randn(2, 5, num_axes), 7)
    with torch.no_grad():
        got = attention(x, Reading(rotation=turn))
        for i in range(2):
            assert_close(got[i], written_out(attention, x[i], turn=turn[i, 0]))
        assert (got - attention(x, Reading())).abs().max() > 1e-4


def test_without_bias_there_is_none():
    assert {name for name, _ in Attention(21, 3, bias=False).named_parameters()} == {"qkv.weight", "out.weight"}


def test_dropout_of_weights_acts_while_training_only(x):
    attention = Attention(21, 3, mechanism=partial(ScaledDotProduct, dropout=0.5))
    assert not torch.equal(attention(x, Reading()), attention(x, Reading()))
    attention.eval()
    assert_close(attention(x, Reading()), attention(x, Reading()))


def test_a_width_that_does_not_split_is_refused():
    with pytest.raises(ValueError, match="dim=21 does not split into num_heads=4 equal heads"):
        Attention(21, 4)


@pytest.mark.parametrize(("dim", "num_heads"), [(21, 0), (21, -3), (0, 3)])
def test_no_heads_and_no_width_are_refused(dim, num_heads):
    with pytest.raises(ValueError, match=f"dim={dim} and num_heads={num_heads} count .*; make both 1 or more"):
        Attention(dim, num_heads)


def repeated(attention):
    """The same attention with keys and values written out for every head."""
    heads, groups, c = attention.num_heads, attention.num_kv_heads, attention.channels
    full = Attention(heads * c, heads)
    with torch.no_grad():
        for name in ("weight", "bias"):
            q, k, v = attention.qkv.get_parameter(name).split([heads * c, groups * c, groups * c])
            k, v = (torch.cat([x[h * groups // heads * c :][:c] for h in range(heads)]) for x in (k, v))
            full.qkv.get_parameter(name).copy_(torch.cat([q, k, v]))
        full.out.load_state_dict(attention.out.state_dict())
    return full


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3])
def test_shared_keys_and_values_are_the_same_weights_repeated(num_kv_heads):
    attention, x = Attention(30, 6, num_kv_heads=num_kv_heads), torch.randn(2, 5, 30)
    attend = (torch.rand(2, 1, 5, 5) < 0.5) | torch.eye(5, dtype=torch.bool)
    turn = Rotary(base=7.0).rotation(torch.randn(2, 5, 1), 5)
    for reading in (Reading(), Reading(causal=True), Reading(attend), Reading(rotation=turn)):
        assert_close(attention(x, reading), repeated(attention)(x, reading))
    assert attention.qkv.out_features == 30 + 2 * num_kv_heads * 5


def test_shared_keys_and_values_are_kept_once_between_steps():
    attention, x = Attention(30, 6, num_kv_heads=2), torch.randn(2, 5, 30)
    memory = attention.init_memory(5)
    with torch.no_grad():
        parts = [attention(x[:, at], Reading(causal=at.start == 0), memory) for at in (slice(0, 4), slice(4, 5))]
        assert_close(torch.cat(parts, dim=1), attention(x, Reading(causal=True)))
    assert memory.own.keys.shape == (2, 2, 5, 5)


@pytest.mark.parametrize("num_kv_heads", [0, 4, 12])
def test_heads_that_cannot_be_shared_equally_are_refused(num_kv_heads):
    with pytest.raises(ValueError, match=f"num_heads=6 cannot share num_kv_heads={num_kv_heads} equally; make it a"):
        Attention(30, 6, num_kv_heads=num_kv_heads)


def torchs(attention):
    theirs = nn.MultiheadAttention(attention.out.in_features, attention.num_heads, batch_first=True)
    theirs.in_proj_weight, theirs.in_proj_bias = attention.qkv.weight, attention.qkv.bias
    theirs.out_proj = attention.out
    return theirs


def test_reading_another_sequence_is_torchs_cross_attention(x):
    attention, memory = Attention(21, 3), torch.randn(2, 7, 21)
    nn.init.normal_(attention.qkv.bias)
    valid = torch.arange(7) < torch.tensor([[7], [3]])
    got = attention(x, Reading(valid[:, None, None]), source=memory)
    right, _ = torchs(attention)(x, memory, memory, key_padding_mask=~valid, need_weights=False)
    assert_close(got, right)
    hostile = memory.masked_fill(~valid[..., None], 5.0)
    assert_close(attention(x, Reading(valid[:, None, None]), source=hostile), right)


@pytest.mark.parametrize("qk_norm", [None, nn.RMSNorm])
@pytest.mark.parametrize("num_kv_heads", [None, 1])
def test_what_is_read_of_another_sequence_is_worked_out_once(x, qk_norm, num_kv_heads):
    attention, source = Attention(21, 3, qk_norm=qk_norm, num_kv_heads=num_kv_heads), torch.randn(2, 7, 21)
    memory = attention.init_memory(5)
    with torch.no_grad():
        right = attention(x, Reading(), source=source)
        first = attention(x[:, :2], Reading(), memory, source)
        later = attention(x[:, 2:], Reading(), memory, source.fill_(torch.nan))
    assert_close(torch.cat([first, later], dim=1), right)
