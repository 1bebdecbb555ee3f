"""The recurrent backbones: torch's own layers, bare or on branches, each direction on its own tokens only."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import GRU, LSTM, RNN, Transformer
from seqkit.interfaces import Adjacency, Embedded
from seqkit.interfaces.batch import Padding
from seqkit.nn import recurrence
from seqkit.nn.recurrence import RecurrentLayer

ALL = pytest.mark.parametrize("cls", [LSTM, GRU, RNN])
BARE_OR_NOT = pytest.mark.parametrize("residual", [False, True], ids=["bare", "residual"])
BOTH_WAYS = pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
PADDED_OR_NOT = pytest.mark.parametrize("lengths", [(5, 5, 5), (3, 5, 2)], ids=["whole", "padded"])


def embedded(lengths, dim):
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, dim).masked_fill(~valid[..., None], 0.0)
    positions = torch.zeros(len(lengths), n, 1)
    return Embedded(hidden, positions, valid).know(Padding.of(valid))


def stacked(ours):
    """torch's own network of all layers with the weights of a backbone."""
    cells = [block.cell for block in ours.blocks]
    first = cells[0]
    theirs = ours.cell(
        ours.dim, first.hidden_size, len(cells), batch_first=True, bidirectional=first.bidirectional
    )
    weights = {
        name.replace("_l0", f"_l{i}"): weight
        for i, cell in enumerate(cells)
        for name, weight in cell.named_parameters()
    }
    theirs.load_state_dict(weights)
    return theirs


def alone(ours, hidden):
    """Hidden states [n d] of one example without padding."""
    n = len(hidden)
    valid = torch.ones(1, n, dtype=torch.bool)
    whole = Embedded(hidden[None], torch.zeros(1, n, 1), valid).know(Padding.of(valid))
    return ours(whole)[0]


@ALL
@BOTH_WAYS
@PADDED_OR_NOT
@pytest.mark.parametrize("depth", [1, 3])
def test_bare_layers_are_torchs_own_over_real_tokens_only(cls, causal, lengths, depth):
    ours, x = cls(14, depth, causal=causal, residual=False), embedded(lengths, 14)
    got, theirs = ours(x), stacked(ours)
    for i, n in enumerate(lengths):
        assert_close(got[i, :n], theirs(x.hidden[i, None, :n])[0][0])
        assert not got[i, n:].any()


@ALL
@BOTH_WAYS
@PADDED_OR_NOT
@pytest.mark.parametrize("depth", [1, 2])
def test_by_default_each_layer_is_a_branch_behind_a_norm_and_a_norm_comes_last(
    cls, causal, lengths, depth
):
    ours, x = cls(14, depth, causal=causal), embedded(lengths, 14)
    norms = [*(block.norm for block in ours.blocks), ours.norm]
    for norm in norms:  # else that of one place would do in another
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    got = ours(x)
    for i, n in enumerate(lengths):
        right = x.hidden[i, :n]
        for block in ours.blocks:
            branch = F.layer_norm(right, (14,), block.norm.weight, block.norm.bias)
            right = right + block.cell(branch[None])[0][0]
        assert_close(got[i, :n], F.layer_norm(right, (14,), ours.norm.weight, ours.norm.bias))
        assert not got[i, n:].any()


@ALL
@BARE_OR_NOT
@PADDED_OR_NOT
def test_token_by_token_with_a_cache_equals_all_at_once(cls, residual, lengths):
    """Padding in a step leaves the state, so that the next token continues after the last real one."""
    ours, x, more = (
        cls(7, 3, causal=True, residual=residual),
        embedded(lengths, 7),
        embedded((2, 2, 2), 7),
    )
    cache, states = ours.init_cache(11), []
    for part in (x, more):
        for t in range(part.valid.shape[1]):
            now = slice(t, t + 1)
            valid = part.valid[:, now]
            token = Embedded(part.hidden[:, now], part.positions[:, now], valid)
            states.append(ours(token.know(Padding(part.is_padded, len(valid))), cache))
    got = torch.cat(states, dim=1)
    assert cache.num_tokens == 7
    assert_close(got[:, :5], ours(x))
    for i, n in enumerate(lengths):
        right = alone(ours, torch.cat([x.hidden[i, :n], more.hidden[i]]))
        assert_close(torch.cat([got[i, :n], got[i, 5:]]), right)


@ALL
@BARE_OR_NOT
@PADDED_OR_NOT
@pytest.mark.parametrize("num_more", [1, 2])
def test_a_cache_holds_the_state_after_the_last_real_token(cls, residual, lengths, num_more):
    ours, x = cls(14, 2, causal=True, residual=residual), embedded(lengths, 14)
    cache, more = ours.init_cache(7), embedded([num_more] * 3, 14)
    ours(x, cache)
    cache.reorder(torch.tensor([2, 0, 0]))
    got = ours(more, cache)
    assert cache.num_tokens == 5 + num_more
    for row, i in enumerate([2, 0, 0]):
        n = lengths[i]
        assert_close(got[row], alone(ours, torch.cat([x.hidden[i, :n], more.hidden[row]]))[n:])


@pytest.fixture(params=["all columns", "packed"])
def is_packed(request, monkeypatch):
    """Both ways to run over a padded batch: that of a CPU, and that of cuDNN and of bfloat16 without a kernel."""
    if request.param == "packed":
        monkeypatch.setattr(recurrence, "_needs_packing", lambda x: True)
    else:
        monkeypatch.delattr(recurrence, "pack_padded_sequence")
    return request.param == "packed"


def gradients(output, ours, hidden):
    """Of a random sum of outputs [n d], which is the same at each call."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    wanted = [hidden, *ours.parameters()]
    return torch.autograd.grad((output * weight).sum(), wanted, retain_graph=True)


@ALL
@BOTH_WAYS
def test_gradients_of_a_padded_example_are_those_of_it_alone(cls, causal, is_packed):
    ours = cls(14, 2, causal=causal).double()
    lengths = (3, 6, 1)
    x = embedded(lengths, 14)
    x = x.replace(hidden=x.hidden.double().requires_grad_())
    got = ours(x)
    for i, n in enumerate(lengths):
        hidden = x.hidden[i, :n].detach().requires_grad_()
        of_hidden, *found = gradients(got[i, :n], ours, x.hidden)
        of_alone, *right = gradients(alone(ours, hidden), ours, hidden)
        assert_close(found, right)
        assert_close(of_hidden[i, :n], of_alone)
        assert of_hidden.count_nonzero() == n * 14  # neither padding nor another example


@ALL
@BOTH_WAYS
def test_an_example_without_tokens_leaves_the_others_as_they_are(cls, causal, is_packed):
    ours = cls(14, 2, causal=causal)
    x = embedded([3, 0], 14)
    got = ours(x)
    assert_close(got[0], alone(ours, x.hidden[0]))
    assert not got[1].any()


@ALL
@BARE_OR_NOT
def test_parts_of_ragged_prompts_leave_the_states_and_gradients_of_each_prompt_alone(
    cls, residual, is_packed
):
    """A part in which a prompt has no token, first or later, leaves its state."""
    ours = cls(7, 2, causal=True, residual=residual).double()
    cache = ours.init_cache(11)
    parts = [embedded(lengths, 7) for lengths in ((3, 0, 2), (2, 4, 0), (1, 0, 3))]
    for part in parts:
        ours(part.replace(hidden=part.hidden.double()), cache)
    for i in range(3):
        own = torch.cat([part.hidden[i][part.valid[i]] for part in parts]).double()
        right = ours.init_cache(11)
        ours(embedded([len(own)], 7).replace(hidden=own[None]), right)
        for found, expected in zip(cache.states, right.states, strict=True):
            for one, other in zip(found, expected, strict=True):
                assert_close(one[i], other[0])
                weights = [*ours.blocks.parameters()]
                assert_close(
                    torch.autograd.grad(
                        one[i].sum(), weights, retain_graph=True, allow_unused=True
                    ),
                    torch.autograd.grad(
                        other[0].sum(), weights, retain_graph=True, allow_unused=True
                    ),
                )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_long_padding_leaves_the_memory_of_an_lstm_as_it_is(dtype):
    ours = LSTM(8, 1, causal=True).to(dtype)
    x = embedded([400, 3], 8)
    x = x.replace(hidden=x.hidden.to(dtype))
    cache = ours.init_cache(400)
    ours(x, cache)
    right = ours.init_cache(400)
    ours(embedded([3], 8).replace(hidden=x.hidden[1:, :3]), right)
    assert_close(cache.states[0][1][1], right.states[0][1][0])


@ALL
@pytest.mark.parametrize(
    ("residual", "depth", "dropping"),
    [(True, 1, {0}), (True, 3, {0, 1, 2}), (False, 1, set()), (False, 3, {0, 1})],
)
def test_dropout_acts_on_every_branch_or_between_bare_layers_while_training(
    cls, residual, depth, dropping
):
    ours, x = cls(14, depth, residual=residual, dropout=0.5), embedded((5, 5), 14)
    for i in range(depth):
        for j, block in enumerate(ours.blocks):
            block.dropout.train(i == j)
        assert torch.equal(ours(x), ours(x)) == (i not in dropping)
    ours.eval()
    assert torch.equal(ours(x), ours(x))


@ALL
def test_every_layer_starts_as_a_recurrent_layer_does(cls):
    """tests/nn/test_recurrence.py says how."""
    blocks = cls(14, 3).blocks
    assert [type(block) for block in blocks] == [RecurrentLayer] * 3
    for cell in (block.cell for block in blocks):
        for gate in cell.weight_hh_l0_reverse.split(7):
            assert_close(gate @ gate.T, torch.eye(7), rtol=0, atol=1e-5)


@pytest.mark.parametrize("cls", [LSTM, GRU])
@pytest.mark.parametrize("residual", [True, False])
def test_gradients_reach_the_first_of_many_layers(cls, residual):
    """Those of torch's own start do not: its weights shrink what passes through each of its layers."""
    torch.manual_seed(0)
    ours, hidden = cls(23, 8, causal=True, residual=residual), torch.randn(3, 31, 23)
    theirs = cls.cell(23, 23, 8, batch_first=True)
    out, weight = torch.stack([alone(ours, one) for one in hidden]), torch.randn(3, 31, 23)
    first, last = torch.autograd.grad(
        (out * weight).sum(), [ours.blocks[i].cell.weight_hh_l0 for i in (0, 7)]
    )
    assert first.norm() > (0.5 if residual else 0.05) * last.norm()
    loss = (theirs(hidden)[0] * weight).sum()
    first, last = torch.autograd.grad(loss, [theirs.weight_hh_l0, theirs.weight_hh_l7])
    assert first.norm() < 0.05 * last.norm()


@ALL
def test_invalid_arguments_and_unsupported_input_are_refused(cls):
    x = embedded([3, 2], 14)
    with pytest.raises(ValueError, match="depth=0"):
        cls(14, 0)
    with pytest.raises(ValueError, match="dim=7"):
        cls(7)
    with pytest.raises(ValueError, match=r"dropout=1\.5"):
        cls(14, dropout=1.5)
    assert cls(7, causal=True).dim == 7
    adjacency = Adjacency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="does not support adjacency"):
        cls(14)(Embedded(x.hidden, x.positions, x.valid, adjacency))
    with pytest.raises(ValueError, match="not causal"):
        cls(14).init_cache(5)
    with pytest.raises(ValueError, match="TransformerCache"):
        cls(16, causal=True)(embedded([3], 16), Transformer(16, 1, causal=True).init_cache(3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@ALL
@BARE_OR_NOT
@BOTH_WAYS
def test_a_padded_batch_on_a_gpu_is_that_on_a_cpu_and_from_left_to_right_nothing_waits(
    cls, causal, residual
):
    ours, x = cls(14, 2, causal=causal, residual=residual).double(), embedded([5, 2, 3], 14)
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
