"""Rotary positions are RoFormer's complex factors, axis by axis, and scores depend on differences only."""

import cmath
import math

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.multi_head import apply_rotary
from seqkit.nn.position import rotary_scaling
from seqkit.nn.position.base import RelativePosition
from seqkit.nn.position.rotary import Rotary
from seqkit.nn.position.rotary_scaling import (
    LinearScaling,
    LLaMA3Scaling,
    LongRoPEScaling,
    YaRNScaling,
)
from seqkit.objectives import Masked


def test_rotary_is_the_papers_complex_factor():
    positions = torch.randn(2, 3, 2) * 10
    # six pairs, three per axis, one channel left over
    got = Rotary(base=50.0).rotary(positions, 13)
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


@pytest.mark.parametrize(
    ("head_dim", "share", "pairs"), [(12, 0.25, 1), (13, 0.95, 6), (20, 0.4, 4), (20, 1.0, 10)]
)
def test_the_first_share_of_the_channels_is_rotated_as_if_it_were_the_whole(head_dim, share, pairs):
    x, positions = torch.randn(2, 3, 5, head_dim), torch.randn(2, 5, 1)
    rotary = Rotary(base=50.0, share=share).rotary(positions, head_dim)
    rotated = apply_rotary(x, rotary)
    assert rotary.shape[-1] == pairs
    whole = apply_rotary(
        x[..., : 2 * pairs].contiguous(), Rotary(base=50.0).rotary(positions, 2 * pairs)
    )
    assert_close(rotated[..., : 2 * pairs], whole)
    assert torch.equal(rotated[..., 2 * pairs :], x[..., 2 * pairs :])


def test_linear_scaling_divides_positions():
    positions = torch.randn(2, 5, 2) * 10
    got = Rotary(scaling=LinearScaling(8.0)).rotary(positions, 12)
    assert_close(got, Rotary().rotary(positions / 8, 12))


@pytest.mark.parametrize(
    ("low", "high", "tokens", "factor"), [(1.0, 4.0, 8192, 8.0), (0.5, 2.0, 97, 3.0)]
)
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
    scaling = LLaMA3Scaling(
        factor, low_freq_factor=low, high_freq_factor=high, original_max_tokens=tokens
    )
    rotary = Rotary(base=500_000.0, scaling=scaling).rotary(torch.ones(1, 1, 1), 64)
    assert_close(rotary[0, 0, 0].angle(), right, rtol=1e-5, atol=1e-6)
    plain = 500_000.0 ** -(torch.arange(32) / 32)
    kept = plain * tokens / (2 * math.pi) >= high
    divided = plain * tokens / (2 * math.pi) <= low
    assert kept.any()
    assert divided.any()
    assert torch.equal(scaling(plain, 500_000.0)[kept], plain[kept])
    assert torch.equal(scaling(plain, 500_000.0)[divided], plain[divided] / factor)


def theirs(kind, base, head_dim, *, tokens=None, longest=100_000, **rope):
    """Hugging Face's frequencies and attention factor. tokens: length of the sequence."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": kind, "rope_theta": base, **rope}
    config = LlamaConfig(head_dim=head_dim, max_position_embeddings=longest, rope_parameters=rope)
    return ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=tokens)


def assert_rotates(scaling, base, head_dim, right, factor):
    rotary = Rotary(base=base, scaling=scaling).rotary(torch.ones(1, 1, 1), head_dim)[0, 0, 0]
    assert_close(rotary.angle(), right, rtol=1e-5, atol=1e-6)
    assert_close(rotary.abs(), torch.full_like(right, factor))


@pytest.mark.parametrize(
    "settings",
    [
        {"factor": 4.0},
        {"factor": 1.0},
        {"factor": 8.0, "attention_factor": 1.3},
        {"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.5},
        {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0},
        {"factor": 4.0, "beta_fast": 7.0, "beta_slow": 0.3, "truncate": False},
        {"factor": 4.0, "beta_fast": 2.0, "beta_slow": 1.9},
    ],
)
@pytest.mark.parametrize(("base", "head_dim", "tokens"), [(10_000.0, 64, 4096), (1e6, 16, 97)])
def test_yarn_is_hugging_faces(settings, base, head_dim, tokens):
    right, factor = theirs(
        "yarn", base, head_dim, original_max_position_embeddings=tokens, **settings
    )
    scaling = YaRNScaling(**settings, original_max_tokens=tokens)
    assert_rotates(scaling, base, head_dim, right, factor)
    if tokens == 4096 and settings["factor"] == 4.0:
        plain = base ** -(torch.arange(head_dim // 2) / (head_dim // 2))
        scaled = scaling(plain, base)
        assert torch.equal(scaled[0], plain[0])
        assert_close(scaled[-1], plain[-1] / 4)


@pytest.mark.parametrize("long", [False, True])
def test_longrope_is_hugging_faces_with_either_list(long):
    lists = {"short_factor": [1.0, 1.1, 1.3, 1.7], "long_factor": [1.0, 2.3, 5.9, 31.0]}
    given = {"original_max_position_embeddings": 64, **lists}
    right, factor = theirs("longrope", 500.0, 8, tokens=65 if long else 64, longest=512, **given)
    factors = lists["long_factor" if long else "short_factor"]
    assert_rotates(
        LongRoPEScaling(factors, factor=8.0, original_max_tokens=64), 500.0, 8, right, factor
    )
    other = LongRoPEScaling(factors, factor=8.0, original_max_tokens=64, attention_factor=1.2)
    assert_rotates(other, 500.0, 8, right, 1.2)


def test_positions_that_the_factors_do_not_fit_are_refused_and_nan_where_none_is_read(monkeypatch):
    scaling = LongRoPEScaling([2.0], factor=2.0, original_max_tokens=9, max_tokens=5)
    rotary = Rotary(scaling=scaling)
    with pytest.raises(ValueError, match="more than 5 tokens"):
        rotary.rotary(torch.arange(6.0)[None, :, None], 2)
    monkeypatch.setattr(rotary_scaling, "may_read", lambda x: False)
    found = rotary.rotary(torch.arange(6.0)[None, :, None], 2)
    assert found.isnan().flatten().tolist() == [False] * 5 + [True]


def test_an_attention_factor_is_of_rotated_channels_and_squared_in_scores():
    scaling = LongRoPEScaling([1.0, 1.0], factor=1.0, original_max_tokens=64, attention_factor=1.5)
    positions, x = torch.arange(5.0)[None, :, None], torch.randn(1, 1, 5, 7)
    scaled = apply_rotary(x, Rotary(share=0.6, scaling=scaling).rotary(positions, 7))
    plain = apply_rotary(x, Rotary(share=0.6).rotary(positions, 7))
    assert_close(scaled[..., :4], 1.5 * plain[..., :4])
    assert torch.equal(scaled[..., 4:], x[..., 4:])


def test_a_scaling_that_does_not_fit_the_heads_is_refused_when_a_model_is_built():
    position = Rotary(scaling=LongRoPEScaling([1.0, 2.0], factor=2.0, original_max_tokens=64))
    position.check_axes(1, 4)
    position.check_axes(2, 8)
    with pytest.raises(ValueError, match="2 factors for 4"):
        Model(TokenSpec(vocab_size=7), Transformer(16, 1, num_heads=2, position=position), Masked())
    with pytest.raises(ValueError, match="base=1"):
        Rotary(base=1, scaling=YaRNScaling(2.0, original_max_tokens=64)).check_axes(1, 8)


def test_without_axes_nothing_is_rotated():
    assert Rotary().rotary(torch.zeros(2, 3, 0), 8) is None


def test_a_relative_position_does_nothing_by_default():
    positions, nothing = torch.zeros(2, 3, 1), RelativePosition()
    assert nothing.rotary(positions, 8) is None
    assert nothing.bias(positions, positions, 2) is None


def test_heads_too_narrow_for_the_axes_are_refused():
    for call in (
        lambda: Rotary().rotary(torch.zeros(1, 1, 2), 3),
        lambda: Rotary().check_axes(2, 3),
    ):
        with pytest.raises(ValueError, match=r"head_dim of 3 .* 2 axes"):
            call()
    with pytest.raises(ValueError, match=r"head_dim of 8 with share=0.2"):
        Rotary(share=0.2).check_axes(1, 8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rotary(base=0), "base=0; give a finite number above 0"),
        (lambda: Rotary(share=0), "share=0"),
        (lambda: Rotary(share=1.5), "share=1.5"),
        (lambda: LinearScaling(0), "factor=0"),
        (lambda: LLaMA3Scaling(-1.0), "factor=-1.0"),
        (lambda: LLaMA3Scaling(low_freq_factor=4.0), "low_freq_factor=4.0"),
        (lambda: YaRNScaling(0, original_max_tokens=9), "factor=0"),
        (lambda: YaRNScaling(2, original_max_tokens=0), "original_max_tokens=0"),
        (lambda: YaRNScaling(2, original_max_tokens=9, beta_slow=0), "beta_slow=0"),
        (lambda: YaRNScaling(2, original_max_tokens=9, beta_slow=40), "beta_slow=40"),
        (lambda: YaRNScaling(2, original_max_tokens=9, attention_factor=0), "attention_factor=0"),
        (lambda: LongRoPEScaling([1, 0], factor=2, original_max_tokens=9), r"factors\[1\]=0"),
        (
            lambda: LongRoPEScaling([1], factor=2, original_max_tokens=9, max_tokens=0),
            "max_tokens=0",
        ),
        (lambda: LongRoPEScaling([1], factor=0, original_max_tokens=9), "factor=0"),
        (lambda: LongRoPEScaling([1], factor=2, original_max_tokens=1), "original_max_tokens=1"),
        (
            lambda: LongRoPEScaling([1], factor=2, original_max_tokens=9, attention_factor=-1),
            "attention_factor=-1",
        ),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
