"""Scaled dot-product attention equals its formula written out, and the plain soft lookup becomes a hard one."""

import math

import pytest
import torch
from heads import random_heads
from torch.testing import assert_close

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.mechanism import soft_lookup
from seqkit.nn.attention.multi_head import ScaledDotProductAttention

# ── soft lookup ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_towards_temperature_0_a_query_gets_the_value_of_its_best_key():
    query, key, value = torch.randn(5, 3), torch.randn(7, 3), torch.randn(7, 11)
    best = value[(query @ key.T).argmax(dim=-1)]
    assert_close(soft_lookup(query, key, value, temperature=1e-4), best)
    warm = [
        float((soft_lookup(query, key, value, temperature=t) - best).abs().max())
        for t in (1.0, 0.1, 0.01)
    ]
    assert warm == sorted(warm, reverse=True)


def test_towards_temperature_infinity_a_query_gets_the_mean():
    query, key, value = torch.randn(5, 3), torch.randn(7, 3), torch.randn(7, 11)
    assert_close(soft_lookup(query, key, value, temperature=1e9), value.mean(dim=0).expand(5, 11))


def test_between_a_query_gets_the_weighted_mean_of_its_unmasked_values():
    query, key, value = torch.randn(2, 5, 3), torch.randn(2, 7, 3), torch.randn(2, 7, 11)
    attn_mask = torch.rand(2, 5, 7) < 0.5
    attn_mask[1, 2] = False
    got = soft_lookup(query, key, value, temperature=0.7, attn_mask=attn_mask)
    for b in range(2):
        for i in range(5):
            weights = [
                math.exp(float(query[b, i] @ key[b, j]) / 0.7) * bool(attn_mask[b, i, j])
                for j in range(7)
            ]
            right = sum((w * value[b, j] for j, w in enumerate(weights)), torch.zeros(11)) / (
                sum(weights) or 1.0
            )
            assert_close(got[b, i], right)


def test_a_temperature_of_0_is_refused():
    with pytest.raises(ValueError, match="temperature=0"):
        ScaledDotProductAttention(2, 3, temperature=0)


# ── scaled dot-product attention ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("temperature", [None, 0.3, 11.0])
@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_every_head_is_a_soft_lookup(temperature, num_kv_heads):
    (q, k, v), attn_mask = random_heads(4, num_kv_heads), torch.rand(2, 4, 5, 7) < 0.6
    attn_mask[1, 2, 3] = False
    mechanism, context = (
        ScaledDotProductAttention(4, 3, temperature=temperature),
        AttentionContext(attn_mask),
    )
    got, weights = mechanism(q, k, v, context), mechanism.attention_weights(q, k, context)
    for b in range(2):
        for h in range(4):
            g = h * num_kv_heads // 4
            settings = {"temperature": temperature or 3**0.5, "attn_mask": attn_mask[b, h]}
            assert_close(got[b, h], soft_lookup(q[b, h], k[b, g], v[b, g], **settings))
            assert_close(weights[b, h], soft_lookup(q[b, h], k[b, g], torch.eye(7), **settings))


def test_a_bias_is_added_to_the_scores():
    (q, k, v), bias = random_heads(4, 2), torch.randn(2, 4, 5, 7)
    bias[0, 1, 2, 3] = -torch.inf
    got = ScaledDotProductAttention(4, 3, temperature=0.7)(q, k, v, AttentionContext(bias))
    for b, h, i in ((0, 1, 2), (1, 3, 4), (0, 0, 0)):
        scores = [float(q[b, h, i] @ k[b, h // 2, j] / 0.7 + bias[b, h, i, j]) for j in range(7)]
        weights = torch.tensor([math.exp(s) for s in scores])
        assert_close(got[b, h, i], weights / weights.sum() @ v[b, h // 2])


def test_causal_attention_attends_to_the_past_only():
    q, k, v = random_heads(4, 4, n=7)
    got = ScaledDotProductAttention(4, 3)(q, k, v, AttentionContext(is_causal=True))
    for i in range(7):
        keys = k[:, :, : i + 1]
        assert_close(
            got[:, :, i : i + 1],
            soft_lookup(q[:, :, i : i + 1], keys, v[:, :, : i + 1], temperature=3**0.5),
        )


# ── bounded scores ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("softcap", [0.7, 3.0])
def test_scores_are_bounded_before_mask_and_bias_are_added(softcap):
    (q, k, v), bias = random_heads(4, 2), 5 * torch.randn(2, 4, 5, 7)
    bias[0, 1, 2, 3] = -torch.inf
    bias[1, 3, 4] = -torch.inf
    mechanism = ScaledDotProductAttention(4, 3, temperature=0.3, softcap=softcap)
    got = mechanism(q, k, v, AttentionContext(bias))
    for b, h, i in ((0, 1, 2), (1, 2, 4), (0, 0, 0)):
        scores = [float(q[b, h, i] @ k[b, h // 2, j] / 0.3) for j in range(7)]
        weights = torch.tensor(
            [
                math.exp(softcap * math.tanh(s / softcap) + float(bias[b, h, i, j]))
                for j, s in enumerate(scores)
            ]
        )
        assert_close(got[b, h, i], weights / weights.sum() @ v[b, h // 2])
    assert not got[1, 3, 4].any(), "a query that may attend to nothing"
    weights = mechanism.attention_weights(q, k, AttentionContext(bias))
    assert_close(weights @ v.repeat_interleave(2, dim=1), got)


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_bound_that_no_score_comes_near_changes_nothing(is_causal):
    (q, k, v), context = random_heads(4, 4, n=7), AttentionContext(is_causal=is_causal)
    loose, plain = ScaledDotProductAttention(4, 3, softcap=1e4), ScaledDotProductAttention(4, 3)
    assert_close(loose(q, k, v, context), plain(q, k, v, context), rtol=1e-4, atol=1e-5)
    tight = ScaledDotProductAttention(4, 3, softcap=0.1)
    assert (tight(q, k, v, context) - plain(q, k, v, context)).abs().max() > 0.1


def test_bounded_scores_have_dropout_and_a_cache_and_keep_the_dtype():
    q, k, v = (x.bfloat16() for x in random_heads(4, 2))
    mechanism = ScaledDotProductAttention(4, 3, softcap=2.0, dropout=0.5)
    assert not torch.equal(
        mechanism(q, k, v, AttentionContext()), mechanism(q, k, v, AttentionContext())
    )
    mechanism.eval()
    right, cache = mechanism(q, k, v, AttentionContext()), mechanism.init_cache(7)
    assert right.dtype == torch.bfloat16
    mechanism(q, k[:, :, :4], v[:, :, :4], AttentionContext(), cache)
    assert_close(mechanism(q, k[:, :, 4:], v[:, :, 4:], AttentionContext(), cache), right)


def test_towards_temperature_0_each_query_of_each_head_gets_the_value_of_its_best_key():
    q, k, v = random_heads(4, 4)
    best = (q @ k.mT).argmax(dim=-1)
    right = torch.stack([v[b, h, best[b, h]] for b in range(2) for h in range(4)]).unflatten(
        0, (2, 4)
    )
    assert_close(
        ScaledDotProductAttention(4, 3, temperature=1e-5)(q, k, v, AttentionContext()), right
    )


def test_dropout_zeroes_weights_and_scales_the_rest_while_training():
    q, k, _ = random_heads(4, 4)
    mechanism = ScaledDotProductAttention(4, 3, dropout=0.25)
    weights = mechanism.attention_weights(q, k, AttentionContext())
    # values that show the weights
    got = mechanism(q, k, torch.eye(7).expand(2, 4, 7, 7), AttentionContext())
    assert_close(got, torch.where(got > 0, weights / 0.75, 0.0))
    assert 0.1 < float((got == 0).float().mean()) < 0.4
    mechanism.eval()
    assert_close(mechanism(q, k, torch.eye(7).expand(2, 4, 7, 7), AttentionContext()), weights)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, r"temperature=0.0"),
        ({"temperature": math.nan}, "temperature=nan"),
        ({"softcap": 0.0}, r"softcap=0.0"),
        ({"dropout": 1.0}, "dropout=1.0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ScaledDotProductAttention(4, 3, **settings)
