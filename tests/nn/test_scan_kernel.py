"""The compiled scan equals the one of torch's operations in float64, forward and backward, and no run depends on it."""

import math
import multiprocessing

import numpy as np
import pytest
import torch
from nn.test_selective_scan import arguments
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from seqkit.nn import selective_scan as module
from seqkit.nn.selective_scan import compiled_scan, selective_scan

pytest.importorskip("numba")
from seqkit.nn import scan_kernel

SIZES = pytest.mark.parametrize(
    ("b", "n", "e", "s"),
    [
        (1, 1, 1, 1),
        (3, 1, 13, 3),
        (2, 2, 8, 1),
        (2, 7, 5, 2),
        (1, 61, 37, 16),
        (3, 31, 130, 5),
        (1, 257, 16, 64),
    ],
)


def outputs_and_gradients(inputs):
    """y and the last state, and the gradients of all inputs for one random gradient of both."""
    y, last = selective_scan(*inputs)
    g = torch.Generator().manual_seed(0)
    given = [torch.randn(t.shape, generator=g, dtype=torch.float64).to(t) for t in (y, last)]
    return [y.detach(), last.detach(), *torch.autograd.grad((y, last), inputs, given)]


def rounded(inputs):
    return [t.detach().float().requires_grad_() for t in inputs]


@SIZES
@pytest.mark.parametrize("largest", [0.1, 1.0, 1e4])
def test_it_is_the_scan_in_float64(b, n, e, s, largest):
    """With a step of 10,000 a state is forgotten at once: exp(dt A) is zero."""
    inputs = rounded(arguments(n, b, e, s, largest))
    exact = outputs_and_gradients([t.detach().double().requires_grad_() for t in inputs])
    for got, right in zip(outputs_and_gradients(inputs), exact):
        assert got.isfinite().all()
        assert_close(got.double(), right, rtol=1e-5, atol=1e-5 * float(right.abs().max()) + 1e-30)


@SIZES
def test_it_is_the_scan_of_torchs_operations_in_float32(b, n, e, s, monkeypatch):
    inputs = rounded(arguments(n, b, e, s))
    compiled = outputs_and_gradients(inputs)
    monkeypatch.setattr(module, "compiled_scan", lambda x: None)
    for got, right in zip(compiled, outputs_and_gradients(inputs)):
        assert got.shape == right.shape
        assert_close(got, right, rtol=1e-5, atol=1e-5 * float(right.abs().max()) + 1e-30)


def test_a_step_of_zero_leaves_every_bit_of_the_state():
    x, _, A, B, C, state = rounded(arguments(23))
    assert_close(selective_scan(x, torch.zeros_like(x), A, B, C, state)[1], state, rtol=0, atol=0)


def test_powers_of_two_are_exact_to_the_last_bits():
    xs = np.concatenate(
        [np.linspace(-126, 0, 5003), -np.logspace(-9, 2, 503), [-127.5, -1e30, -np.inf]]
    )
    xs = xs.astype(np.float32)
    got = np.array([scan_kernel._exp2(x, scan_kernel.COEFFICIENTS) for x in xs], np.float64)
    np.testing.assert_allclose(got, np.exp2(xs.astype(np.float64)), rtol=2e-7, atol=2.0**-127)
    assert scan_kernel._exp2(np.float32(0), scan_kernel.COEFFICIENTS) == 1
    assert math.isnan(scan_kernel._exp2(np.float32("nan"), scan_kernel.COEFFICIENTS))


@pytest.mark.parametrize("place", [0, 1, 2, 5])
def test_what_is_not_a_number_stays_that(place):
    inputs = [t.detach() for t in rounded(arguments(11))]
    inputs[place][..., 0] = torch.nan
    y, last = selective_scan(*inputs)
    assert y[..., 0].isnan().all()
    assert last.isnan().any()


def test_threads_change_no_bit(monkeypatch):
    inputs = rounded(arguments(29, b=5))
    alone = outputs_and_gradients(inputs)
    monkeypatch.setattr(scan_kernel, "THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert_close(outputs_and_gradients(inputs), alone, rtol=0, atol=0)


def _send_scan(pipe, inputs):
    pipe.send(selective_scan(*inputs)[0].numpy())


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_scans_too(monkeypatch):
    """As a worker of a DataLoader does, after the process that it came from has scanned in threads."""
    monkeypatch.setattr(scan_kernel, "THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    inputs = [t.detach() for t in rounded(arguments(29))]
    right = selective_scan(*inputs)[0]
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=_send_scan, args=(sender, inputs))
    child.start()
    assert receiver.poll(60)
    assert_close(torch.from_numpy(receiver.recv()), right, rtol=0, atol=0)
    child.join()


# ── where it does not run ────────────────────────────────────────────────────────────────────────────────────────────


def test_counters_other_types_and_devices_get_torchs_operations():
    assert compiled_scan(torch.zeros(2)) is scan_kernel
    assert compiled_scan(torch.zeros(2, dtype=torch.float64)) is None
    assert compiled_scan(torch.zeros(2, device="meta")) is None
    with FlopCounterMode(display=False):
        assert compiled_scan(torch.zeros(2)) is None


def test_compiled_modules_run_it_too():
    inputs, graphs = [t.detach() for t in rounded(arguments(11))], []

    def backend(graph, _examples):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    got = torch.compile(lambda *given: selective_scan(*given)[0] + 1, backend=backend)(*inputs)
    assert_close(got, selective_scan(*inputs)[0] + 1, rtol=0, atol=0)
    assert max(graphs) < 10  # the scan is none of their operations


@pytest.fixture
def afresh():
    """numba is looked for again, in the test and after it."""
    module._load_compiled_scan.cache_clear()
    yield
    module._load_compiled_scan.cache_clear()


def test_without_numba_torchs_operations_run(monkeypatch, afresh):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert compiled_scan(torch.zeros(2)) is None


def test_where_numba_does_not_compile_one_warning_says_so_and_torchs_operations_run(
    monkeypatch, afresh
):
    def fail(name):
        raise RuntimeError("no locator available")

    inputs = [t.detach() for t in rounded(arguments(11))]
    right = selective_scan(*(t.double() for t in inputs))
    monkeypatch.setattr(module, "import_module", fail)
    with pytest.warns(UserWarning, match="no locator"):
        got = selective_scan(*inputs)
    assert_close(got, tuple(t.float() for t in right), rtol=1e-5, atol=1e-5)
    selective_scan(*inputs)
