"""Rotary positions are RoFormer's complex factors, axis by axis, and scores depend on differences only."""

import cmath
import math

import pytest
import torch
from torch.testing import assert_close

from seqkit.nn.attention.multi_head import apply_rotary
from seqkit.nn.position.base import RelativePosition
from seqkit.nn.position.rotary import LinearScaling, LLaMA3Scaling, Rotary


def test_rotary_is_the_papers_complex_factor():
    positions = torch.randn(2, 3, 2) * 10
    got = Rotary(base=50.0).rotary(positions, 13)  # six pairs, three per axis, one channel left over
    assert got.shape == (2, 1, 3, 6)
    for b in range(2):
        for n in range(3):
            for axis in range(2):
                for i in range(3):
                    right = cmath.exp(1j * float(positions[b, n, axis]) * 50.0 ** (-i / 3))
                    assert abs(complex(got[b, 0, n, axis * 3 + i]) - right) < 1e-4


@pytest.mark.parametrize("num_axes", [1, 2])
def test_scores_of_rotated_queries_and_keys_depend_on_differences_only(num_axes):
    q, k = torch.randn(2, 1, 1, 5, 8).double()
    positions, shift = torch.randn(1, 5, num_axes) * 3, torch.randn(num_axes) * 20

    def scores(positions):
        rotary = Rotary().rotary(positions, 8)
        return apply_rotary(q, rotary) @ apply_rotary(k, rotary).mT

    assert_close(scores(positions + shift), scores(positions), rtol=1e-4, atol=1e-4)
    assert (scores(positions * 2) - scores(positions)).abs().max() > 0.1


def test_channels_without_a_pair_are_not_rotated():
    x, rotary = torch.randn(2, 3, 5, 7), Rotary().rotary(torch.randn(2, 5, 1), 7)
    rotated = apply_rotary(x, rotary)
    assert rotated.shape == x.shape
    assert_close(rotated[..., 6], x[..., 6])
    assert_close(rotated.norm(dim=-1), x.norm(dim=-1))  # a rotation keeps lengths


@pytest.mark.parametrize(("head_dim", "share", "pairs"), [(12, 0.25, 1), (13, 0.95, 6), (20, 0.4, 4), (20, 1.0, 10)])
def test_the_first_share_of_the_channels_is_rotated_as_if_it_were_the_whole(head_dim, share, pairs):
    x, positions = torch.randn(2, 3, 5, head_dim), torch.randn(2, 5, 1)
    rotary = Rotary(base=50.0, share=share).rotary(positions, head_dim)
    rotated = apply_rotary(x, rotary)
    assert rotary.shape[-1] == pairs
    whole = apply_rotary(x[..., : 2 * pairs].contiguous(), Rotary(base=50.0).rotary(positions, 2 * pairs))
    assert_close(rotated[..., : 2 * pairs], whole)
    assert torch.equal(rotated[..., 2 * pairs :], x[..., 2 * pairs :])


def test_linear_scaling_divides_positions():
    positions = torch.randn(2, 5, 2) * 10
    got = Rotary(scaling=LinearScaling(8.0)).rotary(positions, 12)
    assert_close(got, Rotary().rotary(positions / 8, 12))


@pytest.mark.parametrize(("low", "high", "tokens", "factor"), [(1.0, 4.0, 8192, 8.0), (0.5, 2.0, 97, 3.0)])
def test_llama_3_scaling_is_hugging_faces(low, high, tokens, factor):
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": tokens,
    }
    config = LlamaConfig(head_dim=64, max_position_embeddings=100_000, rope_parameters=rope)
    right, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    scaling = LLaMA3Scaling(factor, low_freq_factor=low, high_freq_factor=high, original_max_tokens=tokens)
    rotary = Rotary(base=500_000.0, scaling=scaling).rotary(torch.ones(1, 1, 1), 64)
    assert_close(rotary[0, 0, 0].angle(), right, rtol=1e-5, atol=1e-6)
    plain = 500_000.0 ** -(torch.arange(32) / 32)
    kept = plain * tokens / (2 * math.pi) >= high
    divided = plain * tokens / (2 * math.pi) <= low
    assert kept.any()
    assert divided.any()
    assert torch.equal(scaling(plain)[kept], plain[kept])
    assert torch.equal(scaling(plain)[divided], plain[divided] / factor)


def test_without_axes_nothing_is_rotated():
    assert Rotary().rotary(torch.zeros(2, 3, 0), 8) is None


def test_a_relative_position_does_nothing_by_default():
    positions, nothing = torch.zeros(2, 3, 1), RelativePosition()
    assert nothing.rotary(positions, 8) is None
    assert nothing.bias(positions, positions, 2) is None
    assert nothing.relative(positions, positions) is None


def test_heads_too_narrow_for_the_axes_are_refused():
    for call in (lambda: Rotary().rotary(torch.zeros(1, 1, 2), 3), lambda: Rotary().check_axes(2, 3)):
        with pytest.raises(ValueError, match="a head_dim of 3 has no channel pair for each of 2 axes"):
            call()
    with pytest.raises(ValueError, match=r"a head_dim of 8 with share=0.2 has no .* use wider heads or a larger share"):
        Rotary(share=0.2).check_axes(1, 8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rotary(base=0), "base=0 should be positive"),
        (lambda: Rotary(share=0), "share=0 of a head's channels are rotated; make it above 0 and at most 1"),
        (lambda: Rotary(share=1.5), "share=1.5 of a head's channels"),
        (lambda: LinearScaling(0), "factor=0 divides the frequencies; make it larger than 0"),
        (lambda: LLaMA3Scaling(-1.0), "factor=-1.0 divides the frequencies; make it larger than 0"),
        (lambda: LLaMA3Scaling(low_freq_factor=4.0), "low_freq_factor=4.0 and high_freq_factor=4.0 have nothing"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
