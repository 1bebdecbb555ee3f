"""The selective scan is the recurrence, step by step, forward and backward, whatever the length and the step."""

import pytest
import torch
from exported_scan import assert_exported_alike
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import seqkit.nn.selective_scan as module
from seqkit.nn.selective_scan import scan_flops, selective_scan

LENGTHS = pytest.mark.parametrize("n", [1, 2, 7, 61, 257])


def step_by_step(x, dt, A, B, C, h):
    """The definition, one token after the other."""
    outputs = []
    for t in range(x.shape[1]):
        h = (
            torch.exp(dt[:, t, :, None] * A) * h
            + dt[:, t, :, None] * B[:, t, None, :] * x[:, t, :, None]
        )
        outputs.append((h * C[:, t, None, :]).sum(dim=-1))
    return torch.stack(outputs, dim=1), h


def arguments(n, b=3, e=5, s=7, largest=1.0, dtype=torch.float64):
    """x, dt, A, B, C and a first state; dt up to `largest`."""
    x, B, C = (torch.randn(b, n, size, dtype=dtype) for size in (e, s, s))
    dt, A = torch.rand(b, n, e, dtype=dtype) * largest, -torch.rand(e, s, dtype=dtype) * 3
    return [t.requires_grad_() for t in (x, dt, A, B, C, torch.randn(b, e, s, dtype=dtype))]


@LENGTHS
@pytest.mark.parametrize("largest", [0.1, 50.0])
def test_it_is_the_recurrence_forward_and_backward(n, largest):
    inputs = arguments(n, largest=largest)
    right, got = step_by_step(*inputs), selective_scan(*inputs)
    assert_close(got, right)
    g = [torch.randn_like(t) for t in right]
    assert_close(torch.autograd.grad(got, inputs, g), torch.autograd.grad(right, inputs, g))


@LENGTHS
def test_without_a_state_it_starts_from_zero(n):
    *inputs, state = arguments(n)
    assert_close(selective_scan(*inputs), step_by_step(*inputs, torch.zeros_like(state)))


def test_blocks_of_examples_change_nothing(monkeypatch):
    inputs = arguments(23, b=5)
    right = selective_scan(*inputs)
    expected = torch.autograd.grad(right[0].sin().sum() + right[1].sin().sum(), inputs)
    for size in (1, 2 * 5 * 5 * 7):  # one example at once; two, and a last one alone
        monkeypatch.setattr(module, "BLOCK", size)
        got = selective_scan(*inputs)
        assert_close(got, right)
        assert_close(torch.autograd.grad(got[0].sin().sum() + got[1].sin().sum(), inputs), expected)


def test_long_sequences_and_large_steps_stay_finite_and_exact_in_float32():
    """exp(-dt A) of a whole sequence, which a closed form divides by, would be exp(300,000)."""
    inputs = arguments(1009, b=2, largest=200.0)
    exact, rough = step_by_step(*inputs), [t.detach().float().requires_grad_() for t in inputs]
    found = selective_scan(*rough)
    gradients = torch.autograd.grad(found[0].sum(), rough[:5])
    exact_gradients = torch.autograd.grad(exact[0].sum(), inputs[:5])
    for got, right in zip([*found, *gradients], [*exact, *exact_gradients], strict=True):
        assert_close(got.double(), right, rtol=1e-3, atol=1e-4 * float(right.detach().abs().max()))


def test_a_step_of_zero_leaves_the_state_as_it_is():
    x, dt, A, B, C, state = arguments(11)
    held = dt.detach().clone()
    held[:, 6:] = 0.0
    short = selective_scan(x[:, :6], dt[:, :6], A, B[:, :6], C[:, :6], state)[1]
    assert_close(selective_scan(x, held, A, B, C, state)[1], short)


def test_half_precision_is_computed_in_float32_also_under_autocast():
    inputs = [t.detach().bfloat16() for t in arguments(61)]
    y, last = selective_scan(*inputs)
    right = selective_scan(*(t.float() for t in inputs))
    assert (y.dtype, last.dtype) == (torch.bfloat16, torch.float32)
    assert_close((y, last), (right[0].bfloat16(), right[1]))
    leaf = inputs[0].float().requires_grad_()
    rest = [t.float() for t in inputs[1:]]
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = selective_scan(leaf, *rest)
        (gradient,) = torch.autograd.grad(y.sum(), leaf)
    assert_close(y, right[0], rtol=0, atol=0)
    plain, _ = selective_scan(leaf, *rest)
    assert_close(gradient, torch.autograd.grad(plain.sum(), leaf)[0], rtol=0, atol=0)


def test_torchs_counter_and_the_uncounted_flops_are_all_flops():
    b, n, e, s = 2, 49, 5, 7  # 49 tokens are 7 chunks of 7, without padding
    inputs = [t.detach() for t in arguments(n, b, e, s)]
    with FlopCounterMode(display=False) as counter:
        selective_scan(*inputs)
    assert counter.get_total_flops() + scan_flops(b, n, e, s) == b * n * e * (7 * s + 1)


@pytest.mark.parametrize("n", [1, 2, 7, 256, 257, 10_007])
def test_the_steps_in_a_row_are_about_the_root_of_the_length(n):
    k, length = module.chunks(n)
    assert n <= k * length <= n + length
    assert max(k, length) <= n**0.5 + 1


@pytest.mark.slow
def test_an_exported_graph_takes_every_length():
    assert_exported_alike(selective_scan, arguments, [1, 1, None, 1, 1, None])
