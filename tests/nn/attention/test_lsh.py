"""LSH attention is softmax attention over the buckets, counted by brute force; enough rounds make it exact."""

from functools import partial

import pytest
import torch
from einops import einsum
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.lsh import LSHAttention
from seqkit.nn.attention.multi_head import (
    MultiHeadAttention,
    ScaledDotProductAttention,
    apply_rotary,
)
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary
from seqkit.testing import check_backbone

CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


def queries_keys_values(n, num_kv_heads=3, c=5):
    return [torch.randn(2, h, n, c, dtype=torch.float64) for h in (3, num_kv_heads, num_kv_heads)]


def lsh(bucket_size=2, num_buckets=4, num_rounds=2):
    return LSHAttention(
        3, 5, bucket_size=bucket_size, num_buckets=num_buckets, num_rounds=num_rounds
    ).double()


def context(valid, causal):
    return AttentionContext(is_causal=causal, query_valid=valid, key_valid=valid)


def bucket(x, directions):
    """Of one vector: the direction, or its opposite, with the largest product (Kitaev et al. 2020, section 2)."""
    products = [float(x @ direction) for direction in directions.T]
    products += [-a for a in products]
    return products.index(max(products))


def defined_mask(mechanism, q, k, valid, causal):
    """[b h n m] by brute force: for every query, walk through the keys of its bucket, nearest first."""
    n, size = q.shape[2], mechanism.bucket_size
    attn_mask = torch.zeros(*q.shape[:3], n, dtype=torch.bool)
    for b, h in torch.cartesian_prod(torch.arange(q.shape[0]), torch.arange(q.shape[1])).tolist():
        g = h // (q.shape[1] // k.shape[1])
        rounds = [([0] * n, [0] * n)]
        for directions in mechanism.directions:
            rounds.append(
                ([bucket(x, directions) for x in q[b, h]], [bucket(x, directions) for x in k[b, g]])
            )
        for of_query, of_key in rounds:
            for i in range(n):
                mates = [j for j in range(n) if valid[b, j] and of_key[j] == of_query[i]]
                near = [j for j in mates if j <= i][-size:]
                near += [] if causal else [j for j in mates if j > i][: size - 1]
                attn_mask[b, h, i, near] = True
    return attn_mask


def exact(attn_mask, q, k, v):
    """Exact softmax attention under `attn_mask`."""
    times = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(times, dim=1) for x in (k, v))
    return ScaledDotProductAttention(3, 5)(q, k, v, AttentionContext(attn_mask))


@CAUSAL
@pytest.mark.parametrize("num_kv_heads", [1, 3])
@pytest.mark.parametrize(
    ("bucket_size", "num_buckets", "num_rounds"), [(2, 2, 1), (2, 4, 3), (3, 6, 2), (7, 2, 2)]
)
def test_lsh_attention_is_softmax_over_the_buckets(
    causal, num_kv_heads, bucket_size, num_buckets, num_rounds
):
    """Of 23 tokens: in blocks; buckets of 7 too."""
    mechanism = lsh(bucket_size, num_buckets, num_rounds)
    q, k, v = queries_keys_values(23, num_kv_heads)
    valid = torch.arange(23) < torch.tensor([[23], [17]])
    attn_mask = defined_mask(mechanism, q, k, valid, causal)
    assert attn_mask.sum() < (valid.sum() * 23 * 3) * (0.5 if bucket_size < 7 else 1)
    right = exact(attn_mask, q, k, v)
    assert_close(mechanism(q, k, v, context(valid, causal)), right)
    weights = mechanism.attention_weights(q, k, context(valid, causal))
    assert torch.equal(weights > 0, attn_mask)
    assert_close(
        einsum(
            weights, v.repeat_interleave(3 // num_kv_heads, dim=1), "b h n m, b h m c -> b h n c"
        ),
        right,
    )


@CAUSAL
def test_a_bucket_as_large_as_the_sequence_makes_it_exact(causal):
    q, k, v = queries_keys_values(23)
    right = ScaledDotProductAttention(3, 5)(q, k, v, AttentionContext(is_causal=causal))
    assert_close(lsh(bucket_size=23)(q, k, v, AttentionContext(is_causal=causal)), right)


@CAUSAL
def test_enough_rounds_make_it_exact_without_counting_a_pair_twice(causal):
    """60 hashes put every query and key into one bucket of 12 tokens at least once, in blocks."""
    q, k, v = queries_keys_values(25)
    mechanism = lsh(bucket_size=12, num_buckets=2, num_rounds=60)
    unmasked = mechanism.attention_weights(q, k, AttentionContext(is_causal=causal)) > 0
    assert bool(unmasked.tril().eq(torch.ones_like(unmasked).tril()).float().mean() > 0.99)
    assert_close(mechanism(q, k, v, AttentionContext(is_causal=causal)), exact(unmasked, q, k, v))


@CAUSAL
def test_queries_and_keys_may_crowd_in_one_bucket(causal):
    """All queries are equal, all keys but three their opposite: blocks without queries, blocks without keys."""
    mechanism = lsh(bucket_size=3, num_buckets=4, num_rounds=2)
    q, k, v = queries_keys_values(29)
    q, k = q[:, :, :1].expand_as(q).clone(), -q[:, :, :1].expand_as(k).clone()
    k[:, :, [3, 11, 28]] *= -1
    valid = torch.ones(2, 29, dtype=torch.bool)
    right = exact(defined_mask(mechanism, q, k, valid, causal), q, k, v)
    assert_close(mechanism(q, k, v, context(valid, causal)), right)


@CAUSAL
def test_nan_in_padding_changes_neither_output_nor_gradients(causal):
    valid = torch.arange(11) < torch.tensor([[11], [7]])
    mechanism = lsh()
    found = []
    for filler in (0.0, torch.nan):
        torch.manual_seed(1)
        q, k, v = queries_keys_values(11)
        q, k, v = (
            x.masked_fill(~valid[:, None, :, None], f).requires_grad_()
            for x, f in zip((q, k, v), (0, filler, filler))
        )
        output = mechanism(q, k, v, context(valid, causal))
        found.append([output.detach(), *torch.autograd.grad(output.square().sum(), [q, k, v])])
    for clean, dirty in zip(*found):
        assert_close(dirty, clean)


@CAUSAL
def test_the_output_of_an_example_without_tokens_is_zero_with_finite_gradients(causal):
    valid = torch.tensor([[True] * 7, [False] * 7])
    q, k, v = (x.requires_grad_() for x in queries_keys_values(7))
    output = lsh()(q, k, v, context(valid, causal))
    assert output[0].any()
    assert not output[1].any()
    assert all(g.isfinite().all() for g in torch.autograd.grad(output.sum(), [q, k, v]))


@CAUSAL
def test_gradients_are_those_of_finite_differences(causal):
    """In blocks. A small step moves no token to another bucket."""
    mechanism = LSHAttention(1, 2, bucket_size=2, num_buckets=2, num_rounds=2).double()
    inputs = [torch.randn(1, 1, 7, 2, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(
        lambda *x: mechanism(*x, AttentionContext(is_causal=causal)), inputs
    )


def test_similar_keys_are_found():
    """Keys that are noisy copies of far queries are attended to far more often than other keys."""
    n = 257
    q = torch.randn(1, 1, n, 16)
    order = torch.randperm(n)
    k = (q + 0.1 * torch.randn_like(q))[:, :, order]
    weights = LSHAttention(1, 16, bucket_size=8, num_buckets=32, num_rounds=4).attention_weights(
        q, k, AttentionContext()
    )[0, 0]
    found = (weights[order, torch.arange(n)] > 0).float().mean()
    assert found > 0.9
    assert (weights > 0).float().mean() < 0.25


@CAUSAL
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 5e-6), (torch.bfloat16, 2e-2)])
def test_rounding_stays_small(causal, dtype, error):
    """Over the same pairs: the others get the plan that float64 hashed."""
    mechanism = lsh(bucket_size=5)
    q, k, v = (x.to(dtype).double() for x in queries_keys_values(101))
    right = mechanism(q, k, v, AttentionContext(is_causal=causal))
    plan = mechanism._plan(q, k, AttentionContext(is_causal=causal))
    got = mechanism._by_blocks(*(x.to(dtype) for x in (q, k, v)), plan, causal)
    assert got.dtype == dtype
    assert (got - right).abs().max() < error * right.abs().max()


def test_unmasked_pairs_have_the_scores_of_rotated_queries_and_keys():
    q, k, v = queries_keys_values(23)
    rotary = Rotary(base=10.0).rotary(torch.arange(23.0)[None, :, None], 5).to(torch.complex128)
    q, k = apply_rotary(q, rotary), apply_rotary(k, rotary)
    mechanism = lsh()
    right = exact(defined_mask(mechanism, q, k, torch.ones(2, 23), True), q, k, v)
    assert_close(mechanism(q, k, v, AttentionContext(is_causal=True)), right)


@CAUSAL
def test_the_largest_tensor_grows_linearly_with_the_tokens(causal, largest_tensor):
    numels = [
        largest_tensor(LSHAttention(1, 4, bucket_size=16, num_buckets=8), n, causal)
        for n in (1024, 2048)
    ]
    assert numels[1] <= 2.1 * numels[0] < 1024**2 / 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bucket_size", "position", "kinds"),
    [(2, None, ["text"]), (3, Rotary(), ["image"])],
)
def test_a_transformer_with_it_keeps_the_laws(position, bucket_size, kinds):
    mechanism = partial(LSHAttention, bucket_size=bucket_size, num_buckets=4)
    block = partial(
        PreNormBlock, attention=partial(MultiHeadAttention, mechanism=mechanism, num_kv_heads=1)
    )

    def build(dim, causal):
        return Transformer(dim, 2, num_heads=3, causal=causal, block=block, position=position)

    check_backbone(build, kinds=kinds, quick=True)


def test_directions_are_saved_and_drawn_by_torchs_seed():
    torch.manual_seed(7)
    first, second = lsh(), lsh()
    torch.manual_seed(7)
    assert torch.equal(lsh().directions, first.directions)
    assert not torch.equal(first.directions, second.directions)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.directions, first.directions)


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="num_buckets=5"):
        lsh(num_buckets=5)
    with pytest.raises(ValueError, match="bucket_size=1"):
        lsh(bucket_size=1)
    with pytest.raises(ValueError, match="num_rounds=0"):
        lsh(num_rounds=0)
