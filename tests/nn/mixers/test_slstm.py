"""The sLSTM is the recurrence of its paper, gates of any size, sequences in parts; and its initial weights."""

import math

import pytest
import torch
from torch.nn.functional import silu
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from seqkit.nn.mixers.slstm import SLSTM, slstm

LENGTHS = pytest.mark.parametrize("n", [1, 2, 7, 69])


def recurrence(gates, R, hidden=None, c=None, normaliser=None):
    """Equations 8 to 14 of Beck et al. 2024, without a stabiliser, one token after the other: h, c, n."""
    num_heads, num_tokens, b, width = gates.shape
    zero = gates.new_zeros(num_heads, b, width // 4)
    hidden = zero if hidden is None else hidden
    c = zero if c is None else c
    normaliser = zero if normaliser is None else normaliser
    outputs = []
    for t in range(num_tokens):
        raw = gates[:, t] + hidden @ R
        i, f, z, o = raw.chunk(4, dim=-1)
        c = f.sigmoid() * c + i.exp() * z.tanh()
        normaliser = f.sigmoid() * normaliser + i.exp()
        hidden = o.sigmoid() * c / normaliser
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), c, normaliser


def arguments(n, scale=1.0, b=2, h=3, c=5):
    """Gates [h n b 4c] and recurrent weights."""
    gates = torch.randn(h, n, b, 4 * c, dtype=torch.float64) * scale
    R = torch.randn(h, c, 4 * c, dtype=torch.float64) * 0.7
    return [gates.requires_grad_(), R.requires_grad_()]


@LENGTHS
@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_it_is_the_recurrence_of_the_paper_forward_and_backward(n, scale):
    inputs = arguments(n, scale)
    right = recurrence(*inputs)[0]
    got = slstm(*inputs, None)[0][:, 1:]
    assert_close(got, right)
    g = torch.randn_like(right)
    found = torch.autograd.grad(got, inputs, g)
    assert_close(found, torch.autograd.grad(right, inputs, g), rtol=1e-8, atol=1e-8)


def test_the_memory_is_that_of_the_paper_times_its_stabiliser():
    inputs = arguments(23)
    _, c, normaliser = recurrence(*inputs)
    _, memory, m = slstm(*inputs, None)
    assert_close(memory * m.exp(), torch.stack([c, normaliser]))
    assert float(memory[1].detach().min()) >= 1


@pytest.mark.parametrize("cuts", [[1, 22], [10, 13], [1] * 23])
def test_a_sequence_in_parts_is_the_whole_gradients_too(cuts):
    inputs = arguments(23)
    right = recurrence(*inputs)[0]
    memory = None
    parts = []
    for part in inputs[0].split(cuts, dim=1):
        hiddens, cell, m = slstm(part, inputs[1], memory)
        memory = (hiddens[:, -1], cell, m)
        parts.append(hiddens[:, 1:])
    got = torch.cat(parts, dim=1)
    assert_close(got, right)
    g = torch.randn_like(right)
    found = torch.autograd.grad(got, inputs, g)
    assert_close(found, torch.autograd.grad(right, inputs, g))


def test_numeric_gradients_of_all_that_is_differentiable():
    gates, R = arguments(5, h=2, c=2)
    cell = torch.rand(2, 2, 2, 2, dtype=torch.float64) + 1
    hidden = torch.randn(2, 2, 2, dtype=torch.float64)
    m = torch.randn(2, 2, 2, dtype=torch.float64)
    given = [t.requires_grad_() for t in (gates, R, hidden, cell)]

    def run(gates, R, hidden, cell):
        hiddens, last, _ = slstm(gates, R, (hidden, cell, m))
        # whatever the stabiliser, which has no gradient, the memory is this
        return hiddens, last[0] / last[1]

    assert torch.autograd.gradcheck(run, given)


@pytest.mark.parametrize("size", [60.0, 5000.0])
def test_no_gate_is_too_large_for_float32(size):
    gates, R = arguments(67)
    signs = torch.where(torch.rand_like(gates) < 0.5, size, -size)
    gates = torch.where(torch.rand_like(gates) < 0.7, signs, gates).detach()
    single = [gates.float().requires_grad_(), R.detach().float().requires_grad_()]
    hiddens, *state = slstm(*single, None)
    found = torch.autograd.grad(hiddens.sum(), single)
    assert all(bool(t.isfinite().all()) for t in (hiddens, *state, *found))
    if size < 700:  # the paper's formula as it stands overflows there in float64, too
        assert_close(hiddens[:, 1:].double(), recurrence(gates, R)[0], rtol=1e-4, atol=1e-4)


def tokens(n, b=2, dim=12):
    return torch.randn(b, n, dim, dtype=torch.float64)


def noisy(dim=12, num_heads=3, **settings):
    """A layer in float64 with recurrent weights, and forget gates that forget."""
    layer = SLSTM(dim, num_heads, **settings).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(torch.randn_like(p) * 0.5)
    return layer


def written_out(layer, x):
    """The layer of the paper, one head at a time, the convolution as a sum over offsets."""
    convolved = torch.zeros_like(x) + layer.convolution_bias
    for offset, weight in enumerate(layer.convolution.weight):
        for t in range(offset, x.shape[1]):
            convolved[:, t] += weight[0] * x[:, t - offset]
    c = layer.head_dim
    heads = [t.split(c, dim=-1) for t in (silu(convolved), x)]
    outputs = []
    for head, (seen, own) in enumerate(zip(*heads)):
        i, f, z, o = layer.input_weight[head].chunk(4, dim=-1)
        raw = torch.cat([seen @ i, seen @ f, own @ z, own @ o], dim=-1)
        gates = raw + layer.bias.split(4 * c)[head]
        R = layer.recurrent_weight[head : head + 1]
        h = recurrence(gates.transpose(0, 1)[None], R)[0][0].transpose(0, 1)
        variance = h.var(dim=-1, correction=0, keepdim=True)
        outputs.append((h - h.mean(dim=-1, keepdim=True)) / (variance + 1e-5).sqrt())
    return torch.cat(outputs, dim=-1) * layer.norm.weight


@pytest.mark.parametrize("n", [1, 3, 19])
@pytest.mark.parametrize("kernel_size", [2, 4])
def test_the_layer_written_out(n, kernel_size):
    layer = noisy(kernel_size=kernel_size)
    x = tokens(n)
    with torch.no_grad():
        assert_close(layer.mix(x, None), written_out(layer, x))


def test_padding_leaves_the_state_and_no_token_keeps_it():
    layer = noisy()
    x = tokens(13, b=3)
    lengths = torch.tensor([13, 5, 0])
    valid = torch.arange(13) < lengths[:, None]
    with torch.no_grad():
        _, before = layer.step(tokens(4, b=3), None, None)
        y, after = layer.step(x * valid[..., None], valid, before)
        for row, length in enumerate(lengths):
            last = tuple(t[row : row + 1] for t in before)
            if length:
                alone, last = layer.step(x[row : row + 1, :length], None, last)
                assert_close(y[row : row + 1, :length], alone)
            assert_close(tuple(t[row : row + 1] for t in after), last)


def test_a_row_without_any_token_has_no_memory_and_finite_gradients():
    layer = noisy()
    valid = torch.tensor([[True, True, False], [False, False, False]])
    x = (tokens(3) * valid[..., None]).requires_grad_()
    y, state = layer.step(x, valid, None)
    y[valid].sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in (x, *layer.parameters()))
    later = tokens(4)
    with torch.no_grad():
        assert_close(layer.step(later, None, state)[0][1:], layer.mix(later[1:], None))


def test_torchs_counter_and_the_uncounted_flops_are_all_flops():
    b, n, d, h = 2, 7, 12, 3
    c = d // h
    layer = SLSTM(d, h)
    x = torch.randn(b, n, d)
    with FlopCounterMode(display=False) as counter:
        layer.mix(x, None)
    # input and recurrent weights of four gates
    assert counter.get_total_flops() == 2 * (2 * b * n * h * c * 4 * c)
    # log-sigmoid, + m, maximum, two times - m and exp, tanh, sigmoid; 2, 2 and 1 of c and n; product, quotient
    recurrent = 9 + 5 + 2
    assert layer.uncounted_flops(x) == b * n * d * (2 * 4 + 1 + recurrent)


def test_initial_weights_are_those_of_the_published_code():
    dim = 256
    layer = SLSTM(dim, 4)
    assert float(layer.input_weight.detach().std()) == pytest.approx(
        math.sqrt(2 / (5 * dim)), rel=0.02
    )
    assert not layer.recurrent_weight.any()
    bias = layer.bias.detach().unflatten(0, (4, 4, dim // 4))
    assert not bias[:, [0, 2, 3]].any()
    assert_close(bias[:, 1], torch.linspace(3, 6, dim // 4).expand(4, -1))
    assert_close(layer.norm.weight, torch.ones(dim))
    assert float(layer.convolution.weight.detach().abs().max()) <= 0.5
    assert float(layer.convolution_bias.detach().std()) == pytest.approx(
        0.5 / math.sqrt(3), rel=0.2
    )


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="dim=10 does not split into num_heads=4 equal heads"):
        SLSTM(10, 4)
    with pytest.raises(ValueError, match="kernel_size=1"):
        SLSTM(8, 4, kernel_size=1)
