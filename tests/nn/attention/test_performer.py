"""Performer estimates softmax attention, the better the more features, and no token is leaked to earlier ones."""

import math
from functools import partial

import pytest
import torch
from einops import einsum
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import (
    MultiHeadAttention,
    ScaledDotProductAttention,
    apply_rotary,
)
from seqkit.nn.attention.performer import PerformerAttention, orthogonal_directions
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary
from seqkit.testing import check_backbone


def queries_keys_values(n, c=8, dtype=torch.float64):
    """Of a size at which the estimate is good: its variance grows with exp of their squares."""
    return (torch.randn(2, 3, n, c, dtype=dtype) * scale for scale in (0.5, 0.5, 1.0))


def mean_error(num_features, causal, draws=8):
    """Of the output, against exact softmax attention, root mean square over draws of directions."""
    torch.manual_seed(3)
    q, k, v = queries_keys_values(11)
    right = ScaledDotProductAttention(3, 8)(q, k, v, AttentionContext(is_causal=causal))
    errors = [
        PerformerAttention(3, 8, num_features=num_features)(
            q, k, v, AttentionContext(is_causal=causal)
        )
        - right
        for _ in range(draws)
    ]
    return float(torch.stack(errors).square().mean().sqrt())


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_the_error_falls_with_the_square_root_of_the_features(causal):
    few, many = mean_error(32, causal), mean_error(2048, causal)
    assert 0.35 < math.log(few / many) / math.log(2048 / 32) < 0.65
    assert many < 0.05


def test_products_of_features_are_the_softmax_kernel_on_average():
    """Choromanski et al. 2021, equation 5, without the factor that cancels: a ratio of two kernels."""
    torch.manual_seed(5)
    q, k = (torch.randn(1, 1, 2, 4, dtype=torch.float64) * 0.7 for _ in range(2))
    performer = PerformerAttention(1, 4, num_features=40_000)
    features = performer.query_features(q), performer.key_features(k)
    got = einsum(*features, "b h n f, b h m f -> b h n m")
    right = (einsum(q, k, "b h n c, b h m c -> b h n m") / 2).exp()
    assert_close(got[..., 0] / got[..., 1], right[..., 0] / right[..., 1], rtol=0.03, atol=0.0)


def test_directions_are_orthogonal_in_blocks_and_each_is_standard_normal():
    directions = orthogonal_directions(3001, 7)
    assert directions.shape == (3001, 7)
    for start in (0, 7, 2996):
        block = directions[start : start + 7]
        off = block @ block.T - torch.diag(block.square().sum(dim=-1))
        assert off.abs().max() < 1e-4
    assert float(directions.square().sum(dim=-1).mean()) == pytest.approx(7, rel=0.05)
    assert float(directions.std()) == pytest.approx(1, rel=0.05)
    assert directions.mean(dim=0).abs().max() < 0.1


def test_attention_weights_times_values_are_the_output():
    performer = PerformerAttention(3, 8, num_features=13).double()
    valid = torch.arange(131) < torch.tensor([[131], [90]])
    for causal in (False, True):
        q, k, v = queries_keys_values(131)
        made = AttentionContext(is_causal=causal, query_valid=valid, key_valid=valid)
        weights = performer.attention_weights(q, k, made)
        assert_close(performer(q, k, v, made), einsum(weights, v, "b h n m, b h m c -> b h n c"))
        assert not weights[1, :, :, 90:].any()


def test_a_huge_later_key_changes_nothing_before_it_not_even_by_rounding():
    performer = PerformerAttention(3, 8, num_features=64)
    q, k, v = queries_keys_values(7, dtype=torch.float32)
    huge = k.clone()
    huge[:, :, 5] *= 20
    right, got = (performer(q, keys, v, AttentionContext(is_causal=True)) for keys in (k, huge))
    assert torch.equal(got[:, :, :5], right[:, :, :5])
    assert not torch.equal(got[:, :, 5:], right[:, :, 5:])


@pytest.mark.parametrize(("c", "scale"), [(8, 3.0), (256, 1.0), (512, 1.0), (256, 0.01)])
def test_wide_heads_and_large_keys_stay_finite_and_keep_their_weight(c, scale):
    performer = PerformerAttention(1, c, num_features=64)
    q, k = (torch.randn(1, 1, 5, c) * scale for _ in range(2))
    k[:, :, 0] = performer.directions[0] * c**0.25  # as large as an exponent can be
    v = torch.ones(1, 1, 5, c)
    k.requires_grad_()
    output = performer(q, k, v, AttentionContext(is_causal=True))
    assert_close(output, v)
    assert torch.autograd.grad(output[..., 0].sum(), k)[0].isfinite().all()


def test_rotated_queries_and_keys_are_estimated_as_rotated():
    q, k, v = queries_keys_values(11)
    rotary = Rotary(base=10.0).rotary(torch.arange(11.0)[None, :, None], 8).to(torch.complex128)
    q, k = apply_rotary(q, rotary), apply_rotary(k, rotary)
    right = ScaledDotProductAttention(3, 8)(q, k, v, AttentionContext())
    got = PerformerAttention(3, 8, num_features=4096)(q, k, v, AttentionContext())
    assert (got - right).square().mean().sqrt() < 0.05


def test_directions_are_saved_drawn_by_torchs_seed_and_differ_between_layers():
    torch.manual_seed(7)
    first, second = PerformerAttention(3, 8), PerformerAttention(3, 8)
    torch.manual_seed(7)
    assert torch.equal(PerformerAttention(3, 8).directions, first.directions)
    assert not torch.equal(first.directions, second.directions)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.directions, first.directions)


@pytest.mark.parametrize(("position", "kind"), [(None, "text"), (Rotary(), "image")])
def test_a_transformer_with_it_keeps_the_laws(position, kind):
    block = partial(
        PreNormBlock,
        attention=partial(
            MultiHeadAttention,
            mechanism=partial(PerformerAttention, num_features=7),
            num_kv_heads=1,
        ),
    )
    check_backbone(
        lambda dim, causal: Transformer(
            dim, 2, num_heads=3, causal=causal, block=block, position=position
        ),
        kinds=[kind],
        quick=True,
    )


def test_no_features_are_refused():
    with pytest.raises(ValueError, match="num_features=0"):
        PerformerAttention(3, 8, num_features=0)
