"""Linformer equals its formula, is exact attention where it projects nothing, and ignores padding."""

import math
from functools import partial

import pytest
import torch
from einops import einsum
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.interfaces import Embedded
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.linformer import LinformerAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary
from seqkit.testing import check_backbone


def queries_keys_values(n, m, num_kv_heads=3, c=5):
    return (
        torch.randn(2, h, t, c, dtype=torch.float64)
        for h, t in ((3, n), (num_kv_heads, m), (num_kv_heads, m))
    )


def context(lengths, m):
    valid = torch.arange(m) < torch.tensor(lengths)[:, None]
    return AttentionContext(query_valid=valid, key_valid=valid)


def transformer(position=None, **settings):
    mechanism = partial(LinformerAttention, **{"max_tokens": 13, "rank": 5, **settings})
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=mechanism))
    return Transformer(24, 2, num_heads=3, block=block, position=position)


def embedded(lengths, n, shift=0.0):
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, 24).masked_fill(~valid[..., None], 0.0)
    return Embedded(
        hidden, torch.arange(float(n)).expand(len(lengths), n)[..., None] + shift, valid
    )


@pytest.mark.parametrize("num_kv_heads", [1, 3])
def test_linformer_equals_its_formula(num_kv_heads):
    """Wang et al. 2020, equation 7, head by head: softmax(q (E^T k)^T / sqrt(c)) (F^T v)."""
    linformer = LinformerAttention(3, 5, max_tokens=11, rank=2).double()
    q, k, v = queries_keys_values(3, 7, num_kv_heads)
    got = linformer(q, k, v, context([7, 4], 7))
    for b, length in enumerate([7, 4]):
        for h in range(3):
            keys, values = (x[b, h * num_kv_heads // 3, :length] for x in (k, v))
            projected = linformer.key_projection[:length].T @ keys
            scores = q[b, h] @ projected.T / math.sqrt(5)
            assert_close(
                got[b, h], scores.softmax(dim=-1) @ (linformer.value_projection[:length].T @ values)
            )


def test_an_identity_projection_is_exact_attention():
    linformer = LinformerAttention(3, 5, max_tokens=7, rank=7).double()
    for projection in (linformer.key_projection, linformer.value_projection):
        nn.init.eye_(projection)
    q, k, v = queries_keys_values(7, 7)
    assert_close(
        linformer(q, k, v, AttentionContext()),
        ScaledDotProductAttention(3, 5)(q, k, v, AttentionContext()),
    )


@pytest.mark.parametrize("columns", [7, 11, 17])
def test_attention_weights_times_values_are_the_output_whatever_the_padding(columns):
    """17 columns are more than it has weights for, but those behind the 7th are padding."""
    linformer = LinformerAttention(3, 5, max_tokens=11, rank=2).double()
    q, k, v = queries_keys_values(columns, columns)
    made = context([7, 4], columns)
    weights = linformer.attention_weights(q, k, made)
    assert weights.shape == (2, 3, columns, columns)
    assert_close(linformer(q, k, v, made), einsum(weights, v, "b h n m, b h m c -> b h n c"))
    assert not weights[0, :, :, 7:].any()
    assert not weights[1, :, :, 4:].any()
    cut = linformer(q[:, :, :7], k[:, :, :7], v[:, :, :7], context([7, 4], 7))
    assert_close(linformer(q, k, v, made)[:, :, :7], cut)


def test_the_output_of_an_example_without_tokens_is_zero():
    linformer = LinformerAttention(3, 5, max_tokens=11, rank=2).double()
    output = linformer(*queries_keys_values(3, 3), context([3, 0], 3))
    assert output[0].any()
    assert not output[1].any()


def test_projections_of_a_full_row_start_as_large_as_what_they_project():
    linformer = LinformerAttention(1, 1, max_tokens=509, rank=251)
    k = torch.randn(509, 101)
    for projection in (linformer.key_projection, linformer.value_projection):
        assert float((projection.detach().T @ k).std()) == pytest.approx(1, rel=0.03)


def test_with_rotary_positions_only_differences_matter():
    backbone = transformer(position=Rotary()).double()
    x = embedded([7, 5], 7)
    near, far, wide = (
        Embedded(x.hidden.double(), x.positions * times + shift, x.valid)
        for times, shift in ((1, 0), (1, 11), (3, 0))
    )
    assert_close(backbone(far), backbone(near), rtol=0, atol=1e-6)
    assert (backbone(wide) - backbone(near)).abs().max() > 1e-5


@pytest.mark.slow
def test_a_transformer_with_it_keeps_the_laws():
    def build(dim, causal):
        block = partial(
            PreNormBlock,
            attention=partial(
                MultiHeadAttention, mechanism=partial(LinformerAttention, max_tokens=17, rank=5)
            ),
        )
        return Transformer(dim, 2, num_heads=3, causal=causal, block=block)

    check_backbone(build, causal=[False], kinds=["text"], quick=True)


def test_too_long_sequences_settings_out_of_range_and_causality_are_refused():
    backbone = transformer()
    with pytest.raises(ValueError, match="14 tokens"):
        backbone(embedded([14, 3], 17))
    with pytest.raises(ValueError, match="max_tokens=0"):
        transformer(max_tokens=0)
    mechanism = partial(LinformerAttention, max_tokens=13, rank=5)
    with pytest.raises(ValueError, match="causal=True"):
        Transformer(
            24,
            1,
            causal=True,
            block=partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=mechanism)),
        )
