"""Windows, strides and global tokens read what their definition says, and never make a tensor of all pairs."""

from functools import partial

import pytest
import torch
from einops import rearrange
from sizes import Sizes
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.conformance import Reader, check_backbone, laws, made_up
from seqkit.contract import TokenSpec
from seqkit.layers import sparse
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.distance import ALiBi
from seqkit.layers.mechanism import ScaledDotProduct
from seqkit.layers.position import Rotary
from seqkit.layers.reading import Reading
from seqkit.layers.sparse import Window

CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["both-ways", "causal"])
SETTINGS = pytest.mark.parametrize(
    "settings",
    [
        {"size": 2},
        {"size": 7, "num_global": 3},
        {"size": 41, "num_global": 1},
        {"size": 3, "stride": 5},
        {"size": 7, "stride": 2, "num_global": 2},
        {"size": 5, "stride": 13, "num_global": 1},
        {"size": 149, "stride": 151, "num_global": 157},
    ],
    ids=str,
)


def readable(real, causal, i, j, size, stride=0, num_global=0):
    """The definition. Padding reads itself, which nobody sees."""
    near = abs(i - j) < size or (stride and (i - j) % stride == 0) or min(i, j) < num_global
    return i == j or bool(real[j] and near and (not causal or j <= i))


def dense(lengths, n, causal, settings):
    return torch.tensor(
        [[[readable(torch.arange(n) < m, causal, i, j, **settings) for j in range(n)] for i in range(n)]
         for m in lengths]
    )  # fmt: skip


def heads(n, num_kv_heads, dtype=torch.float64):
    q, k, v = (torch.randn(2, h, n, 7, dtype=dtype, requires_grad=True) for h in (3, num_kv_heads, num_kv_heads))
    return q, k, v


def difference(mechanism, n, causal, settings, num_kv_heads=3):
    """How far values, gradients and weights of `mechanism` are from softmax under a mask of all pairs."""
    lengths = (n, max(1, n - 4))
    attend = dense(lengths, n, causal, settings)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    reading = Reading(causal=causal, valid=valid, read_valid=valid)
    q, k, v = heads(n, num_kv_heads)
    real = valid[:, None, :, None]
    right = ScaledDotProduct(3, 7).double()
    masked = Reading(attend=rearrange(attend, "b n m -> b 1 n m"))
    got, wanted = mechanism(q, k, v, reading) * real, right(q, k, v, masked) * real
    direction = torch.randn_like(got)
    pairs = list(zip(*(torch.autograd.grad((x * direction).sum(), (q, k, v)) for x in (got, wanted))))
    pairs += [(got, wanted), (mechanism.weights(q, k, reading) * real, right.weights(q, k, masked) * real)]
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@CAUSAL
@SETTINGS
def test_values_gradients_and_weights_are_those_of_the_definition(settings, causal):
    for n, num_kv_heads in ((1, 3), (11, 1), (37, 3), (101, 1)):
        assert difference(Window(3, 7, **settings), n, causal, settings, num_kv_heads) < 1e-10


@CAUSAL
@pytest.mark.parametrize(
    "wrong",
    [{"size": 6}, {"size": 4}, {"stride": 5}, {"stride": 12}, {"stride": 0}, {"num_global": 0}, {"num_global": 1},
     {"num_global": 3}],
    ids=str,
)  # fmt: skip
def test_another_setting_differs_from_the_definition(wrong, causal):
    """So the witness sees a window one too wide or narrow, another stride, one global token too few or too many."""
    settings = {"size": 5, "stride": 6, "num_global": 2}
    assert difference(Window(3, 7, **{**settings, **wrong}), 37, causal, settings) > 1e-3


@CAUSAL
def test_a_window_that_covers_all_is_scaled_dot_product(causal):
    q, k, v = heads(37, 3)
    assert_close(Window(3, 7, size=37)(q, k, v, Reading(causal=causal)),
                 ScaledDotProduct(3, 7)(q, k, v, Reading(causal=causal)))  # fmt: skip


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def sizes(mechanism, n, causal):
    q, k, v = (torch.randn(1, 2, n, 3, requires_grad=True) for _ in range(3))
    with Sizes() as made:
        mechanism(q, k, v, Reading(causal=causal)).sum().backward()
    return made


@CAUSAL
def test_without_stride_all_that_is_made_grows_as_n(causal):
    window = Window(2, 3, size=37, num_global=5)
    small, large = sizes(window, 1009, causal), sizes(window, 4 * 1009, causal)
    assert large.largest < (4 * 1009) ** 2 / 16
    assert 3.8 < large.total / small.total < 4.2
    assert 3.5 < large.largest / small.largest < 4.2


@CAUSAL
def test_with_a_stride_the_largest_is_n_times_what_a_token_reads(causal):
    n = 2003
    window = Window(2, 3, size=37, stride=43)
    most = 3 * 37 + n / 43 + 1  # a block reads its own tokens and a window to each side
    assert sizes(window, n, causal).largest < 2 * (n + 43) * most < n**2 / 4


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def transformer(dim, causal, window=None, position=None, num_kv_heads=None, mechanism=Window):
    attention = partial(Attention, mechanism=partial(mechanism, **(window or {"size": 3})), num_kv_heads=num_kv_heads)
    return Transformer(dim, 2, num_heads=3, causal=causal, block=partial(Block, attention=attention), position=position)


@pytest.mark.parametrize(
    "window",
    [{"size": 2}, {"size": 3, "num_global": 2}, {"size": 2, "stride": 3}, {"size": 2, "stride": 2, "num_global": 1}],
    ids=str,
)
def test_a_transformer_with_windows_keeps_the_laws(window, monkeypatch):
    monkeypatch.setattr(sparse, "SMALLEST_BLOCK", 2)  # several blocks to the short examples of the laws
    check_backbone(partial(transformer, window=window))
    check_backbone(partial(transformer, window=window, num_kv_heads=1, position=Rotary()))


class ReadsPadding(Window):
    def _near(self, real, causal):
        return super()._near(torch.ones_like(real), causal)


class ReadsAhead(Window):
    def _near(self, real, causal):
        reach = min(self.size, real.shape[1]) - 1
        attend = super()._near(real, causal)
        return attend | attend.roll(1, dims=-1) if causal and reach else attend


class CountsHoles(Window):
    """The places of cached tokens are their columns, padding between them included."""

    def _readable(self, q, k, reading):
        back = torch.arange(k.shape[2]) - rearrange(torch.arange(k.shape[2])[-q.shape[2] :], "n -> n 1")
        return ((back <= 0) & (back > -self.size)) & rearrange(reading.read_valid, "b m -> b 1 m") | (back == 0)


class ReadsOneMoreStepwise(Window):
    def _readable(self, q, k, reading):
        wider = Window(3, 8, size=self.size + 1)
        return wider._readable(q, k, reading)


@pytest.mark.parametrize(
    ("mechanism", "law", "causal"),
    [
        (ReadsPadding, laws.padding_changes_nothing, False),
        (ReadsPadding, laws.batch_mates_change_nothing, False),
        (ReadsAhead, laws.no_token_reads_the_future, True),
        (CountsHoles, laws.step_by_step_equals_at_once, True),
        (ReadsOneMoreStepwise, laws.step_by_step_equals_at_once, True),
    ],
)
def test_a_law_notices_a_window_that(mechanism, law, causal):
    spec, examples = made_up()["text"]
    law(Reader(spec, transformer(24, causal)), examples)
    with pytest.raises(AssertionError):
        law(Reader(spec, transformer(24, causal, mechanism=mechanism)), examples)


# ── the rest ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stride", [0, 5])
def test_dropout_of_weights_acts_while_training_only_and_keeps_the_mean(stride):
    window = Window(3, 7, size=11, stride=stride, num_global=1, dropout=0.3)
    q, k, _ = (x.detach().float() for x in heads(1009, 3))
    ones = torch.ones(2, 3, 1009, 7)
    read = window(q, k, ones, Reading(causal=True))
    assert read.std() > 0.05
    assert float(read.mean()) == pytest.approx(1.0, abs=0.02)
    assert_close(window.eval()(q, k, ones, Reading(causal=True)), ones)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"size": 1}, "size=1 counts the token itself, so it reads no other; make it 2 or more"),
        ({"size": 3, "stride": 1}, "stride=1; make it 2 or more, or 0 for none"),
        ({"size": 3, "stride": -2}, "stride=-2; make it 2 or more"),
        ({"size": 3, "num_global": -1}, "num_global=-1 counts tokens; make it 0 or more"),
        ({"size": 3, "dropout": 1.0}, "dropout=1.0 is a share of weights"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        Window(3, 7, **settings)


def test_what_windows_cannot_honour_is_refused_when_built():
    with pytest.raises(ValueError, match="Window cannot add a bias of positions to the scores"):
        transformer(24, False, position=ALiBi())
    with pytest.raises(ValueError, match="Window cannot keep to the links of graphs"):
        transformer(24, False).check(TokenSpec(num_features=3, num_axes=0, num_links=2))
    with pytest.raises(ValueError, match="Window cannot read another sequence"):
        Transformer(24, 1, num_heads=3, block=partial(
            Block, cross=True, norm=nn.RMSNorm, attention=partial(Attention, mechanism=partial(Window, size=3))
        ))  # fmt: skip
