"""Additive scores equal Bahdanau's formula; how they fare in a backbone is tested with the base class."""

import pytest
import torch
from heads import random_heads
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary


def attention(dim, num_heads):
    return MultiHeadAttention(dim, num_heads, mechanism=AdditiveAttention)


def test_additive_attention_is_bahdanaus():
    """exp(v . tanh(W s + U h)) over its sum, one head, with W and U the projections (appendix A.1.2)."""
    additive, state, memory = attention(7, 1), torch.randn(7), torch.randn(5, 7)
    w, u, values = additive.qkv_proj.weight.split(7)
    b, a, c = additive.qkv_proj.bias.detach().normal_().split(7)
    scores = [
        additive.mechanism.score_weight[0] @ torch.tanh(w @ state + b + u @ x + a) for x in memory
    ]
    weights = torch.stack(scores).softmax(dim=0)
    right = additive.out_proj(sum(weight * (values @ x + c) for weight, x in zip(weights, memory)))
    additive.for_cross_attention()
    assert_close(additive(state[None, None], AttentionContext(memory=memory[None]))[0, 0], right)


def test_additive_scores_are_computed_by_head_with_shared_keys():
    additive, (q, k, _) = AdditiveAttention(4, 3), random_heads(4, 2)
    got = additive.attention_weights(q, k, AttentionContext())
    for b, h, i in ((0, 0, 0), (1, 1, 4), (0, 2, 3), (1, 3, 2)):
        keys = [k[b, h // 2, j] for j in range(7)]
        scores = [additive.score_weight[h] @ torch.tanh(q[b, h, i] + key) for key in keys]
        assert_close(got[b, h, i], torch.stack(scores).softmax(dim=0))


def test_rotary_positions_are_refused_when_a_backbone_is_built():
    with pytest.raises(ValueError, match="rotary"):
        Transformer(
            24,
            2,
            num_heads=3,
            block=lambda *sizes: PreNormBlock(*sizes, attention=attention),
            position=Rotary(),
        )
