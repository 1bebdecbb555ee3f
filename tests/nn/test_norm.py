"""Norms of our own: their formula, where they begin, and how weight decay draws them."""

import torch
from torch import nn

from seqkit.nn.norm import ZeroCenteredRMSNorm


def test_the_factor_is_one_and_the_weight():
    norm, plain, x = ZeroCenteredRMSNorm(7, eps=1e-3), nn.RMSNorm(7, eps=1e-3), torch.randn(3, 5, 7)
    torch.testing.assert_close(norm(x), plain(x))
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(-2, 2, 7))
        plain.weight.copy_(1 + norm.weight)
    torch.testing.assert_close(norm(x), plain(x))


def test_it_begins_at_zero():
    assert not ZeroCenteredRMSNorm(7).weight.any()
