"""The chunked scan is its recurrence, step by step, forward and backward, whatever the length, chunk and decay."""

import math
from functools import partial
from itertools import pairwise

import pytest
import torch
from exported_scan import assert_exported_alike
from nn.sizes import Sizes
from torch.nn.functional import normalize
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from seqkit.nn import chunked_scan as module
from seqkit.nn.chunked_scan import chunked_scan, chunked_scan_flops

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
@pytest.mark.parametrize("block", [1, 6 * 2 * 16])
def test_blocks_of_chunks_change_nothing(delta, block, monkeypatch):
    """One chunk at once; two, and a last token alone."""
    monkeypatch.setattr(module, "BLOCK", block)
    assert_recurrence(arguments(65, delta), 1e-10, chunk=16)


@RULES
@pytest.mark.parametrize("place", [0, 1])
def test_one_output_alone_gives_its_gradients(delta, place):
    inputs = arguments(40, delta)
    right = torch.autograd.grad(step_by_step(*inputs)[place].sin().sum(), inputs, allow_unused=True)
    found = torch.autograd.grad(chunked_scan(*inputs)[place].sin().sum(), inputs, allow_unused=True)
    expected = [torch.zeros_like(x) if g is None else g for g, x in zip(right, inputs)]
    assert_close(list(found), expected)


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


def kept_and_largest(n, delta):
    """Numbers that the backward pass keeps, and the largest tensor of both passes."""
    inputs = arguments(n, delta, dtype=torch.float32)
    kept = {}

    def keep(t):
        kept[t.untyped_storage().data_ptr()] = t.numel()
        return t

    with Sizes() as made, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        y, _ = chunked_scan(*inputs)
        num_kept = sum(kept.values())
        y.sum().backward()
    return num_kept, made.largest


@RULES
def test_memory_is_linear_in_the_length(delta):
    sizes = [kept_and_largest(n, delta) for n in (512, 1024, 2048)]
    assert sizes[0][0] > 512 * 6 * (5 + 5 + 7)  # it did look
    for short, long in pairwise(sizes):
        assert long[0] <= 2 * short[0]
        assert long[1] <= 2 * short[1]


EACH = {"mul": 1, "mul_": 1, "exp": 1, "cumsum": 1, "cumprod": 1, "addcmul": 2}


class Elementwise(TorchDispatchMode):
    """FLOPs of operations on single numbers, of the sums of `baddbmm`, and of triangular systems."""

    total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name == "baddbmm":
            self.total += out.numel()
        elif name == "linalg_solve_triangular":
            self.total += out.numel() * (out.shape[-1] - 1)
        else:
            self.total += EACH[name] * out.numel() if name in EACH else 0
        return out


@RULES
def test_torchs_counter_sees_the_products_and_we_count_the_rest(delta):
    b, h, n, c, e, m = 2, 3, 64, 5, 7, 16
    inputs = [t.detach() for t in arguments(n, delta, b, h, c, e)]
    with FlopCounterMode(display=False) as counter, Elementwise() as rest:
        chunked_scan(*inputs, chunk=m)
    products = m * c + c * e + m * e + c * e  # q k, k u, P u, q S
    if delta:
        products += m * c + c * e + m * e  # k k, k S, the inverse
    assert counter.get_total_flops() == b * h * n * 2 * products
    assert rest.total == chunked_scan_flops(b, h, n, c, e, delta=delta, chunk=m)


@RULES
def test_compiled_modules_run_it_too(delta):
    inputs, graphs = [t.detach() for t in arguments(11, delta)], []

    def backend(graph, _examples):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    got = torch.compile(lambda *given: chunked_scan(*given)[0] + 1, backend=backend)(*inputs)
    assert_close(got, chunked_scan(*inputs)[0] + 1, rtol=0, atol=0)
    assert max(graphs) < 10  # the scan is none of their operations


@RULES
def test_an_exported_graph_takes_every_length(delta):
    axes = [2, 2, 2, 2, None, *[2] * delta]
    assert_exported_alike(chunked_scan, partial(arguments, delta=delta), axes)
