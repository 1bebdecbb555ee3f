"""The RG-LRU mixer is the paper's recurrence, token by token, forward, backward and from a state."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from seqkit.nn.mixers.rg_lru import RGLRU

DIM, BLOCKS, WIDTH, KERNEL = 5, 3, 6, 4


def mixer_of():
    """Every parameter is away from its start, where biases are 0."""
    mixer = RGLRU(DIM, BLOCKS, width=WIDTH, kernel_size=KERNEL).double()
    with torch.no_grad():
        for p in mixer.parameters():
            p.add_(torch.randn_like(p) * 0.5)
    return mixer


def inputs(n, b=3):
    return torch.randn(b, n, DIM, dtype=torch.float64)


def state_of(b=3):
    return (
        torch.randn(b, KERNEL - 1, WIDTH, dtype=torch.float64),
        torch.randn(b, WIDTH, dtype=torch.float64),
    )


def definition(mixer, x, tail, h):
    """Equations 1 to 4 between the branches of figure 2c: one sequence [n d], one token after the other."""
    layer = mixer.recurrence
    c = WIDTH // BLOCKS
    of_a, of_x = (
        torch.block_diag(*(block[:, part] for block in layer.gate_weight))
        for part in (slice(0, c), slice(c, 2 * c))
    )
    b_a, b_x = (b.flatten() for b in layer.gate_bias.unflatten(0, (BLOCKS, 2, c)).unbind(1))
    seen = list(tail)
    outputs = []
    for token in x:
        branch, gate = (mixer.in_proj.weight @ token + mixer.in_proj.bias).chunk(2)
        seen.append(branch)
        u = layer.convolution_bias
        for i in range(KERNEL):
            u = u + layer.convolution.weight[i, 0] * seen[-1 - i]
        r = (u @ of_a + b_a).sigmoid()
        a = layer.Lambda.sigmoid() ** (8 * r)
        h = a * h + (1 - a**2).sqrt() * ((u @ of_x + b_x).sigmoid() * u)
        y = h * F.gelu(gate, approximate="tanh")
        outputs.append(mixer.out_proj.weight @ y + mixer.out_proj.bias)
    return torch.stack(outputs), torch.stack(seen[-(KERNEL - 1) :]), h


@pytest.mark.parametrize("n", [1, 2, 7, 61])
def test_it_is_the_papers_recurrence_forward_and_backward(n):
    mixer, x = mixer_of(), inputs(n).requires_grad_()
    state = tuple(t.requires_grad_() for t in state_of())
    rows = [definition(mixer, *row) for row in zip(x, *state)]
    right = [torch.stack(parts) for parts in zip(*rows)]
    y, after = mixer.step(x, None, state)
    assert_close([y, *after], right)
    wanted = (x, *state, *mixer.parameters())
    g = [torch.randn_like(t) for t in right]
    found = torch.autograd.grad([y, *after], wanted, g)
    assert_close(found, torch.autograd.grad(right, wanted, g), rtol=1e-9, atol=1e-9)


def test_without_a_state_it_starts_from_zero():
    mixer, x = mixer_of(), inputs(7)
    zero = [torch.zeros_like(t[0]) for t in state_of()]
    assert_close(mixer.mix(x, None), torch.stack([definition(mixer, one, *zero)[0] for one in x]))


def test_ragged_parts_equal_one_pass_each():
    """The second row has no real token in the first part, and the first none in the second."""
    mixer = mixer_of()
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
    zero = [torch.zeros_like(t[0]) for t in state_of()]
    for sequence, got, tail, h in zip(sequences, outputs, *state):
        assert_close((torch.cat(got), tail, h), definition(mixer, sequence, *zero))


@pytest.mark.parametrize("value", [-500.0, 16.0, 500.0])
@pytest.mark.parametrize("gate", [-500.0, 0.0])
def test_gradients_are_finite_where_nothing_is_forgotten(value, gate):
    """a is 1 in float32 for Lambda = 500 and for a closed gate, where sqrt(1 - a^2) has no slope."""
    mixer, x = RGLRU(DIM, BLOCKS), torch.randn(2, 7, DIM)
    with torch.no_grad():
        mixer.recurrence.Lambda.fill_(value)
        mixer.recurrence.gate_bias.view(BLOCKS, 2, -1)[:, 0] = gate
    y = mixer.mix(x, None)
    gradients = torch.autograd.grad(y.square().sum(), list(mixer.parameters()))
    assert all(t.isfinite().all() for t in (y, *gradients))


def test_states_and_decays_stay_in_float32_under_autocast():
    """A decay of 1 - 2^-11 is 1 in bfloat16, and the state would not forget."""
    mixer, x = RGLRU(DIM, BLOCKS, width=WIDTH), torch.zeros(2, 4096, DIM)
    with torch.no_grad():
        mixer.in_proj.weight.zero_()
        mixer.in_proj.bias.fill_(1.0)
        mixer.recurrence.convolution.weight.fill_(0.25)
        mixer.recurrence.gate_weight.zero_()
        mixer.recurrence.Lambda.fill_(9.0)
    _, (_, right) = mixer.step(x, None, None)
    with torch.autocast("cpu", torch.bfloat16):
        _, (_, state) = mixer.step(x, None, None)
    assert state.dtype == torch.float32
    assert_close(state, right)
    y, (tail, state) = mixer.bfloat16().step(x.bfloat16(), None, None)
    assert (y.dtype, tail.dtype, state.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    assert_close(state, right)


def test_torchs_counter_and_the_uncounted_flops_are_all_flops():
    mixer, seen = RGLRU(DIM, BLOCKS, width=WIDTH), []
    mixer.recurrence.register_forward_hook(
        lambda m, args, _: seen.append(m.uncounted_flops(args[0]))
    )
    b, n, c = 2, 7, WIDTH // BLOCKS
    with FlopCounterMode(display=False) as counter:
        mixer.mix(torch.randn(b, n, DIM), None)
    assert counter.get_total_flops() == 2 * b * n * WIDTH * (3 * DIM + 2 * c)
    assert seen == [b * n * WIDTH * (2 + 2 * KERNEL + 1)]


def test_it_starts_as_the_published_code():
    layer = RGLRU(12, 4, width=4000).recurrence
    square = layer.Lambda.detach().double().sigmoid() ** 2
    assert 0.9**2 <= square.min() + 1e-6 < 0.812
    assert 0.997 < square.max() <= 0.999**2 + 1e-6
    assert_close(square.mean().item(), (0.9**2 + 0.999**2) / 2, rtol=0, atol=0.004)
    assert 0.49 < layer.convolution.weight.abs().max() <= 0.5
    assert_close(layer.gate_weight.std().item(), 1000**-0.5, rtol=0.01, atol=0)
    assert not layer.gate_bias.any()


def test_the_width_is_four_thirds_in_equal_blocks():
    assert RGLRU(16, 4).out_proj.in_features == 20
    assert RGLRU(96, 8).out_proj.in_features == 128
    for width in (0, 7):
        with pytest.raises(ValueError, match=f"width={width} does not split into num_heads=3"):
            RGLRU(DIM, BLOCKS, width=width)
