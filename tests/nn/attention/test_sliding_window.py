"""Windows, strides and global tokens equal their definition, and never make a tensor of all pairs."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from einops import rearrange
from sizes import Sizes
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenSpec
from seqkit.nn.attention import sliding_window
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.attention.sliding_window import SlidingWindowAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.bias import ALiBi
from seqkit.nn.position.rotary import Rotary
from seqkit.testing import EmbeddedBackbone, check_backbone, synthetic
from seqkit.testing.laws import (
    batch_mates_change_nothing,
    no_token_attends_to_the_future,
    padding_changes_nothing,
    step_by_step_equals_at_once,
)

SLOW = pytest.mark.slow
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
SETTINGS = pytest.mark.parametrize(
    "settings",
    [
        {"size": 2},
        {"size": 7, "num_global": 3},
        {"size": 7, "num_global": 13},
        {"size": 41, "num_global": 1},
        {"size": 3, "stride": 5},
        {"size": 7, "stride": 2, "num_global": 2},
        {"size": 5, "stride": 13, "num_global": 1},
        {"size": 149, "stride": 151, "num_global": 157},
    ],
    ids=str,
)


def may_attend(valid, causal, i, j, size, stride=0, num_global=0):
    """The definition. Padding attends to itself, which no output shows."""
    near = abs(i - j) < size or (stride and (i - j) % stride == 0) or min(i, j) < num_global
    return i == j or bool(valid[j] and near and (not causal or j <= i))


def defined_mask(lengths, n, causal, settings):
    return torch.tensor(
        [[[may_attend(torch.arange(n) < m, causal, i, j, **settings) for j in range(n)] for i in range(n)]
         for m in lengths]
    )  # fmt: skip


def heads(n, num_kv_heads, dtype=torch.float64):
    q, k, v = (
        torch.randn(2, h, n, 7, dtype=dtype, requires_grad=True)
        for h in (3, num_kv_heads, num_kv_heads)
    )
    return q, k, v


def difference(mechanism, n, causal, settings, num_kv_heads=3, scores=None):
    """How far output, gradients and weights of `mechanism` are from softmax under a mask of all pairs.

    scores: temperature and softcap of that softmax.
    """
    lengths = (n, max(1, n - 4))
    attn_mask = defined_mask(lengths, n, causal, settings)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    context = AttentionContext(is_causal=causal, query_valid=valid, key_valid=valid)
    q, k, v = heads(n, num_kv_heads)
    real = valid[:, None, :, None]
    right = ScaledDotProductAttention(3, 7, **(scores or {})).double()
    masked = AttentionContext(rearrange(attn_mask, "b n m -> b 1 n m"))
    got, wanted = mechanism(q, k, v, context) * real, right(q, k, v, masked) * real
    direction = torch.randn_like(got)
    pairs = list(
        zip(*(torch.autograd.grad((x * direction).sum(), (q, k, v)) for x in (got, wanted)))
    )
    weights = (
        mechanism.attention_weights(q, k, context) * real,
        right.attention_weights(q, k, masked) * real,
    )
    pairs += [(got, wanted), weights]
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@CAUSAL
@SETTINGS
def test_output_gradients_and_weights_are_those_of_the_definition(settings, causal):
    for n, num_kv_heads in ((1, 3), (11, 1), (37, 3), (101, 1)):
        assert (
            difference(SlidingWindowAttention(3, 7, **settings), n, causal, settings, num_kv_heads)
            < 1e-10
        )


@CAUSAL
@pytest.mark.parametrize(
    "wrong",
    [{"size": 6}, {"size": 4}, {"stride": 5}, {"stride": 12}, {"stride": 0}, {"num_global": 0}, {"num_global": 1},
     {"num_global": 3}],
    ids=str,
)  # fmt: skip
def test_another_setting_differs_from_the_definition(wrong, causal):
    """So the reference notices a window one too wide or narrow, another stride, one global token too few or many."""
    settings = {"size": 5, "stride": 6, "num_global": 2}
    assert (
        difference(SlidingWindowAttention(3, 7, **{**settings, **wrong}), 37, causal, settings)
        > 1e-3
    )


@CAUSAL
def test_a_window_that_covers_the_sequence_is_scaled_dot_product_attention(causal):
    q, k, v = heads(37, 3)
    assert_close(SlidingWindowAttention(3, 7, size=37)(q, k, v, AttentionContext(is_causal=causal)),
                 ScaledDotProductAttention(3, 7)(q, k, v, AttentionContext(is_causal=causal)))  # fmt: skip


# ── scores: temperature and softcap ──────────────────────────────────────────────────────────────────────────────────


SCORES = pytest.mark.parametrize(
    "scores",
    [{"temperature": 0.3}, {"softcap": 0.7}, {"temperature": 0.3, "softcap": 0.7}],
    ids=str,
)


@CAUSAL
@SETTINGS
@SCORES
def test_scores_are_divided_and_bounded_before_the_mask(scores, settings, causal):
    """Both at once over several blocks, too."""
    for n, num_kv_heads in ((1, 3), (11, 1), *([(101, 3)] if len(scores) == 2 else [])):
        window = SlidingWindowAttention(3, 7, **settings, **scores)
        assert difference(window, n, causal, settings, num_kv_heads, scores) < 1e-10


@CAUSAL
@pytest.mark.parametrize("stride", [0, 6])
@pytest.mark.parametrize(
    "wrong",
    [{"temperature": None}, {"temperature": 0.4}, {"softcap": None}, {"softcap": 0.8}],
    ids=str,
)
def test_another_temperature_or_softcap_differs(wrong, stride, causal):
    settings, scores = (
        {"size": 5, "stride": stride, "num_global": 2},
        {"temperature": 0.3, "softcap": 0.7},
    )
    window = SlidingWindowAttention(3, 7, **settings, **{**scores, **wrong})
    assert difference(window, 37, causal, settings, scores=scores) > 1e-3


@SETTINGS
@SCORES
def test_scores_of_a_cached_step_are_divided_and_bounded(scores, settings):
    """Two rows are padded on the left, as when prompts differ in length: the padding counts in no distance."""
    n, lengths = 37, (37, 31, 5)
    q, k, v = (torch.randn(3, h, n, 7, dtype=torch.float64) for h in (3, 1, 1))
    valid = torch.arange(n) >= n - torch.tensor(lengths)[:, None]
    window, right = (
        SlidingWindowAttention(3, 7, **settings, **scores),
        ScaledDotProductAttention(3, 7, **scores),
    )
    cache = window.init_cache(n)
    for start, end in ((0, 20), (20, 33), (33, 34), (34, 37)):
        context = AttentionContext(
            is_causal=True, query_valid=valid[:, start:end], key_valid=valid[:, :end]
        )
        got = window(q[:, :, start:end], k[:, :, start:end], v[:, :, start:end], context, cache)
        for row, length in enumerate(lengths):
            if start == 0 and length < n:
                continue  # nothing is cached before the first step, which counts columns
            first = n - length  # its first real column
            own = slice(max(start, first), end)
            attn_mask = defined_mask([end - first], end - first, True, settings)[
                :, own.start - end :
            ]
            wanted = right(
                *(
                    x[row : row + 1, :, part]
                    for x, part in ((q, own), (k, slice(first, end)), (v, slice(first, end)))
                ),
                AttentionContext(rearrange(attn_mask, "b n m -> b 1 n m")),
            )
            assert_close(got[row : row + 1, :, own.start - start :], wanted)


@CAUSAL
def test_bounded_scores_keep_the_cost_linear(causal):
    window = SlidingWindowAttention(2, 3, size=37, num_global=5, softcap=0.7)
    small, large = sizes(window, 1009, causal), sizes(window, 4 * 1009, causal)
    assert large.largest < (4 * 1009) ** 2 / 16
    assert 3.8 < large.total / small.total < 4.2


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def sizes(mechanism, n, causal):
    q, k, v = (torch.randn(1, 2, n, 3, requires_grad=True) for _ in range(3))
    with Sizes() as made:
        mechanism(q, k, v, AttentionContext(is_causal=causal)).sum().backward()
    return made


@CAUSAL
def test_without_stride_the_sum_of_all_tensors_grows_linearly(causal):
    window = SlidingWindowAttention(2, 3, size=37, num_global=5)
    small, large = sizes(window, 1009, causal), sizes(window, 4 * 1009, causal)
    assert large.largest < (4 * 1009) ** 2 / 16
    assert 3.8 < large.total / small.total < 4.2
    assert 3.5 < large.largest / small.largest < 4.2


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def transformer(
    dim, causal, window=None, position=None, num_kv_heads=None, mechanism=SlidingWindowAttention
):
    attention = partial(
        MultiHeadAttention,
        mechanism=partial(mechanism, **(window or {"size": 3})),
        num_kv_heads=num_kv_heads,
    )
    return Transformer(
        dim,
        2,
        num_heads=3,
        causal=causal,
        block=partial(PreNormBlock, attention=attention),
        position=position,
    )


@pytest.mark.parametrize(
    "window",
    [
        {"size": 2},
        {"size": 3, "num_global": 2},
        {"size": 2, "stride": 3},
        pytest.param({"size": 2, "stride": 2, "num_global": 1}, marks=SLOW),
        pytest.param(
            {"size": 2, "stride": 3, "num_global": 1, "temperature": 0.7, "softcap": 0.7},
            marks=SLOW,
        ),
        pytest.param({"size": 3, "temperature": 0.7, "softcap": 0.7}, marks=SLOW),
    ],
    ids=str,
)
def test_a_transformer_with_windows_keeps_the_laws(window, monkeypatch):
    # several blocks in the short examples of the laws
    monkeypatch.setattr(sliding_window, "MIN_BLOCK_SIZE", 2)
    check_backbone(partial(transformer, window=window), kinds=["text"], quick=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "kind"),
    [({"size": 3}, "image"), ({"size": 2, "stride": 3, "num_global": 1}, "text")],
)
def test_windows_of_shared_keys_keep_the_laws_of_long_texts_too(window, kind, monkeypatch):
    monkeypatch.setattr(sliding_window, "MIN_BLOCK_SIZE", 2)
    check_backbone(
        partial(transformer, window=window, num_kv_heads=1, position=Rotary()), kinds=[kind]
    )


class AttendsToPadding(SlidingWindowAttention):
    def _mask(self, context, *, is_continued):
        return super()._mask(replace(context, key_valid=None), is_continued=is_continued)


class AttendsAhead(SlidingWindowAttention):
    def _mask(self, context, *, is_continued):
        mask = super()._mask(context, is_continued=is_continued)
        return lambda b, i, j: mask(b, i, j) | (j == i + 1)


class CountsPadding(SlidingWindowAttention):
    """Distances to cached tokens count columns, padding between them included."""

    def _mask(self, context, *, is_continued):
        return super()._mask(context, is_continued=False)


class WiderWithACache(SlidingWindowAttention):
    def _mask(self, context, *, is_continued):
        wider = SlidingWindowAttention(3, 8, size=self.size + is_continued)
        return SlidingWindowAttention._mask(wider, context, is_continued=is_continued)


@pytest.mark.parametrize(
    ("mechanism", "law", "causal"),
    [
        (AttendsToPadding, padding_changes_nothing, False),
        (AttendsToPadding, batch_mates_change_nothing, False),
        (AttendsAhead, no_token_attends_to_the_future, True),
        (CountsPadding, step_by_step_equals_at_once, True),
        (WiderWithACache, step_by_step_equals_at_once, True),
    ],
)
def test_a_law_notices_a_window_that(mechanism, law, causal):
    spec, examples = synthetic()["text"]
    law(EmbeddedBackbone(spec, transformer(24, causal)), examples)
    with pytest.raises(AssertionError):
        law(EmbeddedBackbone(spec, transformer(24, causal, mechanism=mechanism)), examples)


# ── the rest ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("softcap", [None, 0.7])
@pytest.mark.parametrize("stride", [0, 5])
def test_dropout_of_attention_weights_acts_while_training_only_and_keeps_the_mean(stride, softcap):
    window = SlidingWindowAttention(
        3, 7, size=11, stride=stride, num_global=1, dropout=0.3, softcap=softcap
    )
    q, k, _ = (x.detach().float() for x in heads(1009, 3))
    ones = torch.ones(2, 3, 1009, 7)
    output = window(q, k, ones, AttentionContext(is_causal=True))
    assert output.std() > 0.05
    assert float(output.mean()) == pytest.approx(1.0, abs=0.02)
    assert_close(window.eval()(q, k, ones, AttentionContext(is_causal=True)), ones)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 1}, "size=1"),
        ({"size": 3, "stride": 1}, "stride=1"),
        ({"size": 3, "stride": -2}, "stride=-2"),
        ({"size": 3, "num_global": -1}, "num_global=-1"),
        ({"size": 3, "temperature": 0.0}, "temperature=0.0"),
        ({"size": 3, "temperature": math.nan}, "temperature=nan"),
        ({"size": 3, "softcap": 0.0}, "softcap=0.0"),
        ({"size": 3, "softcap": -2.0}, "softcap=-2.0"),
        ({"size": 3, "dropout": 1.0}, "dropout=1.0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SlidingWindowAttention(3, 7, **settings)


def test_features_that_it_does_not_support_are_refused_when_a_backbone_is_built():
    with pytest.raises(ValueError, match="bias"):
        transformer(24, False, position=ALiBi())
    with pytest.raises(ValueError, match="adjacency"):
        transformer(24, False).check_supported(
            TokenSpec(num_features=3, num_axes=0, num_edge_types=2)
        )
    with pytest.raises(ValueError, match="cross-attention"):
        attention = partial(MultiHeadAttention, mechanism=partial(SlidingWindowAttention, size=3))
        Transformer(
            24,
            1,
            num_heads=3,
            block=partial(PreNormBlock, cross_attention=True, attention=attention),
        )
