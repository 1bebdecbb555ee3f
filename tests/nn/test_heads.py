"""Heads: pooling equals its definition example by example, whatever stands in padding."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.interfaces import Embedded
from seqkit.nn.heads import FieldHead, TiedHead, TokenHead
from seqkit.nn.mlp import Transform
from seqkit.nn.pooling import FeaturesHead, SequenceHead, pooled

LENGTHS = [5, 1, 3]
DEFINITION = {
    "mean": lambda x: x.sum(dim=0) / len(x),
    "sum": lambda x: x.sum(dim=0),
    "max": lambda x: torch.stack([column.max() for column in x.T]),
    "last": lambda x: x[-1],
    "first": lambda x: x[0],
    "weighted_mean": lambda x: (
        sum((i + 1) * row for i, row in enumerate(x)) / sum(range(len(x) + 1))
    ),
    "mean_sqrt_len": lambda x: x.sum(dim=0) / len(x) ** 0.5,
}


@pytest.fixture
def valid():
    return torch.arange(5) < torch.tensor(LENGTHS)[:, None]


def embedded(valid):
    return Embedded(torch.zeros(3, 5, 7), torch.zeros(3, 5, 1), valid)


@pytest.mark.parametrize("pool", DEFINITION)
@pytest.mark.parametrize("padding", [0.0, 1e9, torch.nan])
def test_pooling_is_over_the_real_tokens_of_each_example(valid, pool, padding):
    hidden = torch.randn(3, 5, 7).masked_fill(~valid[..., None], padding)
    right = torch.stack([DEFINITION[pool](hidden[i, :n]) for i, n in enumerate(LENGTHS)])
    assert_close(pooled(hidden, valid, pool), right)
    head = SequenceHead(7, 2, pool=pool)
    assert_close(head(hidden, embedded(valid)), right @ head.linear.weight.T + head.linear.bias)


def test_an_unknown_pooling_is_refused(valid):
    with pytest.raises(ValueError, match="median"):
        pooled(torch.randn(3, 5, 7), valid, "median")


@pytest.mark.parametrize("bias", [True, False])
def test_a_token_head_is_a_linear_layer_on_every_token(valid, bias):
    head, hidden = TokenHead(7, 2, bias=bias), torch.randn(3, 5, 7)
    assert (head.linear.bias is not None) == bias
    assert_close(head(hidden, embedded(valid))[1, 0], head.linear(hidden[1, 0]))
    assert head(hidden, embedded(valid)).shape == (3, 5, 2)


@pytest.mark.parametrize("scale", [1 / 7**0.5, 1.0, 3.0])
@pytest.mark.parametrize("bias", [False, True])
def test_tied_logits_are_products_with_the_table(valid, scale, bias):
    table, hidden = nn.Embedding(11, 7), torch.randn(3, 5, 7).double()
    head = TiedHead(table, scale=scale, bias=bias).double()
    right = hidden @ table.weight.T * scale
    if bias:
        assert not head.bias.any()
        nn.init.normal_(head.bias)
        right = right + head.bias
    assert_close(head(hidden, embedded(valid)), right)
    assert [id(p) for p in head.parameters()] == [
        *([id(head.bias)] if bias else []),
        id(table.weight),
    ]


def by_hand(transform, x):
    """A transform with Tanh and LayerNorm."""
    x = (x @ transform.linear.weight.T + transform.linear.bias).tanh()
    x = (x - x.mean(-1, keepdim=True)) / (
        x.var(-1, correction=0, keepdim=True) + transform.norm.eps
    ).sqrt()
    return x * transform.norm.weight + transform.norm.bias


@pytest.mark.parametrize("kind", ["token", "tied", "sequence"])
def test_a_transform_stands_before_the_output_layer(valid, kind):
    transform, hidden = (
        Transform(7, width=3, activation=nn.Tanh, norm=nn.LayerNorm).double(),
        torch.randn(3, 5, 7).double(),
    )
    for p in transform.parameters():
        nn.init.normal_(p)
    right = by_hand(transform, hidden)
    if kind == "sequence":
        head = SequenceHead(7, 2, pool="first", transform=transform).double()
        weight, bias, right = head.linear.weight, head.linear.bias, right[:, 0]
    elif kind == "token":
        head = TokenHead(7, 2, transform=transform).double()
        weight, bias = head.linear.weight, head.linear.bias
    else:
        head = TiedHead(nn.Embedding(11, 3), bias=True, transform=transform).double()
        weight, bias = head.table.weight, head.bias
    nn.init.normal_(bias)
    assert_close(head(hidden, embedded(valid)), right @ weight.T + bias)


def test_a_transform_without_width_or_norm_is_a_linear_layer_and_gelu():
    transform, x = Transform(7), torch.randn(4, 7)
    assert [name for name, _ in transform.named_parameters()] == ["linear.weight", "linear.bias"]
    assert_close(transform(x), nn.functional.gelu(transform.linear(x)))
    assert transform.width == 7
    assert Transform(7, bias=False).linear.bias is None
    with pytest.raises(ValueError, match="width=0"):
        Transform(7, width=0)


def test_logits_are_scaled_without_their_bias_and_then_bounded(valid):
    hidden, table = torch.randn(3, 5, 7) * 9, nn.Embedding(11, 7)
    for head in (
        TokenHead(7, 11, scale=0.3, softcap=2.0),
        TiedHead(table, bias=True, scale=0.3, softcap=2.0),
    ):
        weight, bias = (
            (table.weight, head.bias)
            if isinstance(head, TiedHead)
            else (head.linear.weight, head.linear.bias)
        )
        nn.init.normal_(weight)
        nn.init.normal_(bias)
        right = 2.0 * ((0.3 * (hidden @ weight.T) + bias) / 2.0).tanh()
        assert_close(head(hidden, embedded(valid)), right)


def test_a_bound_leaves_ids_that_a_field_does_not_have_impossible(valid):
    head, hidden = FieldHead(7, [2, 5], scale=0.3, softcap=2.0), torch.randn(3, 5, 7)
    nn.init.normal_(head.linear.weight, std=9)
    logits = head(hidden, embedded(valid))
    assert bool((logits[..., 0, 2:] == -torch.inf).all())
    right = 2.0 * (0.3 * (hidden @ head.linear.weight.T) / 2.0).tanh()
    assert_close(torch.cat([logits[..., 0, :2], logits[..., 1, :]], dim=-1), right)


@pytest.mark.parametrize("normalize", [False, True])
def test_features_are_pooled_hidden_states_and_have_no_parameters(valid, normalize):
    hidden = torch.randn(3, 5, 7).masked_fill(~valid[..., None], torch.nan)
    head = FeaturesHead(pool="max", normalize=normalize)
    right = torch.stack([DEFINITION["max"](hidden[i, :n]) for i, n in enumerate(LENGTHS)])
    right = right / right.square().sum(dim=1, keepdim=True).sqrt() if normalize else right
    assert_close(head(hidden, embedded(valid)), right)
    assert not list(head.parameters())


def test_a_wide_table_is_not_rescaled():
    table = nn.Embedding(3, 4001)
    nn.init.normal_(table.weight, std=0.02)
    hidden = torch.randn(1, 2, 4001)
    assert_close(
        TiedHead(table)(hidden, torch.ones(1, 2, dtype=torch.bool)), hidden @ table.weight.T
    )


@pytest.mark.parametrize("head", [TokenHead, SequenceHead])
def test_the_first_logits_of_a_head_are_near_zero(head):
    """So training starts near the loss of guessing (Radford et al. 2019, section 2.3, with the same 0.02)."""
    linear = head(101, 53).linear
    assert float(linear.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert not linear.bias.any()
