"""The chunked scan is its recurrence, step by step, forward and backward, whatever the length, chunk and decay."""

import math

import pytest
import torch
from torch.nn.functional import normalize
from torch.testing import assert_close

from seqkit.nn.chunked_scan import chunked_scan

LENGTHS = pytest.mark.parametrize("n", [1, 2, 7, 61, 131])
RULES = pytest.mark.parametrize("delta", [False, True], ids=["sum", "delta"])


def step_by_step(q, k, v, log_decay, state, beta=None):
    """The definition, one token after the other."""
    identity = torch.eye(k.shape[-1], dtype=k.dtype)
    outputs = []
    for t in range(v.shape[2]):
        k_t = k[:, :, t, :, None]
        v_t = v[:, :, t, None, :]
        decay = log_decay[:, :, t, None, None].exp()
        if beta is None:
            state = decay * state + k_t * v_t
        else:
            beta_t = beta[:, :, t, None, None]
            state = decay * (identity - beta_t * k_t * k_t.mT) @ state + beta_t * k_t * v_t
        outputs.append((q[:, :, t, :, None] * state).sum(dim=-2))
    return torch.stack(outputs, dim=2), state


def arguments(n, delta, b=2, h=3, c=5, e=7, largest=1.0, dtype=torch.float64):
    """q, k, v, log_decay, a first state and, with `delta`, beta. Logarithms of decays down to -largest."""
    q = torch.randn(b, h, n, c, dtype=dtype)
    k = normalize(torch.randn(b, h, n, c, dtype=dtype), dim=-1)
    v = torch.randn(b, h, n, e, dtype=dtype)
    log_decay = -torch.rand(b, h, n, dtype=dtype) * largest
    state = torch.randn(b, h, c, e, dtype=dtype)
    factors = [torch.rand(b, h, n, dtype=dtype) * 2] if delta else []
    return [t.requires_grad_() for t in (q, k, v, log_decay, state, *factors)]


def assert_recurrence(inputs, tolerance, **options):
    right = step_by_step(*inputs)
    got = chunked_scan(*inputs, **options)
    assert_close(got, right, rtol=tolerance, atol=tolerance)
    g = [torch.randn_like(t) for t in right]
    found = torch.autograd.grad(got, inputs, g)
    assert_close(found, torch.autograd.grad(right, inputs, g), rtol=tolerance, atol=tolerance)


@LENGTHS
@RULES
@pytest.mark.parametrize("largest", [0.01, 1.0, 300.0])
def test_it_is_the_recurrence_forward_and_backward(n, delta, largest):
    assert_recurrence(arguments(n, delta, largest=largest), 1e-10)


@RULES
@pytest.mark.parametrize("chunk", [1, 2, 16, 61, 1000])
def test_the_length_of_a_chunk_changes_nothing(delta, chunk):
    assert_recurrence(arguments(61, delta), 1e-10, chunk=chunk)


@RULES
@pytest.mark.parametrize("n", [1, 5])
def test_numeric_gradients_agree(delta, n):
    inputs = arguments(n, delta, b=1, h=2, c=2, e=3)
    assert torch.autograd.gradcheck(lambda *given: chunked_scan(*given, chunk=2), inputs)


@RULES
def test_gradients_of_functions_are_those_of_tensors(delta):
    inputs = arguments(11, delta)

    def loss(*given):
        y, last = chunked_scan(*given, chunk=4)
        return y.sin().sum() + last.cos().sum()

    expected = torch.autograd.grad(loss(*inputs), inputs)
    places = tuple(range(len(inputs)))
    found = torch.func.grad(loss, argnums=places)(*(t.detach() for t in inputs))
    assert_close(found, expected)


@LENGTHS
@RULES
def test_without_a_state_it_starts_from_zero(n, delta):
    q, k, v, log_decay, state, *beta = arguments(n, delta)
    right = step_by_step(q, k, v, log_decay, torch.zeros_like(state), *beta)
    assert_close(chunked_scan(q, k, v, log_decay, None, *beta), right)


@RULES
@pytest.mark.parametrize("first", [1, 16, 50, 60])
def test_a_carried_state_continues(delta, first):
    q, k, v, log_decay, state, *beta = arguments(61, delta)
    right = chunked_scan(q, k, v, log_decay, state, *beta, chunk=16)
    tokens = (q, k, v, log_decay, *beta)
    early = [t[:, :, :first] for t in tokens]
    late = [t[:, :, first:] for t in tokens]
    start, carried = chunked_scan(*early[:4], state, *early[4:], chunk=16)
    rest, end = chunked_scan(*late[:4], carried, *late[4:], chunk=16)
    assert_close((torch.cat([start, rest], dim=2), end), right, rtol=1e-10, atol=1e-10)


@RULES
@pytest.mark.parametrize("n", [1, 23])
def test_padding_leaves_every_bit_of_the_state(delta, n):
    q, k, v, log_decay, state, *beta = (t.detach().float() for t in arguments(n, delta))
    nothing = torch.zeros_like(k), v, torch.zeros_like(log_decay)
    assert_close(chunked_scan(q, *nothing, state, *beta)[1], state, rtol=0, atol=0)


@RULES
def test_a_decay_of_zero_forgets_the_state_and_all_gradients_stay_right(delta):
    """Its logarithm is -inf, here of single tokens, of two in a row and of the first of a chunk."""
    inputs = arguments(40, delta)
    with torch.no_grad():
        inputs[3][:, :, [0, 5, 6, 16, 39]] = -math.inf
    assert_recurrence(inputs, 1e-10, chunk=16)
    got = chunked_scan(*inputs)
    assert all(t.isfinite().all() for t in torch.autograd.grad(got[0].sum(), inputs))


@RULES
@pytest.mark.parametrize("largest", [0.01, 5.0, 300.0])
def test_in_float32_it_is_exact_to_its_last_digits(delta, largest):
    """A difference of sums of logarithms would be wrong by 1e-3 here: a chunk's sum is about -10,000."""
    exact = arguments(131, delta, largest=largest)
    rough = [t.detach().float().requires_grad_() for t in exact]
    exact = [t.detach().double().requires_grad_() for t in rough]
    right, got = step_by_step(*exact), chunked_scan(*rough)
    g = [torch.randn_like(t) for t in right]
    expected = torch.autograd.grad(right, exact, g)
    found = torch.autograd.grad(got, rough, [t.float() for t in g])
    for one, other in zip([*got, *found], [*right, *expected], strict=True):
        assert_close(one.double(), other, rtol=1e-5, atol=1e-5 * float(other.detach().abs().max()))


@RULES
def test_half_precision_is_computed_in_float32_also_under_autocast(delta):
    inputs = [t.detach().bfloat16() for t in arguments(61, delta)]
    y, last = chunked_scan(*inputs)
    right = chunked_scan(*(t.float() for t in inputs))
    assert (y.dtype, last.dtype) == (torch.bfloat16, torch.float32)
    assert_close((y, last), (right[0].bfloat16(), right[1]), rtol=0, atol=0)
    rounded = [t.float().requires_grad_() for t in inputs]
    expected = torch.autograd.grad(chunked_scan(*rounded)[0].sum(), rounded)
    with torch.autocast("cpu", torch.bfloat16):
        got = chunked_scan(*rounded)
    found = torch.autograd.grad(got[0].sum(), rounded)
    assert_close((got, found), (right, expected), rtol=0, atol=0)


@RULES
def test_compiled_modules_run_it_too(delta):
    inputs, graphs = [t.detach() for t in arguments(11, delta)], []

    def backend(graph, _examples):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    got = torch.compile(lambda *given: chunked_scan(*given)[0] + 1, backend=backend)(*inputs)
    assert_close(got, chunked_scan(*inputs)[0] + 1, rtol=0, atol=0)
    assert max(graphs) < 10  # the scan is none of their operations


def test_a_graph_for_every_length_is_refused():
    class Scan(torch.nn.Module):
        def forward(self, *tokens):
            return chunked_scan(*tokens)[0]

    with pytest.raises(ValueError, match="no graph for every length"):
        torch.export.export(Scan(), tuple(t.detach() for t in arguments(7, False)[:4]))
