"""Kernels of flash-linear-attention take the place of the chunked scan only where they compute the same."""

import sys
from types import ModuleType

import pytest
import torch
from nn.test_chunked_scan import arguments, step_by_step
from torch.testing import assert_close

from seqkit.nn import chunked_scan as module
from seqkit.nn import scan_fla
from seqkit.nn.chunked_scan import chunked_scan

RULES = pytest.mark.parametrize("delta", [False, True], ids=["sum", "delta"])


def kernels(fault=None):
    """The package's two functions with its layout and defaults, written out, and the calls that they got."""
    calls = []

    def kernel(q, k, v, g, beta=None, scale=None, initial_state=None, output_final_state=False):
        calls.append(v.shape)
        if fault == "raises":
            raise RuntimeError("no kernel\nfor this device")
        if not fault:
            assert g.dtype == initial_state.dtype == torch.float32
            assert g.isfinite().all()
        heads_first = [t.transpose(1, 2).float() for t in (q, k, v, g)]
        if fault == "gradient":
            heads_first[1] = heads_first[1].detach() + 0 * heads_first[1]
        factors = [] if beta is None else [beta.transpose(1, 2).float()]
        scale = k.shape[-1] ** -0.5 if scale is None else scale
        y, last = step_by_step(*heads_first, initial_state, *factors)
        y = (y * scale).transpose(1, 2).to(v.dtype)
        if fault == "nan":
            y = y * torch.nan
        return y, last if output_final_state else None

    return kernel, calls


@pytest.fixture
def install(monkeypatch):
    """`install(fault)` -> calls of the kernels; they count as on CUDA."""

    def put(fault=None):
        kernel, calls = kernels(fault)
        for name in ("simple_gla", "gated_delta_rule"):
            package = ModuleType(f"fla.ops.{name}")
            setattr(package, f"chunk_{name}", kernel)
            monkeypatch.setitem(sys.modules, package.__name__, package)
        monkeypatch.setattr(scan_fla, "find_spec", lambda name: name == "fla")

        def on_cuda(own, *tokens):
            _, k, v, *gates = tokens
            sizes = k.shape[-1], v.shape[-1], len(gates)
            return v.dtype == torch.bfloat16 and scan_fla._agrees(own, v.device, v.dtype, *sizes)

        monkeypatch.setattr(module, "runs_fla", on_cuda)
        return calls

    scan_fla._agrees.cache_clear()
    yield put
    scan_fla._agrees.cache_clear()


def halves(delta, n=23):
    return [t.detach().bfloat16().requires_grad_() for t in arguments(n, delta)]


@RULES
def test_they_run_in_half_precision_and_give_the_same(delta, install):
    inputs = halves(delta)
    with torch.no_grad():
        inputs[3][:, :, 7] = -torch.inf
    right = [t.detach() for t in chunked_scan(*inputs)]
    calls = install()
    y, last = chunked_scan(*inputs)
    assert len(calls) == 2  # of the comparison, and this one
    assert_close((y, last), tuple(right), rtol=1e-2, atol=1e-2)
    chunked_scan(*inputs)
    assert len(calls) == 3
    assert all(t.isfinite().all() for t in torch.autograd.grad(y.sum() + last.sum(), inputs))


@RULES
@pytest.mark.parametrize("fault", ["raises", "gradient", "nan"])
def test_with_a_fault_they_are_left_aside_with_one_warning(delta, fault, install):
    inputs = halves(delta)
    right = chunked_scan(*inputs)
    calls = install(fault)
    with pytest.warns(UserWarning, match="left aside") as warned:
        got = chunked_scan(*inputs)
    assert len(warned) == 1
    assert "\n" not in str(warned[0].message)
    assert_close(got, right, rtol=0, atol=0)
    chunked_scan(*inputs)
    assert len(calls) == 1


def test_they_are_compared_without_gradients_too(install):
    calls = install()
    with torch.inference_mode():
        chunked_scan(*halves(True))
    assert len(calls) == 2


def test_full_precision_and_single_tokens_are_ours(install):
    calls = install()
    chunked_scan(*arguments(23, True))
    chunked_scan(*halves(True, n=1))
    assert not calls


def test_without_the_package_or_cuda_nothing_is_compared(monkeypatch):
    scan_fla._agrees.cache_clear()
    monkeypatch.setattr(scan_fla, "find_spec", lambda name: None)
    assert not scan_fla._agrees(None, torch.device("cpu"), torch.bfloat16, 5, 7, 1)
    monkeypatch.setattr(scan_fla, "_agrees", lambda *given: 1 / 0)
    assert not scan_fla.runs_fla(None, *halves(False)[:4])
