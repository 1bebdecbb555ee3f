"""ALiBi and T5's biases equal the papers' formulas and Hugging Face's code, on any axes."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.position.bias import ALiBi, EdgeBias, T5Bias, bias_of_types
from seqkit.testing import check_backbone, synthetic


def line(*positions):
    return torch.tensor(positions)[None, :, None]


def row(n, start=0):
    return torch.arange(start, start + n).double()[None, :, None]


# ── ALiBi ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (16, [i / 2 for i in range(1, 17)]),
        (3, [4, 8, 2]),  # two heads, then the first and third of four
        (6, [2, 4, 6, 8, 1, 3]),
        (11, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5]),
    ],
)
def test_alibi_is_a_slope_times_a_distance(num_heads, exponents):
    bias = ALiBi().bias(row(5), row(7), num_heads)
    right = [[[[-(2.0**-e) * abs(i - j) for j in range(7)] for i in range(5)] for e in exponents]]
    assert_close(bias, torch.tensor(right).double())


def test_alibi_on_two_axes_falls_with_the_euclidean_distance():
    queries, keys = torch.randn(2, 3, 2), torch.randn(2, 5, 2)
    bias = ALiBi().bias(queries, keys, 2)
    for b, i, j in ((0, 1, 4), (1, 2, 0)):
        distance = ((queries[b, i] - keys[b, j]) ** 2).sum().sqrt()
        assert_close(bias[b, :, i, j], -distance * torch.tensor([2.0**-4, 2.0**-8]))


def test_alibi_gives_tokens_without_axes_no_bias():
    assert ALiBi().bias(torch.zeros(2, 3, 0), torch.zeros(2, 5, 0), 2) is None


# ── T5 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (10, 17), (6, 97), (64, 33)])
def test_t5_bias_equals_hugging_faces(causal, num_buckets, max_distance):
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        d_model=6,
        num_heads=3,
        d_kv=2,
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=causal,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = T5Bias(3, num_buckets=num_buckets, max_distance=max_distance, causal=causal)
    ours.table.data = theirs.relative_attention_bias.weight.data.normal_()
    assert_close(ours.bias(row(307), row(307), 3), theirs.compute_bias(307, 307), rtol=0, atol=0)
    last = theirs.compute_bias(2, 307, past_seen_tokens=305)
    assert_close(ours.bias(row(2, start=305), row(307), 3), last, rtol=0, atol=0)  # as with a cache


@pytest.mark.parametrize("causal", [False, True])
def test_t5_buckets_on_two_axes_have_no_side(causal):
    t5 = T5Bias(2, num_buckets=8, max_distance=20, causal=causal)
    query = torch.zeros(1, 1, 2)
    keys = torch.tensor(
        [[[0, 0], [-1, 0], [0, 1], [2, 2], [-2, 2.8], [3, -4], [30, 40], [300, 400]]]
    )
    # distances 0 1 1 2.8 3.4 5 50 500: four buckets of one distance, then 4 + log5(5 / 4) * 4 = 4.6 rounded down, ...
    assert t5.buckets(query, keys).tolist() == [[[0, 1, 1, 3, 3, 4, 7, 7]]]


def test_t5_rounds_fractions():
    t5 = T5Bias(2, num_buckets=8, max_distance=20, causal=True)
    integers, fractions = line(0.0, 1.0, 2.0, 5.0), line(0.2, 0.9, 2.3, 5.1)
    assert_close(t5.buckets(integers, integers), t5.buckets(fractions, fractions))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_buckets": 5}, "num_buckets=5"),
        ({"num_buckets": 1, "causal": True}, "num_buckets=1"),
        ({"num_buckets": 8, "max_distance": 4}, "max_distance=4"),
    ],
)
def test_buckets_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        T5Bias(3, **settings)


# ── edges ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_edge_bias_is_a_number_per_edge_type_and_head_that_starts_at_zero():
    bias, edge_types = EdgeBias(3, 2), torch.tensor([[[0, 3, 1], [2, 0, 0]]])
    assert not bias_of_types(bias.weight, edge_types).any()
    torch.nn.init.normal_(bias.weight)
    got = bias_of_types(bias.weight, edge_types)
    assert got.equal(bias.weight[edge_types])
    got.sum().backward()
    assert bias.weight.grad.tolist() == [[3.0, 3.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(("num_edge_types", "num_heads"), [(0, 2), (3, 0)])
def test_an_edge_bias_of_nothing_is_refused(num_edge_types, num_heads):
    with pytest.raises(ValueError, match="=0; make it 1 or more"):
        EdgeBias(num_edge_types, num_heads)


# ── inside a backbone ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("position", "kinds"),
    [
        (ALiBi, ["image"]),
        (partial(T5Bias, 3, num_buckets=6, max_distance=5), ["series"]),
        (partial(T5Bias, 3, num_buckets=6, max_distance=5, causal=True), ["text"]),
    ],
    ids=["ALiBi", "T5", "T5-causal"],
)
def test_a_backbone_with_a_bias_keeps_the_laws(position, kinds):
    check_backbone(
        lambda dim, causal: Transformer(dim, 2, num_heads=3, causal=causal, position=position()),
        kinds=kinds,
        quick=True,
    )


@pytest.mark.parametrize("position", [ALiBi(), T5Bias(2)])
def test_a_bias_depends_on_differences_only(position):
    def bias(positions):
        return position.bias(positions, positions, 2)

    assert_close(bias(row(7) + 1000), bias(row(7)))
    assert (bias(row(7) * 2) - bias(row(7))).abs().max() > 0.01


def test_another_number_of_heads_is_refused_when_a_backbone_is_built():
    with pytest.raises(ValueError, match=r"num_heads=2.*3 heads"):
        Transformer(24, 2, num_heads=3, position=T5Bias(2))


def test_tokens_without_positions_are_refused():
    spec, _ = synthetic()["graph"]
    with pytest.raises(ValueError, match="positions"):
        Transformer(24, 2, num_heads=3, position=T5Bias(3)).check_supported(spec)
