"""Mamba: its parts by their formulas, and how it starts. What it shares with S4D is in test_sequence.py."""

import math

import pytest
import torch
import torch.nn.functional as F
from backbones.test_sequence import embedded
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from seqkit.backbones import Mamba
from seqkit.nn.mixers.mamba import SelectiveSSM


def definition(ssm, x):
    """A selective SSM with its convolution, token by token, x [n e]."""
    k, e, s = ssm.convolution.kernel_size, ssm.width, ssm.num_states
    A, h, outputs = -ssm.A_log.exp().reshape(e, s), x.new_zeros(e, s), []
    for t in range(len(x)):
        u = ssm.convolution_bias.clone()
        for i in range(min(k, t + 1)):
            u = u + ssm.convolution.weight[i, 0] * x[t - i]
        u = F.silu(u)
        low, B, C = ssm.x_proj(u).split([ssm.rank, s, s])
        dt = F.softplus(ssm.dt_proj(low))
        h = torch.exp(dt[:, None] * A) * h + (dt * u)[:, None] * B
        outputs.append(h @ C + ssm.D * u)
    return torch.stack(outputs)


@pytest.mark.parametrize("n", [1, 3, 11])
def test_a_selective_ssm_is_its_definition(n):
    ssm, x = (
        SelectiveSSM(7, num_states=5, rank=2, kernel_size=3).double(),
        torch.randn(2, n, 7, dtype=torch.float64),
    )
    for i in range(2):
        assert_close(ssm(x)[i], definition(ssm, x[i]))


def test_a_block_is_a_gated_ssm_with_a_residual_connection():
    backbone, x = Mamba(6, 1, causal=True).double(), embedded([5, 5], 6)
    (block,) = backbone.blocks
    normed = F.rms_norm(x.hidden, (6,), block.norm.weight, 1e-5)
    u, z = (normed @ w.T for w in block.mixer.in_proj.weight.chunk(2))
    right = x.hidden + (block.mixer.ssm(u) * z * z.sigmoid()) @ block.mixer.out_proj.weight.T
    assert_close(backbone(x), F.rms_norm(right, (6,), backbone.norm.weight, 1e-5))


def test_the_second_direction_begins_at_the_last_real_token():
    backbone, x = Mamba(6, 1).double(), embedded([3, 7, 5], 6)
    got, (block,) = backbone(x), backbone.blocks
    assert block.mixer.reversed_ssm is not None
    assert not torch.equal(block.mixer.ssm.x_proj.weight, block.mixer.reversed_ssm.x_proj.weight)
    for i, n in enumerate([3, 7, 5]):
        one = x.hidden[i, :n]
        u, z = block.mixer.in_proj(block.norm(one)).chunk(2, dim=-1)
        y = definition(block.mixer.ssm, u) + definition(block.mixer.reversed_ssm, u.flip(0)).flip(0)
        assert_close(got[i, :n], backbone.norm(one + block.mixer.out_proj(y * F.silu(z))))
        assert not got[i, n:].any()


def test_weights_start_as_in_the_papers_code():
    backbone = Mamba(256, 4, num_states=3, causal=True)
    ssm, plain = backbone.blocks[1].mixer.ssm, 512**-0.5
    assert ssm.rank == 16
    assert_close(-ssm.A_log.exp().reshape(512, 3), torch.tensor([-1.0, -2.0, -3.0]).expand(512, 3))
    assert_close(ssm.D, torch.ones(512))
    dt = F.softplus(ssm.dt_proj.bias.detach())
    assert 0.000999 < dt.min() < 0.0015
    assert 0.07 < dt.max() <= 0.1001
    assert abs(float(dt.log().mean()) - math.log(0.01)) < 0.2
    assert 0.24 < ssm.dt_proj.weight.abs().max() <= 0.25
    assert 0.48 * plain < backbone.blocks[1].mixer.out_proj.weight.abs().max() <= plain / 2 * 1.0001


def test_flops_of_a_layer_are_those_of_its_formula():
    b, n, e, s, r, k = 2, 49, 11, 5, 3, 4
    ssm, x = SelectiveSSM(e, num_states=s, rank=r, kernel_size=k), torch.randn(b, n, e)
    with FlopCounterMode(display=False) as counter:
        ssm(x)
    matrices = 2 * (e * (r + 2 * s) + r * e)
    scan, convolution, skip = e * (7 * s + 1), e * (2 * k + 1), 2 * e
    assert counter.get_total_flops() + ssm.uncounted_flops(x) == b * n * (
        matrices + scan + convolution + skip
    )
