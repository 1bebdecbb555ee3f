"""Gated DeltaNet is the paper's recurrence, token by token, forward and backward, whole, in parts and ragged."""

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
from seqkit.nn.mixers.delta import GatedDeltaNet

DIM = 8
SETTINGS = pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_value_heads": 4, "expand_v": 1.0, "kernel_size": 2},
        {"head_dim": 2, "expand_v": 2.5, "negative_eigenvalues": True},
    ],
    ids=["paper", "shared keys", "negative eigenvalues"],
)


def mixer_of(settings):
    return perturbed(GatedDeltaNet(DIM, 2, **settings))


def definition(mixer, x):
    """Equation 10 and figure 1 of the paper for a sequence [n d], one token after the other."""
    c, e = mixer.head_dim, mixer.norm.weight.numel()
    heads, value_heads = mixer.num_heads, mixer.A_log.numel()
    of_q, of_k, of_v, of_z, of_a, of_b = mixer.in_proj.weight.split(
        [heads * c] * 2 + [value_heads * e] * 2 + [value_heads] * 2
    )
    projected = x @ torch.cat([of_q, of_k, of_v]).T
    kernel = mixer.convolution.weight[:, 0]
    state = x.new_zeros(value_heads, e, c)
    outputs = []
    for t in range(len(x)):
        past = range(min(len(kernel), t + 1))
        q, k, v = F.silu(sum(kernel[i] * projected[t - i] for i in past)).split(
            [heads * c, heads * c, value_heads * e]
        )
        q, k = (
            (w / (w.square().sum(dim=-1, keepdim=True) + 1e-6).sqrt()).repeat_interleave(
                value_heads // heads, dim=0
            )
            for w in (q.reshape(heads, c), k.reshape(heads, c))
        )
        alpha = torch.exp(-mixer.A_log.exp() * F.softplus(of_a @ x[t] + mixer.dt_bias))
        beta = torch.sigmoid(of_b @ x[t]) * mixer.largest_beta
        erased = torch.eye(c) - beta[:, None, None] * k[:, :, None] * k[:, None]
        written = (beta[:, None] * v.reshape(value_heads, e))[:, :, None] * k[:, None]
        state = alpha[:, None, None] * state @ erased + written
        y = (state @ q[:, :, None])[..., 0] / math.sqrt(c)
        y = y / (y.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * mixer.norm.weight
        z = of_z @ x[t]
        outputs.append(mixer.out_proj.weight @ (y.flatten() * z * z.sigmoid()))
    return torch.stack(outputs)


@SETTINGS
@pytest.mark.parametrize("n", [1, 3, 67])
def test_it_is_the_papers_recurrence_forward_and_backward(settings, n):
    assert_is(mixer_of(settings), definition, sequences(DIM, n))


def test_half_precision_leaves_the_state_in_float32():
    assert_half_precision(GatedDeltaNet(32, 2).double(), sequences(32, 70))


def test_sizes_are_the_papers():
    mixer = GatedDeltaNet(256, 4)
    assert mixer.head_dim == 48
    assert mixer.norm.weight.shape == (96,)
    assert sum(p.numel() for p in mixer.parameters() if p.ndim == 2) == 6 * 256**2 + 2 * 4 * 256


def test_weights_start_as_in_the_papers_code():
    mixer = Transformer(512, 2, num_heads=128, mixer=GatedDeltaNet, causal=True).blocks[0].attention
    dt = F.softplus(mixer.dt_bias.detach())
    assert 0.00099 < dt.min() < 0.0015
    assert 0.07 < dt.max() <= 0.1001
    assert abs(float(dt.log().mean()) - math.log(0.01)) < 0.4
    A = mixer.A_log.detach().exp()
    assert 0.0099 < A.min() < 1
    assert 15 < A.max() <= 16.001
    assert abs(float(A.mean()) - 8) < 1.5
    assert 0.49 < mixer.convolution.weight.abs().max() <= 0.5
    assert_close(mixer.convolution.weight.std(), torch.tensor(0.5 / 3**0.5), rtol=0.1, atol=0)
    assert 0.99 * 512**-0.5 < mixer.in_proj.weight.abs().max() <= 512**-0.5
    plain = mixer.out_proj.in_features**-0.5
    assert 0.99 * plain < mixer.out_proj.weight.abs().max() <= plain * 1.0001


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_value_heads": 3}, "num_value_heads=3 is no multiple of the 2 heads; make it 4"),
        ({"head_dim": 3, "expand_v": 1.5}, "expand_v=1.5 of 3 keys are 4.5 values"),
        ({"head_dim": 0}, "head_dim=0"),
        ({"num_value_heads": 0}, "num_value_heads=0"),
        ({"expand_v": 0.0}, "expand_v=0.0"),
        ({"kernel_size": 1}, "kernel_size=1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        GatedDeltaNet(DIM, 2, **settings)
