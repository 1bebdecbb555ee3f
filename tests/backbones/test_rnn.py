"""The recurrent backbones are torch's own, each direction on its own tokens only."""

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import GRU, LSTM, RNN, Transformer
from seqkit.interfaces import Adjacency, Embedded

ALL = pytest.mark.parametrize("cls", [LSTM, GRU, RNN])


def embedded(lengths, dim):
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, dim).masked_fill(~valid[..., None], 0.0)
    return Embedded(hidden, torch.zeros(len(lengths), n, 1), valid)


@ALL
@pytest.mark.parametrize("causal", [False, True])
def test_without_padding_they_are_torchs_own(cls, causal):
    ours = cls(14, 3, causal=causal)
    theirs = cls.cell(14, 14 if causal else 7, 3, batch_first=True, bidirectional=not causal)
    theirs.load_state_dict(ours.layers.state_dict())
    x = embedded([5, 5], 14)
    assert_close(ours(x), theirs(x.hidden)[0])


@ALL
def test_each_direction_runs_over_real_tokens_only(cls):
    ours, x = cls(14, 1), embedded([3, 7, 5], 14)
    got = ours(x)
    for i, n in enumerate([3, 7, 5]):
        assert_close(got[i, :n], ours.layers(x.hidden[i, None, :n])[0][0])
        assert not got[i, n:].any()


@ALL
def test_a_cache_holds_the_state_after_the_last_real_token(cls):
    ours, x = cls(14, 2, causal=True), embedded([3, 5], 14)
    cache, more = ours.init_cache(7), embedded([2, 2], 14)
    ours(x, cache)
    got = ours(more, cache)
    assert cache.num_tokens == 7
    for i, n in enumerate([3, 5]):
        whole = torch.cat([x.hidden[i, :n], more.hidden[i]])
        assert_close(got[i], ours.layers(whole[None])[0][0, n:])


def test_dropout_acts_between_layers_while_training():
    deep, x = LSTM(14, 2, dropout=0.5), embedded([5, 5], 14)
    assert not torch.equal(deep(x), deep(x))
    deep.eval()
    assert_close(deep(x), deep(x))
    single = LSTM(14, 1, dropout=0.5)
    assert_close(single(x), single(x))


@ALL
def test_invalid_arguments_and_unsupported_input_are_refused(cls):
    x = embedded([3, 2], 14)
    with pytest.raises(ValueError, match="depth=0"):
        cls(14, 0)
    with pytest.raises(ValueError, match="dim=7"):
        cls(7)
    assert cls(7, causal=True).dim == 7
    adjacency = Adjacency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="adjacency or segments"):
        cls(14)(Embedded(x.hidden, x.positions, x.valid, adjacency))
    with pytest.raises(ValueError, match="no real token"):
        cls(14)(embedded([3, 0], 14))
    with pytest.raises(ValueError, match="not causal"):
        cls(14).init_cache(5)
    with pytest.raises(ValueError, match="TransformerCache"):
        cls(16, causal=True)(embedded([3], 16), Transformer(16, 1, causal=True).init_cache(3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@ALL
@pytest.mark.parametrize("causal", [False, True])
def test_a_padded_batch_on_a_gpu_is_that_on_a_cpu_and_from_left_to_right_nothing_waits(cls, causal):
    ours, x = cls(14, 2, causal=causal).double(), embedded([5, 2, 3], 14)
    x = x.replace(hidden=x.hidden.double())
    right, weight = ours(x), torch.randn(3, 5, 14, dtype=torch.float64)
    expected = torch.autograd.grad((right * weight).sum(), list(ours.parameters()))
    ours, x = ours.cuda(), x.replace(hidden=x.hidden.cuda(), valid=x.valid.cuda())
    weight = weight.cuda()
    torch.cuda.set_sync_debug_mode("error" if causal else "default")
    try:
        got = ours(x)
        found = torch.autograd.grad((got * weight).sum(), list(ours.parameters()))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert_close(got.cpu(), right)
    assert_close([g.cpu() for g in found], list(expected))
