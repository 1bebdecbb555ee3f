"""Distances reach the scores as the papers say: against Hugging Face, against formulas written out, on any axes."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.conformance import check_backbone, made_up
from seqkit.layers.attention import Attention
from seqkit.layers.distance import ALiBi, RelativeEmbedding, T5Bias
from seqkit.layers.reading import Reading


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
    readers, read = torch.randn(2, 3, 2), torch.randn(2, 5, 2)
    bias = ALiBi().bias(readers, read, 2)
    for b, i, j in ((0, 1, 4), (1, 2, 0)):
        away = ((readers[b, i] - read[b, j]) ** 2).sum().sqrt()
        assert_close(bias[b, :, i, j], -away * torch.tensor([2.0**-4, 2.0**-8]))


def test_alibi_says_nothing_of_tokens_without_axes():
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
    readers = torch.zeros(1, 1, 2)
    read = torch.tensor([[[0, 0], [-1, 0], [0, 1], [2, 2], [-2, 2.8], [3, -4], [30, 40], [300, 400]]])
    # distances 0 1 1 2.8 3.4 5 50 500: four buckets of one distance, then 4 + log5(5 / 4) * 4 = 4.6 rounded down, ...
    assert t5.buckets(readers, read).tolist() == [[[0, 1, 1, 3, 3, 4, 7, 7]]]


def test_t5_rounds_fractions():
    t5 = T5Bias(2, num_buckets=8, max_distance=20, causal=True)
    whole, between = line(0.0, 1.0, 2.0, 5.0), line(0.2, 0.9, 2.3, 5.1)
    assert_close(t5.buckets(whole, whole), t5.buckets(between, between))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"num_buckets": 5}, "num_buckets=5 should be 4 or more, and even with causal=False"),
        ({"num_buckets": 1, "causal": True}, "num_buckets=1 should be 2 or more"),
        ({"num_buckets": 8, "max_distance": 4}, "max_distance=4 is reached by the 4 buckets of one distance each"),
    ],
)
def test_buckets_that_cannot_be_are_refused(how, message):
    with pytest.raises(ValueError, match=message):
        T5Bias(3, **how)


# ── Shaw ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_relative_embeddings_are_looked_up_by_clipped_signed_distance():
    shaw = RelativeEmbedding(5, max_distance=2)
    got = shaw.relative(row(4, start=3), row(7))
    for i in range(4):
        for j in range(7):
            assert_close(got[0, i, j], shaw.table[max(-2, min(2, j - (i + 3))) + 2])


def test_relative_embeddings_on_two_axes_have_no_side():
    shaw = RelativeEmbedding(5, max_distance=3, num_axes=2)
    read = torch.tensor([[[0, 0], [-1, 0], [0, 1], [1.5, 2], [30, 40]]])
    assert_close(shaw.relative(torch.zeros(1, 1, 2), read)[0, 0], shaw.table[[0, 1, 1, 2, 3]])


def test_attention_with_relative_embeddings_equals_equation_4():
    attention, shaw, x = Attention(14, 2), RelativeEmbedding(7, max_distance=1), torch.randn(1, 5, 14)
    got = attention(x, Reading(relative=shaw.relative(row(5), row(5))))
    q, k, v = ((x[0] @ attention.qkv.weight.T + attention.qkv.bias).split(14, dim=-1)[i] for i in range(3))
    read = torch.zeros(5, 14)
    for h in (slice(0, 7), slice(7, 14)):
        for i in range(5):
            keys = torch.stack([k[j, h] + shaw.table[max(-1, min(1, j - i)) + 1] for j in range(5)])
            read[i, h] = (q[i, h] @ keys.T / 7**0.5).softmax(0) @ v[:, h]
    assert_close(got[0], read @ attention.out.weight.T + attention.out.bias)


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="max_distance=0 and num_axes=1 should both be at least 1"):
        RelativeEmbedding(5, max_distance=0)


# ── inside a backbone ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "position",
    [
        ALiBi,
        partial(T5Bias, 3, num_buckets=6, max_distance=5),
        partial(T5Bias, 3, num_buckets=6, max_distance=5, causal=True),
        partial(RelativeEmbedding, 8, max_distance=2),
        partial(RelativeEmbedding, 8, max_distance=2, num_axes=2),
    ],
    ids=["ALiBi", "T5", "T5-causal", "Shaw", "Shaw-2d"],
)
def test_a_backbone_told_distances_keeps_the_laws(position):
    check_backbone(lambda dim, causal: Transformer(dim, 2, num_heads=3, causal=causal, position=position()))


@pytest.mark.parametrize("position", [ALiBi(), T5Bias(2), RelativeEmbedding(3, max_distance=4)])
def test_scores_see_differences_only(position):
    at, shift = row(7), 1000

    def told(x):
        return position.bias(x, x, 2) if "bias" in position.needs else position.relative(x, x)

    assert_close(told(at + shift), told(at))
    assert (told(at * 2) - told(at)).abs().max() > 0.01


def test_what_does_not_fit_the_heads_is_refused_when_built():
    with pytest.raises(ValueError, match=r"T5Bias\(num_heads=2\) is for as many heads; these are 3"):
        Transformer(24, 2, num_heads=3, position=T5Bias(2))
    with pytest.raises(ValueError, match=r"RelativeEmbedding\(channels=7\) is for heads that wide; these have 8"):
        Transformer(24, 2, num_heads=3, position=RelativeEmbedding(7, max_distance=2))


@pytest.mark.parametrize(
    ("position", "modality", "message"),
    [
        (T5Bias(3), "graph", "these tokens have no positions; leave it out"),
        (RelativeEmbedding(8, max_distance=2), "graph", "met positions of 0 axes; leave it out"),
        (RelativeEmbedding(8, max_distance=2), "image", "met positions of 2 axes; build it with num_axes=2"),
    ],
)
def test_tables_refuse_tokens_that_would_never_ask_them(position, modality, message):
    with pytest.raises(ValueError, match=message):
        Transformer(24, 2, num_heads=3, position=position).check(made_up()[modality][0])
