"""Top-k attention is softmax over the k best scores, whatever is masked or added to them."""

import math
from functools import partial

import pytest
import torch
from heads import random_heads
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.attention.top_k import TopKAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary
from seqkit.testing import EmbeddedBackbone, synthetic
from seqkit.testing.laws import (
    batch_mates_change_nothing,
    no_token_attends_to_the_future,
    packed_equals_separate,
    padding_changes_nothing,
    padding_may_hold_anything,
    step_by_step_equals_at_once,
)


@pytest.mark.parametrize("k", [1, 2, 5, 7, 11])
def test_only_the_k_best_of_the_unmasked_keys_have_a_weight(k):
    (q, keys, v), attn_mask = random_heads(4, 2), torch.rand(2, 1, 5, 7) < 0.6
    attn_mask[0, 0, 3] = False
    got = TopKAttention(4, 3, k=k)(q, keys, v, AttentionContext(attn_mask))
    for b in range(2):
        for h in range(4):
            for i in range(5):
                scores = {
                    j: float(q[b, h, i] @ keys[b, h // 2, j]) / 3**0.5
                    for j in range(7)
                    if attn_mask[b, 0, i, j]
                }
                best = sorted(scores, key=lambda j: -scores[j])[:k]
                total = sum(math.exp(scores[j]) for j in best)
                right = sum(
                    (math.exp(scores[j]) / total * v[b, h // 2, j] for j in best), torch.zeros(3)
                )
                assert_close(got[b, h, i], right)


def test_the_best_are_chosen_after_a_bias_is_added():
    (q, k, _), bias = random_heads(4, 4), torch.randn(2, 4, 5, 7)
    weights = TopKAttention(4, 3, k=2).attention_weights(q, k, AttentionContext(bias))
    for b, h, i in ((0, 0, 0), (1, 3, 4), (0, 2, 3), (1, 1, 2)):
        scores = [float(q[b, h, i] @ k[b, h, j] / 3**0.5 + bias[b, h, i, j]) for j in range(7)]
        assert {j for j in range(7) if weights[b, h, i, j] > 0} == set(
            sorted(range(7), key=lambda j: -scores[j])[:2]
        )


def test_keys_that_tie_are_all_used_wherever_they_stand():
    q, k = torch.ones(1, 1, 1, 3), torch.zeros(1, 1, 5, 3)
    k[0, 0, 2] = 1.0
    weights = TopKAttention(1, 3, k=2).attention_weights(q, k, AttentionContext())[0, 0, 0]
    assert (weights > 0).all()  # one best, then four that share the second place
    assert len(set(weights[[0, 1, 3, 4]].tolist())) == 1
    best = TopKAttention(1, 3, k=1).attention_weights(q, k, AttentionContext())[0, 0, 0]
    assert (best > 0).tolist() == [False, False, True, False, False]


def test_with_k_as_large_as_the_sequence_it_is_scaled_dot_product_attention():
    x, plain = torch.randn(2, 5, 21), MultiHeadAttention(21, 3)
    top_k = MultiHeadAttention(21, 3, mechanism=partial(TopKAttention, k=5))
    top_k.load_state_dict(plain.state_dict())
    assert_close(
        top_k(x, AttentionContext(is_causal=True)), plain(x, AttentionContext(is_causal=True))
    )


def test_k_of_0_is_refused():
    with pytest.raises(ValueError, match="k=0"):
        TopKAttention(3, 7, k=0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("modality", ["text", "image", "series"])
def test_a_small_k_keeps_the_laws_that_do_not_need_every_key(modality, causal):
    spec, examples = synthetic()[modality]
    attention = partial(MultiHeadAttention, mechanism=partial(TopKAttention, k=2))
    block = partial(PreNormBlock, attention=attention)
    backbone = EmbeddedBackbone(
        spec, Transformer(24, 2, num_heads=3, causal=causal, block=block, position=Rotary())
    )
    laws = [
        padding_changes_nothing,
        batch_mates_change_nothing,
        padding_may_hold_anything,
        packed_equals_separate,
    ]
    if causal:
        laws += [no_token_attends_to_the_future, step_by_step_equals_at_once]
    for check_law in laws:
        check_law(backbone, examples)
