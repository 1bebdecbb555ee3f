"""Linear attention equals its formula: in chunks, in steps, around padding, as cross-attention."""

import math
from functools import partial

import pytest
import torch
from einops import einsum
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.kv_cache import StateCache
from seqkit.nn.attention.linear import CHUNK, LinearAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary
from seqkit.testing import check_backbone

CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


def queries_keys_values(n, m, num_heads=3, num_kv_heads=3, c=5, dtype=torch.float64):
    return (
        torch.randn(2, h, t, c, dtype=dtype)
        for h, t in ((num_heads, n), (num_kv_heads, m), (num_kv_heads, m))
    )


def written_out(q, k, v, valid, causal):
    """Katharopoulos et al. 2020, equations 4 and 9, pair by pair in Python; q [b h n c], k and v [b g m c]."""

    def feature(x):
        return x + 1 if x > 0 else math.exp(x)

    output = torch.zeros_like(q)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        g, total = h // (q.shape[1] // k.shape[1]), 0.0
        query = [feature(x) for x in q[b, h, i].tolist()]
        for j in range(k.shape[2]):
            if valid[b, j] and not (causal and j > i):
                similarity = sum(x * feature(y) for x, y in zip(query, k[b, g, j].tolist()))
                output[b, h, i] += similarity * v[b, g, j]
                total += similarity
        output[b, h, i] /= total
    return output


def context(valid, causal):
    return AttentionContext(is_causal=causal, query_valid=valid, key_valid=valid)


def some_valid(m):
    valid = torch.ones(2, m, dtype=torch.bool)
    valid[1, m - m // 3 :] = False
    return valid


@CAUSAL
@pytest.mark.parametrize("num_kv_heads", [1, 3])
def test_linear_attention_equals_its_formula(causal, num_kv_heads):
    q, k, v = queries_keys_values(7, 7, num_kv_heads=num_kv_heads)
    valid = some_valid(7)
    assert_close(
        LinearAttention(3, 5)(q, k, v, context(valid, causal)), written_out(q, k, v, valid, causal)
    )


def test_cross_attention_equals_the_formula():
    q, k, v = queries_keys_values(3, 7)
    valid = some_valid(7)
    right = written_out(q, k, v, valid, causal=False)
    cross = AttentionContext(query_valid=torch.ones(2, 3, dtype=torch.bool), key_valid=valid)
    assert_close(LinearAttention(3, 5)(q, k, v, cross), right)


@CAUSAL
@pytest.mark.parametrize("n", [CHUNK - 1, CHUNK, 2 * CHUNK + 3])
def test_attention_weights_times_values_are_the_output_over_any_number_of_chunks(causal, n):
    q, k, v = queries_keys_values(n, n)
    mechanism, made = LinearAttention(3, 5), context(some_valid(n), causal)
    weights = mechanism.attention_weights(q, k, made)
    assert_close(mechanism(q, k, v, made), einsum(weights, v, "b h n m, b h m c -> b h n c"))
    assert_close(weights.sum(dim=-1), torch.ones(2, 3, n, dtype=torch.float64))
    assert weights.min() >= 0
    assert bool((weights.triu(1) == 0).all()) == causal


def test_steps_with_padding_between_equal_one_pass():
    """Example 1 lacks the last two tokens of the first step and the last of the third."""
    ends = [(0, 67), (67, 68), (68, 71), (71, 137)]
    valid = torch.ones(2, 137, dtype=torch.bool)
    valid[1, [65, 66, 70]] = False
    q, k, v = queries_keys_values(137, 137)
    mechanism, cache = LinearAttention(3, 5), LinearAttention(3, 5).init_cache(137)
    outputs = []
    for start, end in ends:
        step = AttentionContext(
            is_causal=True, query_valid=valid[:, start:end], key_valid=valid[:, :end]
        )
        outputs.append(mechanism(*(x[:, :, start:end] for x in (q, k, v)), step, cache))
        assert cache.states[0].shape == (2, 3, 5, 6)
    assert_close(torch.cat(outputs, dim=2), mechanism(q, k, v, context(valid, True)))


def test_reordered_rows_keep_their_sums():
    cache = StateCache(1)
    cache.reorder(torch.tensor([0]))
    cache.states[0] = torch.randn(3, 2, 5, 7)
    sums = cache.states[0]
    cache.reorder(torch.tensor([2, 0, 0, 1]))
    assert_close(cache.states[0], sums[[2, 0, 0, 1]])


@CAUSAL
def test_nan_in_padding_changes_neither_output_nor_gradients(causal):
    valid = some_valid(7)
    found = []
    for filler in (0.0, torch.nan):
        torch.manual_seed(1)
        q, k, v = queries_keys_values(7, 7)
        k, v = (x.masked_fill(~valid[:, None, :, None], filler).requires_grad_() for x in (k, v))
        output = LinearAttention(3, 5)(q, k, v, context(valid, causal))
        found.append([output.detach(), *torch.autograd.grad(output.square().sum(), [k, v])])
    for clean, dirty in zip(*found):
        assert_close(dirty, clean)


@CAUSAL
def test_the_largest_tensor_grows_linearly_with_the_tokens(causal, largest_tensor):
    numels = [largest_tensor(LinearAttention(1, 4), n, causal) for n in (1024, 2048)]
    assert numels[1] <= 2 * numels[0] < 1024**2 / 4


@CAUSAL
def test_gradients_are_those_of_finite_differences(causal):
    q, k, v = (
        x.requires_grad_()
        for x in queries_keys_values(CHUNK + 1, CHUNK + 1, num_heads=1, num_kv_heads=1, c=2)
    )
    entries = torch.randperm(q.numel())[:7]

    def few(change):
        return LinearAttention(1, 2)(
            q.flatten().index_add(0, entries, change).reshape(q.shape),
            k,
            v,
            context(some_valid(65), causal),
        )

    assert torch.autograd.gradcheck(few, torch.zeros(7, dtype=torch.float64, requires_grad=True))
    small = [
        x.requires_grad_() for x in queries_keys_values(3, 3, num_heads=1, num_kv_heads=1, c=2)
    ]
    assert torch.autograd.gradcheck(
        lambda *x: LinearAttention(1, 2)(*x, context(some_valid(3), causal)), small
    )


@CAUSAL
@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 5e-6), (torch.bfloat16, 2**-8)])
def test_only_the_output_is_rounded_over_many_chunks(causal, autocast, dtype, error):
    """bfloat16 has eight bits: nothing but the last rounding may cost one."""
    q, k, v = (x.to(dtype) for x in queries_keys_values(1021, 1021))
    right = LinearAttention(3, 5)(
        q.double(), k.double(), v.double(), AttentionContext(is_causal=causal)
    )
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        got = LinearAttention(3, 5)(q, k, v, AttentionContext(is_causal=causal))
    assert got.dtype == dtype
    assert_close(got.double(), right, rtol=error, atol=error / 10)


def test_a_feature_map_can_be_passed_in_and_may_give_only_zeros():
    q, k, v = queries_keys_values(5, 5)
    squares = LinearAttention(3, 5, feature_map=torch.square)
    right = einsum(q.square(), k.square(), "b h n c, b h m c -> b h n m")
    assert_close(
        squares.attention_weights(q, k, AttentionContext()), right / right.sum(dim=-1, keepdim=True)
    )
    k = (-k.abs()).requires_grad_()
    output = LinearAttention(3, 5, feature_map=torch.relu)(
        q, k, v, AttentionContext(is_causal=True)
    )
    assert not output.any()
    assert torch.autograd.grad(output.sum(), k)[0].isfinite().all()


@pytest.mark.slow
def test_a_transformer_with_shared_keys_keeps_the_laws():
    attention = partial(MultiHeadAttention, mechanism=LinearAttention, num_kv_heads=1)
    check_backbone(
        lambda dim, causal: Transformer(
            dim, 2, num_heads=3, causal=causal, block=partial(PreNormBlock, attention=attention)
        ),
        kinds=["text"],
        quick=True,
    )


def test_rotary_positions_are_refused_when_a_backbone_is_built():
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=LinearAttention))
    with pytest.raises(ValueError, match="Rotary"):
        Transformer(24, 1, block=block, position=Rotary())
