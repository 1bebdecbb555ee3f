"""The mLSTM is the recurrence of its paper, gates of any size, sequences in parts; and its initial weights."""

import pytest
import torch
from torch.testing import assert_close

from seqkit.nn.mixers import mlstm as module
from seqkit.nn.mixers.mlstm import GATE_CAP, MLSTM, mlstm

LENGTHS = pytest.mark.parametrize("n", [1, 2, 7, 131])


def recurrence(q, k, v, log_input, log_forget, C=None, n=None):
    """Equations 19 to 27 of Beck et al. 2024 without the output gate, one token after the other: h, C, n."""
    b, h, num_tokens, c = q.shape
    C = q.new_zeros(b, h, v.shape[-1], c) if C is None else C
    n = q.new_zeros(b, h, c) if n is None else n
    outputs = []
    for t in range(num_tokens):
        i = log_input[:, :, t].exp()[..., None]
        f = log_forget[:, :, t].exp()[..., None]
        C = f[..., None] * C + i[..., None] * v[:, :, t, :, None] * k[:, :, t, None, :]
        n = f * n + i * k[:, :, t]
        read = (C * q[:, :, t, None, :]).sum(dim=-1)
        weight = (n * q[:, :, t]).sum(dim=-1, keepdim=True).abs()
        outputs.append(read / weight.clamp(min=1.0))
    return torch.stack(outputs, dim=2), C, n


def arguments(n, largest=3.0, b=2, h=3, c=5, e=7):
    """q, k, v, log_input in [-largest, largest], log_forget in [-largest, 0]."""
    q, k = torch.randn(2, b, h, n, c, dtype=torch.float64)
    v = torch.randn(b, h, n, e, dtype=torch.float64)
    log_input = (2 * torch.rand(b, h, n, dtype=torch.float64) - 1) * largest
    log_forget = -torch.rand(b, h, n, dtype=torch.float64) * largest
    return [t.requires_grad_() for t in (q, k, v, log_input, log_forget)]


@pytest.fixture
def exact(monkeypatch):
    """The published code adds 1e-6 to the denominator, the paper does not."""
    monkeypatch.setattr(module, "EPS", 0.0)


@LENGTHS
@pytest.mark.parametrize("largest", [0.1, 3.0, 20.0])
def test_it_is_the_recurrence_of_the_paper_forward_and_backward(exact, n, largest):
    inputs = arguments(n, largest)
    right = recurrence(*inputs)[0]
    got = mlstm(*inputs)[0]
    assert_close(got, right, rtol=1e-9, atol=1e-9)
    g = torch.randn_like(right)
    found = torch.autograd.grad(got, inputs, g)
    assert_close(found, torch.autograd.grad(right, inputs, g), rtol=1e-7, atol=1e-7)


def test_the_state_is_that_of_the_paper_times_its_stabiliser(exact):
    inputs = arguments(23)
    _, C, n = recurrence(*inputs)
    memory, m = mlstm(*inputs)[1]
    right = torch.cat([C.mT, n[..., None]], dim=-1)
    assert_close(memory * m.exp()[..., None, None], right)


@pytest.mark.parametrize("cuts", [[1, 22], [10, 13], [1] * 23])
def test_a_sequence_in_parts_is_the_whole_gradients_too(exact, cuts):
    inputs = arguments(23)
    right = recurrence(*inputs)[0]
    state = None
    parts = []
    for part in zip(*(t.split(cuts, dim=2) for t in inputs)):
        y, state = mlstm(*part, state=state)
        parts.append(y)
    got = torch.cat(parts, dim=2)
    assert_close(got, right)
    g = torch.randn_like(right)
    found = torch.autograd.grad(got, inputs, g)
    assert_close(found, torch.autograd.grad(right, inputs, g))


@pytest.mark.parametrize("gate", [60.0, -60.0])
@pytest.mark.parametrize("forget", [0.0, -60.0])
def test_no_gate_is_too_large_for_float32(gate, forget):
    q, k, v, _, _ = arguments(131)
    # positive, or the sum in the denominator may be a small difference of large numbers
    q, k = (t.detach().abs().requires_grad_() for t in (q, k))
    sign = torch.where(torch.rand(v.shape[:3]) < 0.2, 1.0, -1.0).double()
    log_input = (gate * sign).requires_grad_()
    log_forget = torch.where(torch.rand(v.shape[:3]) < 0.5, forget, -1e-3).double().requires_grad_()
    inputs = [q, k, v, log_input, log_forget]
    right = recurrence(*inputs)[0]
    g = torch.randn_like(right)
    gradients = torch.autograd.grad(right, inputs, g)
    single = [t.detach().float().requires_grad_() for t in inputs]
    got = mlstm(*single)[0]
    assert_close(got.double(), right, rtol=1e-4, atol=1e-4)
    for found, gradient in zip(torch.autograd.grad(got, single, g.float()), gradients):
        slack = 1e-4 * float(gradient.abs().max())
        assert_close(found.double(), gradient, rtol=1e-4, atol=slack)


def test_gates_of_thousands_give_numbers():
    q, k, v, log_input, log_forget = (t.detach().float() for t in arguments(131, largest=5000.0))
    inputs = [t.requires_grad_() for t in (q, k, v, log_input, log_forget)]
    h, state = mlstm(*inputs)
    found = torch.autograd.grad(h.sum(), inputs)
    assert all(bool(t.isfinite().all()) for t in (h, *state, *found))


def tokens(n, b=2, dim=12):
    return torch.randn(b, n, dim, dtype=torch.float64)


def noisy(dim=12, num_heads=3, **settings):
    """A layer in float64 whose gates depend on the token."""
    layer = MLSTM(dim, num_heads, **settings).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(torch.randn_like(p) * 0.5)
        layer.gate_proj.bias[:num_heads] += 10.0
    return layer


def written_out(layer, x):
    """The layer of xLSTM 7B, one example at a time."""
    h = layer.num_heads
    sizes = [layer.key_dim, layer.key_dim, layer.dim, layer.dim]
    q, k, v, o = (x @ w.T for w in layer.in_proj.weight.split(sizes))
    gates = GATE_CAP * ((x @ layer.gate_proj.weight.T + layer.gate_proj.bias) / GATE_CAP).tanh()
    q, k, v, gates = (t.unflatten(-1, (-1, h) if t is gates else (h, -1)) for t in (q, k, v, gates))
    heads = [t.transpose(1, 2) for t in (q / q.shape[-1] ** 0.5, k, v)]
    log_input = gates[:, :, 0].mT
    log_forget = gates[:, :, 1].mT.sigmoid().log()
    y = recurrence(*heads, log_input, log_forget)[0]
    y = (y - y.mean(dim=-1, keepdim=True)) / (
        y.var(dim=-1, correction=0, keepdim=True) + 1e-6
    ).sqrt()
    y = y.transpose(1, 2).flatten(2) * layer.norm.weight
    return (y * o.sigmoid()) @ layer.out_proj.weight.T


@LENGTHS
@pytest.mark.parametrize("key_factor", [0.5, 1.0])
def test_the_layer_written_out(n, key_factor):
    layer = noisy(key_factor=key_factor)
    x = tokens(n)
    with torch.no_grad():
        assert_close(layer.mix(x, None), written_out(layer, x), rtol=1e-5, atol=1e-5)


def test_padding_leaves_the_state_and_no_token_keeps_it():
    layer = noisy()
    x = tokens(13, b=3)
    lengths = torch.tensor([13, 5, 0])
    valid = torch.arange(13) < lengths[:, None]
    with torch.no_grad():
        _, before = layer.step(tokens(4, b=3), None, None)
        y, after = layer.step(x * valid[..., None], valid, before)
        for row, length in enumerate(lengths):
            kept = tuple(t[row : row + 1] for t in before)
            alone, last = (
                layer.step(x[row : row + 1, :length], None, kept) if length else (y[:0], kept)
            )
            assert_close(y[row : row + 1, :length], alone if length else y[row : row + 1, :0])
            assert_close(tuple(t[row : row + 1] for t in after), last)


def test_initial_weights_are_those_of_the_published_code():
    layer = MLSTM(256, 4)
    for projection in (layer.in_proj, layer.out_proj):
        assert projection.bias is None
        assert float(projection.weight.detach().std()) == pytest.approx(
            (2 / (5 * 256)) ** 0.5, rel=0.02
        )
    assert not layer.gate_proj.weight.any()
    assert_close(layer.gate_proj.bias, torch.tensor([-10.0] * 4 + [3.0, 4.0, 5.0, 6.0]))
    assert_close(layer.norm.weight, torch.ones(256))


def test_half_as_many_channels_for_a_key_rounded_up():
    assert MLSTM(20, 4).key_dim == 4 * 3
    assert MLSTM(20, 4, key_factor=1.0).key_dim == 20


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="dim=10 does not split into num_heads=4 equal heads"):
        MLSTM(10, 4)
    with pytest.raises(ValueError, match="key_factor=0"):
        MLSTM(8, 4, key_factor=0)
