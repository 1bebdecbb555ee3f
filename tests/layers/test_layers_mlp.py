"""The MLP equals its formula."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.layers.mlp import MLP, ReLUSquared


def test_the_mlp_is_two_linear_layers_with_a_bend_between():
    mlp, x = MLP(5, ratio=2.6, activation=ReLUSquared), torch.randn(2, 3, 5)
    assert mlp.widen.weight.shape == (13, 5)
    inner = (x @ mlp.widen.weight.T + mlp.widen.bias).clamp(min=0) ** 2
    assert_close(mlp(x), inner @ mlp.out.weight.T + mlp.out.bias)


def test_gelu_is_the_exact_one():
    x = torch.tensor([-1.3, 0.0, 0.7])
    assert_close(MLP(5).activation(x), x * (1 + torch.erf(x / 2**0.5)) / 2)


def test_without_bias_there_is_none():
    assert all(p.ndim == 2 for p in MLP(5, bias=False).parameters())


def test_dropout_of_the_inner_width_acts_while_training_only():
    mlp, x = MLP(7, dropout=0.5), torch.randn(11, 7)
    assert not torch.equal(mlp(x), mlp(x))
    mlp.eval()
    assert_close(mlp(x), mlp(x))


def test_a_ratio_that_leaves_no_inner_width_is_refused():
    with pytest.raises(ValueError, match=r"ratio=0.01 makes an inner width of 0 out of dim=5"):
        MLP(5, ratio=0.01)
    assert isinstance(MLP(5, activation=nn.SiLU).activation, nn.SiLU)
