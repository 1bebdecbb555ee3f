"""A branch is added as written out; timm's layers do the same."""

from functools import partial

import pytest
import torch
from timm.layers import DropPath, LayerScale, calculate_drop_path_rates
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.block import PreNormBlock, Residual
from seqkit.testing import check_backbone


@pytest.fixture
def x():
    return torch.randn(2, 5, 7)


@pytest.fixture
def branch():
    return torch.randn(2, 5, 7)


def test_a_plain_residual_is_a_sum(x, branch):
    assert torch.equal(Residual(7)(x, branch), x + branch)
    assert not list(Residual(7).parameters())


def test_dropout_is_of_the_branch_alone_and_while_training_only(x, branch):
    residual = Residual(7, dropout=0.5)
    difference = residual(x, branch) - x
    kept = difference.abs() > 1e-6
    assert_close(difference[kept], 2 * branch[kept])
    assert 0 < int(kept.sum()) < kept.numel()
    residual.eval()
    assert torch.equal(residual(x, branch), x + branch)


def test_drop_path_is_timms_and_takes_whole_examples():
    residual, theirs = Residual(7, drop_path=0.3), DropPath(0.3)
    x, branch = torch.zeros(31, 5, 7), torch.ones(31, 5, 7)
    torch.manual_seed(1)
    got = residual(x, branch)
    torch.manual_seed(1)
    assert torch.equal(got, theirs(branch))
    per_example = got.flatten(1)
    assert bool((per_example == per_example[:, :1]).all())
    assert_close(per_example[:, 0].unique(), torch.tensor([0.0, 1 / 0.7]))
    residual.eval()
    assert torch.equal(residual(x, branch), x + branch)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_drop_path_grows_with_depth_as_timms(depth):
    transformer = Transformer(
        24, depth, block=partial(PreNormBlock, residual=partial(Residual, drop_path=0.3))
    )
    for block, right in zip(transformer.blocks, calculate_drop_path_rates(0.3, depth)):
        for residual in (block.attention_residual, block.mlp_residual):
            assert residual.drop_path.drop_prob == pytest.approx(right)


def test_layer_scale_is_timms(x, branch):
    residual, theirs = Residual(7, layer_scale=0.1), LayerScale(7, init_values=0.1)
    assert torch.equal(residual.scale, theirs.gamma)
    with torch.no_grad():
        residual.scale.copy_(torch.randn(7))
        theirs.gamma.copy_(residual.scale)
    assert_close(residual(x, branch), x + theirs(branch))


def test_a_norm_is_of_the_branch_alone_and_comes_first(x, branch):
    residual = Residual(7, norm=torch.nn.RMSNorm, layer_scale=0.1)
    torch.nn.init.normal_(residual.norm.weight)
    torch.nn.init.normal_(residual.scale)
    right = (
        branch / (branch.square().mean(dim=-1, keepdim=True) + torch.finfo(branch.dtype).eps).sqrt()
    )
    assert_close(residual(x, branch), x + right * residual.norm.weight * residual.scale)
    assert set(residual.state_dict()) == {"norm.weight", "scale"}


def test_a_scale_is_of_the_branch_after_everything_else_and_no_parameter(x, branch):
    plain = Residual(7, norm=torch.nn.RMSNorm, layer_scale=0.1)
    scaled = Residual(7, norm=torch.nn.RMSNorm, layer_scale=0.1, scale=0.22)
    assert set(scaled.state_dict()) == set(plain.state_dict())
    assert_close(scaled(x, branch), x + 0.22 * (plain(x, branch) - x))
    assert_close(Residual(7, scale=0.22)(x, branch), x + 0.22 * branch)


@pytest.mark.parametrize("scale", [0, -1.0, float("nan")])
def test_a_scale_that_is_no_factor_is_refused(scale):
    with pytest.raises(ValueError, match=f"scale={scale}"):
        Residual(7, scale=scale)


@pytest.mark.slow
def test_a_transformer_with_norms_of_branches_keeps_the_laws():
    block = partial(
        PreNormBlock, norm=torch.nn.Identity, residual=partial(Residual, norm=torch.nn.RMSNorm)
    )
    check_backbone(
        lambda dim, causal: Transformer(dim, 2, num_heads=3, causal=causal, block=block),
        kinds=["text"],
        quick=True,
    )


def test_layer_scale_may_be_a_whole_number():
    assert torch.equal(Residual(7, layer_scale=1).scale, torch.ones(7))


@pytest.mark.parametrize("name", ["dropout", "drop_path"])
@pytest.mark.parametrize("probability", [-0.1, 1.0, float("nan")])
def test_what_is_no_probability_is_refused(name, probability):
    with pytest.raises(ValueError, match=f"{name}={probability}"):
        Residual(7, **{name: probability})


def test_a_transformer_with_layer_scale_keeps_the_laws():
    residual = partial(Residual, layer_scale=0.1)
    check_backbone(
        lambda dim, causal: Transformer(
            dim, 2, num_heads=3, causal=causal, block=partial(PreNormBlock, residual=residual)
        ),
        kinds=["text"],
        quick=True,
    )
