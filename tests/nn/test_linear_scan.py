"""The linear scan is the recurrence, step by step, forward and backward, whatever the length, width and decay."""

import pytest
import torch
from exported_scan import assert_exported_alike
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from seqkit.nn import linear_scan as module
from seqkit.nn.linear_scan import linear_scan

LENGTHS = pytest.mark.parametrize("n", [1, 2, 7, 61, 257])
WAYS = pytest.mark.parametrize("row", [0, 2**30], ids=["tokens", "chunks"])


def step_by_step(decay, x, h):
    """The definition, one token after the other."""
    states = []
    for t in range(x.shape[1]):
        h = decay[:, t] * h + x[:, t]
        states.append(h)
    return torch.stack(states, dim=1), h


def arguments(n, b=3, e=5, dtype=torch.float64):
    """decay, x and a first state. Some decays are exactly 0, and some exactly 1."""
    decay = torch.rand(b, n, e, dtype=dtype) * 1.4 - 0.2
    x = torch.randn(b, n, e, dtype=dtype)
    return [t.requires_grad_() for t in (decay.clamp(0, 1), x, torch.randn(b, e, dtype=dtype))]


@LENGTHS
@WAYS
def test_it_is_the_recurrence_forward_and_backward(n, row, monkeypatch):
    monkeypatch.setattr(module, "ROW", row)
    inputs = arguments(n)
    right, got = step_by_step(*inputs), linear_scan(*inputs)
    assert_close(got, right, rtol=1e-12, atol=1e-12)
    g = [torch.randn_like(t) for t in right]
    found = torch.autograd.grad(got, inputs, g)
    assert_close(found, torch.autograd.grad(right, inputs, g), rtol=1e-11, atol=1e-11)


@WAYS
def test_numeric_gradients_agree(row, monkeypatch):
    monkeypatch.setattr(module, "ROW", row)
    decay, x, state = arguments(7, b=2, e=2)
    inner = (0.1 + 0.8 * decay.detach()).requires_grad_()
    assert torch.autograd.gradcheck(linear_scan, (inner, x, state))


def test_gradients_of_functions_are_those_of_tensors():
    inputs = arguments(11)

    def loss(*given):
        h, last = linear_scan(*given)
        return h.sin().sum() + last.cos().sum()

    expected = torch.autograd.grad(loss(*inputs), inputs)
    detached = [t.detach() for t in inputs]
    assert_close(torch.func.grad(loss, argnums=(0, 1, 2))(*detached), expected)


@LENGTHS
@WAYS
def test_without_a_state_it_starts_from_zero(n, row, monkeypatch):
    monkeypatch.setattr(module, "ROW", row)
    decay, x, state = arguments(n)
    assert_close(linear_scan(decay, x), step_by_step(decay, x, torch.zeros_like(state)))


@WAYS
@pytest.mark.parametrize("first", [1, 10, 22])
def test_a_carried_state_continues(first, row, monkeypatch):
    monkeypatch.setattr(module, "ROW", row)
    decay, x, state = arguments(23)
    h, last = linear_scan(decay, x, state)
    start, carried = linear_scan(decay[:, :first], x[:, :first], state)
    rest, end = linear_scan(decay[:, first:], x[:, first:], carried)
    assert_close((torch.cat([start, rest], dim=1), end), (h, last))


@WAYS
def test_padding_leaves_every_bit_of_the_state_and_a_reset_forgets_it(row, monkeypatch):
    monkeypatch.setattr(module, "ROW", row)
    decay, x, state = (t.detach() for t in arguments(23))
    padding = torch.ones_like(decay), torch.zeros_like(x)
    assert_close(linear_scan(*padding, state)[1], state, rtol=0, atol=0)
    decay[:, 9] = 0.0
    other = linear_scan(decay, x, state * 1e30)[0]
    assert_close(other[:, 9:], linear_scan(decay, x, state)[0][:, 9:], rtol=0, atol=0)


@WAYS
def test_long_sequences_of_small_decays_are_exact_in_float32(row, monkeypatch):
    """Their product is zero in float32 after ten tokens: nothing may be divided by it."""
    monkeypatch.setattr(module, "ROW", row)
    decay, x, state = arguments(1009)
    small = (decay.detach() * 1e-4).requires_grad_()
    exact = [small, x, state]
    rough = [t.detach().float().requires_grad_() for t in exact]
    right, got = step_by_step(*exact), linear_scan(*rough)
    assert_close([t.double() for t in got], list(right), rtol=1e-5, atol=1e-5)
    expected = torch.autograd.grad(right[0].sum(), exact)
    for one, other in zip(torch.autograd.grad(got[0].sum(), rough), expected):
        assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_half_precision_is_computed_in_float32_also_under_autocast():
    inputs = [t.detach().bfloat16() for t in arguments(61)]
    h, last = linear_scan(*inputs)
    right = linear_scan(*(t.float() for t in inputs))
    assert (h.dtype, last.dtype) == (torch.bfloat16, torch.float32)
    assert_close((h, last), (right[0].bfloat16(), right[1]), rtol=0, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(linear_scan(*(t.float() for t in inputs)), right, rtol=0, atol=0)


def test_torchs_counter_sees_none_of_its_flops():
    with FlopCounterMode(display=False) as counter:
        linear_scan(*arguments(49))
    assert counter.get_total_flops() == 0
    assert module.linear_scan_flops(3, 49, 5) == 2 * 3 * 49 * 5


def test_compiled_modules_run_it_too():
    inputs, graphs = [t.detach() for t in arguments(11)], []

    def backend(graph, _examples):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    got = torch.compile(lambda *given: linear_scan(*given)[0] + 1, backend=backend)(*inputs)
    assert_close(got, linear_scan(*inputs)[0] + 1, rtol=0, atol=0)
    assert max(graphs) < 10  # the scan is none of their operations


def test_an_exported_graph_takes_every_length():
    assert_exported_alike(linear_scan, arguments, [1, 1, None])
