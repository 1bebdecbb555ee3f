"""Heads: pooling equals its definition example by example, whatever stands in padding."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.nn.heads import SequenceHead, TiedHead, TokenHead, pooled

LENGTHS = [5, 1, 3]
DEFINITION = {
    "mean": lambda x: x.sum(dim=0) / len(x),
    "sum": lambda x: x.sum(dim=0),
    "max": lambda x: torch.stack([column.max() for column in x.T]),
    "last": lambda x: x[-1],
}


@pytest.fixture
def valid():
    return torch.arange(5) < torch.tensor(LENGTHS)[:, None]


@pytest.mark.parametrize("pool", DEFINITION)
@pytest.mark.parametrize("padding", [0.0, 1e9, torch.nan])
def test_pooling_is_over_the_real_tokens_of_each_example(valid, pool, padding):
    hidden = torch.randn(3, 5, 7).masked_fill(~valid[..., None], padding)
    right = torch.stack([DEFINITION[pool](hidden[i, :n]) for i, n in enumerate(LENGTHS)])
    assert_close(pooled(hidden, valid, pool), right)
    head = SequenceHead(7, 2, pool=pool)
    assert_close(head(hidden, valid), right @ head.linear.weight.T + head.linear.bias)


def test_an_unknown_pooling_is_refused(valid):
    with pytest.raises(ValueError, match="pool='median'; it is one of 'mean', 'sum', 'max', 'last'"):
        pooled(torch.randn(3, 5, 7), valid, "median")


@pytest.mark.parametrize("bias", [True, False])
def test_a_token_head_is_a_linear_layer_on_every_token(valid, bias):
    head, hidden = TokenHead(7, 2, bias=bias), torch.randn(3, 5, 7)
    assert (head.linear.bias is not None) == bias
    assert_close(head(hidden, valid)[1, 0], head.linear(hidden[1, 0]))
    assert head(hidden, valid).shape == (3, 5, 2)


@pytest.mark.parametrize(("std", "scale"), [(1.0, 1 / 7**0.5), (0.02, 1.0)])
def test_tied_logits_are_products_with_the_table(valid, std, scale):
    table, hidden = nn.Embedding(11, 7), torch.randn(3, 5, 7)
    head = TiedHead(table, std)
    assert_close(head(hidden, valid), hidden @ table.weight.T * scale)
    assert [id(p) for p in head.parameters()] == [id(table.weight)]
