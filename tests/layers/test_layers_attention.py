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


@pytest.mark.parametrize("num_heads", [0, 4])
def test_a_width_that_does_not_split_is_refused(num_heads):
    with pytest.raises(ValueError, match=f"dim=21 does not split into num_heads={num_heads} equal heads"):
        Attention(21, num_heads)
