"""Projections: vectors by their definitions, of a batch with padding, and of wider hidden states.

b batch · n tokens · d width
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.nn.block import MLP
from seqkit.nn.pooling import FeaturesHead
from seqkit.nn.projection import AttentionPooling, LinearProjection
from seqkit.objectives import Features

DIM, WIDTH = 15, 7
VALID = torch.arange(5) < torch.tensor([[5], [3], [1]])
HIDDEN = torch.randn(3, 5, DIM, generator=torch.Generator().manual_seed(0))
MADE = {
    "mean": partial(LinearProjection, DIM, WIDTH),
    "last, bias, activation": partial(
        LinearProjection, DIM, WIDTH, pool="last", bias=True, activation=nn.ReLU
    ),
    "attention": partial(AttentionPooling, DIM, DIM, num_heads=3, mlp=partial(MLP, ratio=2)),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_padding_and_channels_beyond_the_width_change_no_vector(make):
    projection = make()
    garbled = torch.where(VALID[..., None], HIDDEN, torch.randn_like(HIDDEN))
    together = projection(torch.cat([garbled, torch.randn(3, 5, 4)], dim=-1), VALID)
    for i, n in enumerate(VALID.sum(dim=1)):
        alone = projection(HIDDEN[i : i + 1, :n], VALID[i : i + 1, :n])
        assert_close(together[i], alone[0])
    assert not torch.allclose(together[0], together[1])


def test_a_linear_projection_is_pooling_a_linear_layer_and_an_activation():
    projection = MADE["last, bias, activation"]()
    linear = projection.linear
    right = (
        torch.stack([HIDDEN[0, 4], HIDDEN[1, 2], HIDDEN[2, 0]]) @ linear.weight.T + linear.bias
    ).clamp(min=0)
    assert_close(projection(HIDDEN, VALID), right)
    assert LinearProjection(DIM, WIDTH).linear.bias is None


def test_attention_pooling_is_softmax_of_a_query_over_the_tokens():
    pooling = MADE["attention"]()
    q, k, v = pooling.qkv_proj.weight.split(DIM)
    found, bias = [], pooling.qkv_proj.bias.split(DIM)
    for hidden, n in zip(HIDDEN, VALID.sum(dim=1)):
        heads = []
        for head in range(3):
            rows = slice(head * 5, head * 5 + 5)  # five channels each
            scores = (
                (hidden[:n] @ k[rows].T + bias[1][rows])
                @ (q[rows] @ pooling.query + bias[0][rows])
                / 5**0.5
            )
            heads.append(scores.softmax(dim=0) @ (hidden[:n] @ v[rows].T + bias[2][rows]))
        x = pooling.out_proj(torch.cat(heads))
        found.append(x + pooling.mlp(pooling.norm(x)))
    assert_close(pooling(HIDDEN, VALID), torch.stack(found))


def test_features_take_a_projection_in_the_place_of_pooling():
    made = MADE["mean"]()
    head = FeaturesHead(normalize=True, projection=made)
    found = head.projection(HIDDEN, VALID)
    right = found / found.norm(dim=-1, keepdim=True)

    class Batch:
        valid, parts = VALID, None

    assert_close(head(HIDDEN, Batch()), right)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: AttentionPooling(DIM, WIDTH), "width 15"),
        (lambda: AttentionPooling(DIM, DIM, num_heads=4), "num_heads=4"),
        (lambda: Features(pool="last", projection=LinearProjection), "pool=last"),
        (lambda: Features(dim=7), "dim=7"),
    ],
)
def test_what_does_not_fit_is_refused(make, problem):
    with pytest.raises(ValueError, match=problem):
        make()
