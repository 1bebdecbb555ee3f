"""Mamba: its parts by their formulas, both directions, padding, and a cache."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from seqkit.backbones import LSTM, Mamba
from seqkit.backbones.mamba import SelectiveSSM
from seqkit.interfaces import Adjacency, Embedded, TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken
from seqkit.training.optim import AdamW, Muon


def embedded(lengths, dim):
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, dim, dtype=torch.float64).masked_fill(~valid[..., None], 0.0)
    return Embedded(hidden, torch.zeros(len(lengths), n, 1), valid)


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
    ssm, x = SelectiveSSM(7, num_states=5, rank=2, kernel_size=3).double(), torch.randn(2, n, 7, dtype=torch.float64)
    for i in range(2):
        assert_close(ssm(x)[i], definition(ssm, x[i]))


def test_a_block_is_a_gated_ssm_with_a_residual_connection():
    backbone, x = Mamba(6, 1, causal=True).double(), embedded([5, 5], 6)
    (block,) = backbone.blocks
    normed = F.rms_norm(x.hidden, (6,), block.norm.weight, 1e-5)
    u, z = (normed @ w.T for w in block.in_proj.weight.chunk(2))
    right = x.hidden + (block.ssm(u) * z * z.sigmoid()) @ block.out_proj.weight.T
    assert_close(backbone(x), F.rms_norm(right, (6,), backbone.norm.weight, 1e-5))


def test_the_second_direction_begins_at_the_last_real_token():
    backbone, x = Mamba(6, 1).double(), embedded([3, 7, 5], 6)
    got, (block,) = backbone(x), backbone.blocks
    assert block.reversed_ssm is not None
    assert not torch.equal(block.ssm.x_proj.weight, block.reversed_ssm.x_proj.weight)
    for i, n in enumerate([3, 7, 5]):
        one = x.hidden[i, :n]
        u, z = block.in_proj(block.norm(one)).chunk(2, dim=-1)
        y = definition(block.ssm, u) + definition(block.reversed_ssm, u.flip(0)).flip(0)
        assert_close(got[i, :n], backbone.norm(one + block.out_proj(y * F.silu(z))))
        assert not got[i, n:].any()


def test_a_cache_continues_after_the_last_real_token():
    backbone, x = Mamba(6, 2, causal=True).double(), embedded([3, 5, 1], 6)
    cache, more = backbone.init_cache(9), embedded([1, 2, 2], 6)
    backbone(x, cache)
    cache.reorder(torch.tensor([2, 0, 0]))
    got = backbone(more, cache)
    assert cache.num_tokens == 7
    for row, (i, n) in enumerate([(2, 1), (0, 3), (0, 3)]):
        length = int(more.valid[row].sum())
        whole = torch.cat([x.hidden[i, :n], more.hidden[row, :length]])[None]
        alone = Embedded(whole, torch.zeros(1, n + length, 1), torch.ones(1, n + length, dtype=torch.bool))
        assert_close(got[row, :length], backbone(alone)[0, n:])


def test_weights_start_as_in_the_papers_code():
    backbone = Mamba(256, 4, num_states=3, causal=True)
    ssm, plain = backbone.blocks[1].ssm, 512**-0.5
    assert ssm.rank == 16
    assert_close(-ssm.A_log.exp().reshape(512, 3), torch.tensor([-1.0, -2.0, -3.0]).expand(512, 3))
    assert_close(ssm.D, torch.ones(512))
    dt = F.softplus(ssm.dt_proj.bias.detach())
    assert 0.000999 < dt.min() < 0.0015
    assert 0.07 < dt.max() <= 0.1001
    assert abs(float(dt.log().mean()) - math.log(0.01)) < 0.2
    assert 0.24 < ssm.dt_proj.weight.abs().max() <= 0.25
    assert 0.48 * plain < backbone.blocks[1].out_proj.weight.abs().max() <= plain / 2 * 1.0001


def test_neither_decay_nor_muon_touches_what_is_no_matrix():
    model = Model(TokenSpec(vocab_size=7), Mamba(16, 1, causal=True), NextToken())
    (ssm,) = (block.ssm for block in model.backbone.blocks)
    for group in AdamW().build(model).param_groups:
        if group["weight_decay"]:
            assert not {id(p) for p in group["params"]} & {id(ssm.A_log), id(ssm.D), id(ssm.dt_proj.bias)}
    muon = Muon().build(model).param_groups[0]["params"]
    assert {p.ndim for p in muon} == {2}
    assert id(ssm.A_log) not in set(map(id, muon))


@pytest.mark.parametrize("causal", [False, True])
def test_float32_and_bfloat16_agree_with_float64(causal):
    backbone, x = Mamba(24, 2, causal=causal).double(), embedded([11, 7], 24)
    with torch.no_grad():
        exact = backbone(x)
        for dtype, error in ((torch.float32, 5e-6), (torch.bfloat16, 2e-2)):
            off = backbone.to(dtype)(x.replace(hidden=x.hidden.to(dtype))).double() - exact
            assert 0 < off.norm() / exact.norm() <= error, dtype


def test_dropout_acts_on_every_branch_while_training():
    backbone, x = Mamba(6, 1, dropout=0.5).double(), embedded([5, 5], 6)
    assert not torch.equal(backbone(x), backbone(x))
    backbone.eval()
    assert_close(backbone(x), backbone(x))


def test_flops_of_a_layer_are_those_of_its_formula():
    b, n, e, s, r, k = 2, 49, 11, 5, 3, 4
    ssm, x = SelectiveSSM(e, num_states=s, rank=r, kernel_size=k), torch.randn(b, n, e)
    with FlopCounterMode(display=False) as counter:
        ssm(x)
    matrices = 2 * (e * (r + 2 * s) + r * e)
    scan, convolution, skip = e * (7 * s + 1), e * (2 * k + 1), 2 * e
    assert counter.get_total_flops() + ssm.uncounted_flops(x) == b * n * (matrices + scan + convolution + skip)


def test_invalid_arguments_and_unsupported_input_are_refused():
    x = embedded([3, 2], 6)
    with pytest.raises(ValueError, match="depth=0, num_states=16, expand=2; make each 1 or more"):
        Mamba(6, 0)
    with pytest.raises(ValueError, match="kernel_size=1 covers no earlier token"):
        Mamba(6, kernel_size=1)
    with pytest.raises(ValueError, match=r"dropout=1\.0"):
        Mamba(6, dropout=1.0)
    adjacency = Adjacency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="Mamba does not support adjacency or segments"):
        Mamba(6).double()(Embedded(x.hidden, x.positions, x.valid, adjacency))
    with pytest.raises(ValueError, match="this Mamba is bidirectional, so it has no cache; build it with causal=True"):
        Mamba(6).init_cache(5)
    with pytest.raises(ValueError, match="Mamba was given a RNNCache; make its cache with init_cache"):
        Mamba(6, causal=True)(x, LSTM(6, causal=True).init_cache(3))
