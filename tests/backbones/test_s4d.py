"""S4D: a block by its formula, both directions, padding, a cache, and what is refused."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from seqkit.backbones import LSTM, S4D
from seqkit.interfaces import Adjacency, Embedded, TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken
from seqkit.training.optim import AdamW, Muon


def embedded(lengths, dim):
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, dim, dtype=torch.float64).masked_fill(~valid[..., None], 0.0)
    return Embedded(hidden, torch.zeros(len(lengths), n, 1), valid)


def test_a_block_is_a_gated_layer_with_a_residual_connection():
    backbone, x = S4D(6, 1, causal=True).double(), embedded([5, 5], 6)
    (block,) = backbone.blocks
    y = F.gelu(block.ssm(F.layer_norm(x.hidden, (6,), block.norm.weight, block.norm.bias)))
    value, gate = (y @ block.out_proj.weight.T + block.out_proj.bias).chunk(2, dim=-1)
    assert_close(backbone(x), backbone.norm(x.hidden + value * gate.sigmoid()))


@pytest.mark.parametrize("causal", [False, True])
def test_both_directions_run_over_real_tokens_only(causal):
    backbone, x = S4D(6, 2, causal=causal).double(), embedded([3, 7, 5], 6)
    for block in backbone.blocks:
        torch.nn.init.normal_(block.norm.bias)  # which padding must not take for an input
    got = backbone(x)
    for i, n in enumerate([3, 7, 5]):
        alone = Embedded(x.hidden[i, None, :n], x.positions[:1, :n], x.valid[i, None, :n])
        assert_close(got[i, :n], backbone(alone)[0])
        assert not got[i, n:].any()


def test_a_cache_continues_after_the_last_real_token():
    backbone, x = S4D(6, 2, causal=True).double(), embedded([3, 5, 1], 6)
    for block in backbone.blocks:
        torch.nn.init.normal_(block.norm.bias)
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


@pytest.mark.parametrize("causal", [False, True])
def test_float32_and_bfloat16_agree_with_float64(causal):
    backbone, x = S4D(24, 2, causal=causal).double(), embedded([11, 7], 24)
    with torch.no_grad():
        exact = backbone(x)
        for dtype, error in ((torch.float32, 5e-6), (torch.bfloat16, 2e-2)):
            off = backbone.to(dtype)(x.replace(hidden=x.hidden.to(dtype))).double() - exact
            assert 0 < off.norm() / exact.norm() <= error, dtype


def test_dropout_acts_on_every_branch_while_training():
    backbone, x = S4D(6, 1, dropout=0.5).double(), embedded([5, 5], 6)
    assert not torch.equal(backbone(x), backbone(x))
    backbone.eval()
    assert_close(backbone(x), backbone(x))


def test_neither_decay_nor_muon_touches_the_state_matrix():
    model = Model(TokenSpec(vocab_size=7), S4D(16, 1, causal=True), NextToken())
    (ssm,) = (block.ssm for block in model.backbone.blocks)
    own = {id(p) for p in (ssm.log_dt, ssm.log_decay, ssm.frequency, ssm.D)}
    for group in AdamW().build(model).param_groups:
        assert not group["weight_decay"] or not own & set(map(id, group["params"]))
    assert not (own | {id(ssm.C)}) & set(map(id, Muon().build(model).param_groups[0]["params"]))


def test_invalid_arguments_and_unsupported_input_are_refused():
    x = embedded([3, 2], 6)
    with pytest.raises(ValueError, match="depth=0; a state space model needs at least one channel and one layer"):
        S4D(6, 0)
    with pytest.raises(ValueError, match="num_states=5; states come in conjugate pairs"):
        S4D(6, num_states=5)
    with pytest.raises(ValueError, match="spectrum='log'; give 'lin' or 'inv'"):
        S4D(6, spectrum="log")
    with pytest.raises(ValueError, match=r"dropout=1\.0"):
        S4D(6, dropout=1.0)
    adjacency = Adjacency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="S4D does not support adjacency or segments"):
        S4D(6).double()(Embedded(x.hidden, x.positions, x.valid, adjacency))
    with pytest.raises(ValueError, match="this S4D is bidirectional, so it has no cache; build it with causal=True"):
        S4D(6).init_cache(5)
    with pytest.raises(ValueError, match="S4D was given a RNNCache; make its cache with init_cache"):
        S4D(6, causal=True)(x, LSTM(6, causal=True).init_cache(3))
