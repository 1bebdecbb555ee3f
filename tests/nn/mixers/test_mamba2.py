"""Mamba-2's mixer is the paper's recurrence, token by token, forward and backward, whole, in parts and ragged."""

import math

import pytest
import torch
import torch.nn.functional as F
from nn.mixers.definitions import (
    assert_half_precision,
    assert_is,
    perturbed,
    sequences,
)
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.mixers.mamba2 import Mamba2Mixer

DIM = 8
SETTINGS = pytest.mark.parametrize(
    "settings", [{}, {"num_groups": 2, "expand": 1, "kernel_size": 2}], ids=["paper", "groups"]
)


def mixer_of(settings):
    return perturbed(Mamba2Mixer(DIM, 4, num_states=3, **settings))


def definition(mixer, x):
    """The block of the paper's figure 6 for a sequence [n d], one token after the other."""
    heads, groups, s, e = mixer.num_heads, mixer.num_groups, mixer.num_states, mixer.head_dim
    width = heads * e
    of_z, of_uBC, of_dt = mixer.in_proj.weight.split([width, width + 2 * groups * s, heads])
    projected = x @ of_uBC.T
    kernel = mixer.convolution.weight[:, 0]
    state = x.new_zeros(heads, e, s)
    outputs = []
    for t in range(len(x)):
        past = range(min(len(kernel), t + 1))
        uBC = sum(kernel[i] * projected[t - i] for i in past) + mixer.convolution_bias
        u, B, C = F.silu(uBC).split([width, groups * s, groups * s])
        u = u.reshape(heads, e)
        B, C = (w.reshape(groups, s).repeat_interleave(heads // groups, dim=0) for w in (B, C))
        dt = F.softplus(of_dt @ x[t] + mixer.dt_bias)
        decay = torch.exp(-mixer.A_log.exp() * dt)
        state = decay[:, None, None] * state + (dt[:, None] * u)[:, :, None] * B[:, None]
        y = (state @ C[:, :, None])[..., 0] + mixer.D[:, None] * u
        z = of_z @ x[t]
        gated = (y.flatten() * z * z.sigmoid()).reshape(groups, -1)
        normed = gated / (gated.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
        outputs.append(mixer.out_proj.weight @ (normed.flatten() * mixer.norm_weight))
    return torch.stack(outputs)


@SETTINGS
@pytest.mark.parametrize("n", [1, 3, 67])
def test_it_is_the_papers_recurrence_forward_and_backward(settings, n):
    assert_is(mixer_of(settings), definition, sequences(DIM, n))


def test_half_precision_leaves_the_state_in_float32():
    assert_half_precision(Mamba2Mixer(32, 4).double(), sequences(32, 70))


def test_sizes_are_the_papers():
    mixer = Mamba2Mixer(256, 8)
    assert mixer.head_dim == 64
    assert mixer.in_proj.weight.shape == (2 * 512 + 2 * 128 + 8, 256)
    assert mixer.out_proj.weight.shape == (256, 512)


def test_weights_start_as_in_the_papers_code():
    backbone = Transformer(256, 2, num_heads=128, mixer=Mamba2Mixer, causal=True)
    mixer = backbone.blocks[0].attention
    dt = F.softplus(mixer.dt_bias.detach())
    assert 0.00099 < dt.min() < 0.0015
    assert 0.07 < dt.max() <= 0.1001
    assert abs(float(dt.log().mean()) - math.log(0.01)) < 0.4
    A = mixer.A_log.detach().exp()
    assert 0.99 < A.min() < 2
    assert 15 < A.max() <= 16.001
    assert abs(float(A.mean()) - 8.5) < 1.5
    assert_close(mixer.D, torch.ones(128))
    for p in (mixer.convolution.weight, mixer.convolution_bias):
        assert 0.49 < p.abs().max() <= 0.5
        assert_close(p.std(), torch.tensor(0.5 / 3**0.5), rtol=0.1, atol=0)
    assert 0.99 * 256**-0.5 < mixer.in_proj.weight.abs().max() <= 256**-0.5
    assert 0.99 * 512**-0.5 < mixer.out_proj.weight.abs().max() <= 512**-0.5


@pytest.mark.parametrize(
    ("num_heads", "settings", "message"),
    [
        (3, {}, "width=16 does not split into num_heads=3 equal heads"),
        (4, {"num_groups": 3}, "num_groups=3 does not divide the 4 heads"),
        (4, {"num_groups": 0}, "num_groups=0"),
        (4, {"num_states": 0}, "num_states=0"),
        (4, {"expand": 0}, "expand=0"),
        (4, {"kernel_size": 1}, "kernel_size=1"),
        (4, {"num_mixer_heads": 3}, "does not split into num_heads=3"),
        (4, {"norm": "both"}, "norm='both'; it is one of"),
        (4, {"scales": [1.0, 2.0]}, r"scales=\[1.0, 2.0\] are 2; give those of z"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(num_heads, settings, message):
    with pytest.raises(ValueError, match=message):
        Mamba2Mixer(DIM, num_heads, **settings)
