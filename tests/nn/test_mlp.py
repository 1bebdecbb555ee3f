"""MLPs equal their formulas; the gated one has as many parameters as the plain one, whose equal the convolution is."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from timm.layers import SwiGLU
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.mlp import ConvMLP, GatedMLP, QuickGELU, ReLUSquared
from seqkit.testing import check_backbone


def test_the_mlp_is_two_linear_layers_with_an_activation_between():
    mlp, x = MLP(5, ratio=2.6, activation=ReLUSquared), torch.randn(2, 3, 5)
    assert mlp.up_proj.weight.shape == (13, 5)
    inner = (x @ mlp.up_proj.weight.T + mlp.up_proj.bias).clamp(min=0) ** 2
    assert_close(mlp(x), inner @ mlp.down_proj.weight.T + mlp.down_proj.bias)


def test_gelu_is_the_exact_one_and_gpt2s_is_another():
    x = torch.tensor([-1.3, 0.0, 0.7])
    assert_close(MLP(5).activation(x), x * (1 + torch.erf(x / 2**0.5)) / 2)
    gpt2 = MLP(5, activation=partial(nn.GELU, approximate="tanh")).activation
    assert_close(gpt2(x), x / 2 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))))
    assert (gpt2(x) - MLP(5).activation(x)).abs().max() > 1e-5


def test_quick_gelu_is_its_formula_and_near_gelu():
    x = torch.linspace(-4, 4, 61)
    assert_close(QuickGELU()(x), x / (1 + torch.exp(-1.702 * x)))
    assert 0.01 < (QuickGELU()(x) - nn.GELU()(x)).abs().max() < 0.03


@pytest.mark.parametrize(
    ("activation", "formula"),
    [
        (nn.SiLU, lambda z: z / (1 + torch.exp(-z))),
        (nn.GELU, lambda z: z * (1 + torch.erf(z / 2**0.5)) / 2),
        (nn.Sigmoid, lambda z: 1 / (1 + torch.exp(-z))),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_the_gated_mlp_is_shazeers_formula(activation, formula, bias):
    mlp, x = GatedMLP(5, activation=activation, width=7, bias=bias), torch.randn(2, 3, 5)
    w, v = mlp.gate_up_proj.weight.split(7)
    b, c = mlp.gate_up_proj.bias.split(7) if bias else (0, 0)
    inner = formula(x @ w.T + b) * (x @ v.T + c)
    assert_close(mlp(x), inner @ mlp.down_proj.weight.T + (mlp.down_proj.bias if bias else 0))


def test_the_gated_mlp_is_timms_swiglu():
    ours, x = GatedMLP(5, width=7, bias=True), torch.randn(2, 3, 5)
    theirs = SwiGLU(5, 7)
    with torch.no_grad():
        for name in ("weight", "bias"):
            gate, up = ours.gate_up_proj.get_parameter(name).split(7)
            theirs.fc1_g.get_parameter(name).copy_(gate)
            theirs.fc1_x.get_parameter(name).copy_(up)
            theirs.fc2.get_parameter(name).copy_(ours.down_proj.get_parameter(name))
    assert_close(ours(x), theirs(x))


def size(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("dim", [21, 48, 768])
def test_gated_and_plain_have_equally_many_parameters(dim):
    assert size(GatedMLP(dim)) == size(MLP(dim, bias=False)) == 8 * dim**2


@pytest.mark.parametrize(("dim", "width"), [(4096, 11008), (5120, 13824), (8192, 22016)])
def test_the_width_is_rounded_up_as_in_llama(dim, width):
    """Touvron et al. 2023 give dims of table 2; their released weights have these inner widths (8192: 65B)."""
    with torch.device("meta"):
        assert GatedMLP(dim, multiple_of=256).down_proj.in_features == width
        assert GatedMLP(dim, width=width, multiple_of=256).down_proj.in_features == width


@pytest.mark.parametrize("bias", [False, True])
def test_two_convolutions_with_kernel_size_1_are_the_mlp(bias):
    plain, conv = MLP(5, ratio=2.6, bias=bias), ConvMLP(5, ratio=2.6, bias=bias)
    with torch.no_grad():
        for name, p in plain.named_parameters():
            target = conv.get_parameter(name)
            target.copy_(p[..., None] if target.ndim == 3 else p)
    x = torch.randn(2, 3, 5)
    assert size(conv) == size(plain)
    assert_close(conv(x), plain(x))
    assert_close(conv(x[0]), plain(x[0]))


def test_convolutions_are_initialised_as_linear_layers():
    blocks = Transformer(64, 8, num_heads=4, block=partial(PreNormBlock, mlp=ConvMLP)).blocks
    for block in blocks:
        assert float(block.mlp.up_proj.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
        assert float(block.mlp.down_proj.weight.detach().std()) == pytest.approx(0.02 / 4, rel=0.05)
        assert not block.mlp.down_proj.bias.any()


@pytest.mark.parametrize("kind", [MLP, ConvMLP])
def test_without_bias_there_is_none(kind):
    assert {name for name, _ in kind(5, bias=False).named_parameters()} == {
        "up_proj.weight",
        "down_proj.weight",
    }
    assert {name for name, _ in GatedMLP(5).named_parameters()} == {
        "gate_up_proj.weight",
        "down_proj.weight",
    }


@pytest.mark.parametrize("kind", [MLP, GatedMLP, ConvMLP])
def test_dropout_of_the_inner_width_acts_while_training_only(kind):
    mlp, x = kind(7, dropout=0.5), torch.randn(1, 11, 7)
    assert not torch.equal(mlp(x), mlp(x))
    mlp.eval()
    assert_close(mlp(x), mlp(x))


@pytest.mark.parametrize("kind", [MLP, ConvMLP])
def test_a_ratio_that_leaves_no_inner_width_is_refused(kind):
    with pytest.raises(ValueError, match=r"ratio=0.01"):
        kind(5, ratio=0.01)
    assert isinstance(kind(5, activation=nn.SiLU).activation, nn.SiLU)


def test_a_limit_of_gate_and_product_is_that_of_gpt_oss():
    mlp, x = GatedMLP(5, width=7, activation=QuickGELU, limit=0.3), 3 * torch.randn(2, 3, 5)
    gate, up = (x @ mlp.gate_up_proj.weight.T).chunk(2, dim=-1)
    assert gate.max() > 0.3 > -0.3 > gate.min()
    inner = gate.clamp(max=0.3) * torch.sigmoid(1.702 * gate.clamp(max=0.3))
    inner = inner * (up.clamp(-0.3, 0.3) + 1)
    assert_close(mlp(x), inner @ mlp.down_proj.weight.T)
    with pytest.raises(ValueError, match=r"limit=0\.0"):
        GatedMLP(5, limit=0.0)


@pytest.mark.parametrize("wrong", [{"width": 0}, {"width": 5, "multiple_of": 0}])
def test_a_gated_mlp_without_inner_width_is_refused(wrong):
    with pytest.raises(ValueError, match="=0; make it 1 or more"):
        GatedMLP(5, **wrong)


@pytest.mark.parametrize(
    "mlp", [GatedMLP, partial(GatedMLP, activation=nn.GELU, bias=True), ConvMLP]
)
def test_a_transformer_with_it_keeps_the_laws(mlp):
    check_backbone(
        lambda dim, causal: Transformer(
            dim, 2, num_heads=3, causal=causal, block=partial(PreNormBlock, mlp=mlp)
        ),
        kinds=["text"],
        quick=True,
    )


def test_relu_squared_is_relu_times_x():
    x = torch.tensor([-1.5, 0.0, 3.0])
    assert_close(ReLUSquared()(x), F.relu(x) * x)
