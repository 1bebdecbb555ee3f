"""Positions by a convolution: its definition by sums, and the models that are refused."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.embedder import Embedder
from seqkit.nn.position.convolutional import ConvolutionalPosition
from seqkit.objectives import Features, NextToken

DIM, NUM_GROUPS = 6, 2


@pytest.mark.parametrize("kernel_size", [1, 4, 5])
def test_each_token_gets_a_weighted_sum_of_those_around_it(kernel_size):
    position = ConvolutionalPosition(DIM, 1, kernel_size=kernel_size, num_groups=NUM_GROUPS)
    hidden, width = torch.randn(3, 7, DIM), DIM // NUM_GROUPS
    right = torch.zeros_like(hidden)
    for i in range(7):
        for j in range(max(0, i - kernel_size // 2), min(7, i - kernel_size // 2 + kernel_size)):
            weight = position.conv.weight[:, :, j - i + kernel_size // 2]
            for g in (slice(0, width), slice(width, DIM)):
                right[:, i, g] += hidden[:, j, g] @ weight[g].T
    right = hidden + F.gelu(right + position.conv.bias)
    assert_close(position.add(hidden, torch.zeros(3, 7, 1)), right)


def test_padding_does_not_reach_real_tokens():
    embedder = Embedder(
        TokenSpec(num_features=2),
        DIM,
        position=lambda d, a: ConvolutionalPosition(d, a, kernel_size=4, num_groups=2),
    )
    tokens = [Tokens(torch.randn(n, 2), torch.arange(float(n))[:, None]) for n in (5, 3)]
    together = embedder(TokenBatch.collate(tokens)).hidden
    for i, one in enumerate(tokens):
        alone = embedder(TokenBatch.collate([one])).hidden
        assert_close(together[i, : len(one)], alone[0])
    other = TokenBatch.collate([Tokens(tokens[1].content * 2, tokens[1].positions)])
    assert not torch.allclose(together[1, 0], embedder(other).hidden[0, 0])


def model(spec, objective, causal):
    backbone = Transformer(DIM, 1, num_heads=2, causal=causal)
    return Model(
        spec, backbone, objective, position=lambda d, a: ConvolutionalPosition(d, a, num_groups=2)
    )


def test_models_that_predict_later_tokens_or_have_no_order_are_refused():
    with pytest.raises(ValueError, match="later"):
        model(TokenSpec(vocab_size=5), NextToken(), causal=True)
    with pytest.raises(ValueError, match="set"):
        model(TokenSpec(num_features=2, is_set=True), Features(), causal=False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_axes": 2}, "one axis"),
        ({"kernel_size": 0}, "kernel_size=0"),
        ({"num_groups": 4}, "num_groups=4"),
    ],
)
def test_sizes_that_do_not_fit(given, said):
    with pytest.raises(ValueError, match=said):
        ConvolutionalPosition(DIM, **{"num_axes": 1, "num_groups": 2, **given})
