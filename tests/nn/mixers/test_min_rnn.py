"""minGRU and minLSTM are the paper's recurrences, token by token, forward, backward and from a state."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.mixers.base import BothDirections
from seqkit.nn.mixers.min_rnn import MinGRU, MinLSTM

DIM = 5
BOTH = pytest.mark.parametrize("kind", [MinGRU, MinLSTM])
EXPANDED = pytest.mark.parametrize("expand", [1, 3])


def mixer_of(kind, expand=1):
    return kind(DIM, expand=expand).double()


def inputs(n, b=3):
    return torch.randn(b, n, DIM, dtype=torch.float64)


def definition(mixer, x, h):
    """Equations of sections 3.1 and 3.2, with g of appendix B: one sequence [n d], one token after the other."""
    outputs = []
    for token in x:
        candidate, *gates = (mixer.in_proj.weight @ token + mixer.in_proj.bias).chunk(
            2 if isinstance(mixer, MinGRU) else 3
        )
        candidate = torch.where(candidate >= 0, candidate + 0.5, candidate.sigmoid())
        if isinstance(mixer, MinGRU):
            z = gates[0].sigmoid()
            h = (1 - z) * h + z * candidate
        else:
            i, f = (gate.sigmoid() for gate in gates)
            h = f / (f + i) * h + i / (f + i) * candidate
        outputs.append(h)
    h_all = torch.stack(outputs)
    return h_all if mixer.out_proj is None else h_all @ mixer.out_proj.weight.T, h


@BOTH
@EXPANDED
@pytest.mark.parametrize("n", [1, 2, 7, 61])
def test_it_is_the_papers_recurrence_forward_and_backward(kind, expand, n):
    mixer = mixer_of(kind, expand)
    x = inputs(n).requires_grad_()
    state = torch.rand(3, expand * DIM, dtype=torch.float64, requires_grad=True)
    pairs = [definition(mixer, one, h) for one, h in zip(x, state)]
    right = [torch.stack(parts) for parts in zip(*pairs)]
    got = mixer.step(x, None, state)
    assert_close(list(got), right)
    wanted = (x, state, *mixer.parameters())
    g = [torch.randn_like(t) for t in right]
    assert_close(
        torch.autograd.grad(got, wanted, g),
        torch.autograd.grad(right, wanted, g),
        rtol=1e-9,
        atol=1e-9,
    )


@BOTH
def test_without_a_state_it_starts_from_zero(kind):
    mixer, x = mixer_of(kind), inputs(7)
    zero = torch.zeros(DIM, dtype=torch.float64)
    assert_close(mixer.mix(x, None), torch.stack([definition(mixer, one, zero)[0] for one in x]))


@BOTH
@EXPANDED
def test_ragged_parts_equal_one_pass_each(kind, expand):
    """The second row has no real token in the first part, and the first none in the second."""
    mixer = mixer_of(kind, expand)
    sequences = [torch.randn(n, DIM, dtype=torch.float64) for n in (12, 6, 9)]
    state, outputs = None, [[], [], []]
    for cuts in ([(0, 7), (0, 0), (0, 2)], [(7, 7), (0, 3), (2, 3)], [(7, 12), (3, 6), (3, 9)]):
        longest = max(end - start for start, end in cuts)
        valid = torch.tensor([[t < end - start for t in range(longest)] for start, end in cuts])
        x = torch.zeros(3, longest, DIM, dtype=torch.float64)
        for i, (start, end) in enumerate(cuts):
            x[i, : end - start] = sequences[i][start:end]
        y, state = mixer.step(x, valid, state)
        for i, (start, end) in enumerate(cuts):
            outputs[i].append(y[i, : end - start])
    zero = torch.zeros(expand * DIM, dtype=torch.float64)
    for sequence, got, last in zip(sequences, outputs, state):
        right, h = definition(mixer, sequence, zero)
        assert_close(torch.cat(got), right)
        assert_close(last, h)


@BOTH
def test_states_are_positive(kind):
    assert mixer_of(kind).mix(10 * inputs(61), None).min() > 0


@pytest.mark.parametrize("gate", [-500.0, 500.0])
def test_closed_gates_of_a_minlstm_share_and_have_gradients(gate):
    """sigmoid(-500) is zero in float32, where f / (f + i) would be 0 / 0."""
    mixer, x = MinLSTM(DIM), torch.randn(2, 7, DIM)
    with torch.no_grad():
        mixer.in_proj.bias[DIM:] = gate
        mixer.in_proj.weight[DIM:] = 0.0
    y, _ = mixer.step(x, None, torch.zeros(2, DIM))
    candidate = F.linear(x[:, 0], mixer.in_proj.weight[:DIM], mixer.in_proj.bias[:DIM])
    right = torch.where(candidate >= 0, candidate + 0.5, candidate.sigmoid()) / 2
    assert_close(y[:, 0], right)
    gradients = torch.autograd.grad(y.sum(), list(mixer.parameters()))
    assert all(t.isfinite().all() for t in gradients)


@BOTH
def test_states_and_decays_stay_in_float32_under_autocast(kind):
    """A decay of 1 - 2^-12 is 1 in bfloat16, and the state would not forget."""
    mixer, x = kind(DIM), torch.zeros(2, 4096, DIM)
    with torch.no_grad():
        mixer.in_proj.weight.zero_()
        mixer.in_proj.bias.zero_()
        mixer.in_proj.bias[DIM : 2 * DIM] = -8.0
    right, last = mixer.step(x, None, None)
    with torch.autocast("cpu", torch.bfloat16):
        y, state = mixer.step(x, None, None)
    assert state.dtype == torch.float32
    assert_close(state, last)
    assert_close(y, right)
    y, state = mixer.bfloat16().step(x.bfloat16(), None, None)
    assert (y.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    assert_close(state, last)


@BOTH
@EXPANDED
def test_torchs_counter_and_the_uncounted_flops_are_all_flops(kind, expand):
    mixer = kind(DIM, expand=expand)
    both = BothDirections(mixer, kind(DIM, expand=expand))
    seen = []
    for module in both.modules():
        if hasattr(module, "uncounted_flops"):
            module.register_forward_hook(lambda m, args, _: seen.append(m.uncounted_flops(args[0])))
    b, n, e, gates = 2, 7, expand * DIM, mixer.num_gates
    with FlopCounterMode(display=False) as counter:
        both(torch.randn(b, n, DIM), AttentionContext(is_causal=False))
    out = 2 * e * DIM if expand > 1 else 0
    assert counter.get_total_flops() == 2 * b * n * (2 * DIM * (1 + gates) * e + out)
    assert sum(seen) == 2 * b * n * 2 * e


@BOTH
def test_weights_start_as_those_of_linear_layers(kind):
    mixer = kind(400)
    bound = 400**-0.5
    for p in mixer.parameters():
        assert 0.95 * bound < p.abs().max() <= bound
        assert_close(p.std().item(), bound / 3**0.5, rtol=0.05, atol=0.0)


@BOTH
def test_a_width_below_that_of_the_model_is_refused(kind):
    with pytest.raises(ValueError, match="expand=0"):
        kind(DIM, expand=0)
