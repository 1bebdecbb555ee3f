"""The Triton scan is the scan of torch's operations, forward and backward: on a GPU compiled, elsewhere interpreted."""

from functools import partial

import pytest
import torch
from nn.test_selective_scan import arguments
from nn.triton_interpreter import assert_passes, interpret
from torch.testing import assert_close

from seqkit.backbones import Mamba
from seqkit.nn.selective_scan import _scan
from seqkit.testing import check_backbone

pytest.importorskip("triton")
SIZES = [(1, 1, 1, 1), (3, 19, 5, 3), (2, 33, 17, 2)]
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def check(b, n, e, s, device):
    from seqkit.nn.scan_triton import scan

    inputs = [t.detach().to(device).requires_grad_() for t in arguments(n, b, e, s)]
    right, got = _scan(*inputs), scan(*inputs)
    assert_close(got, right)
    g = [torch.randn_like(t) for t in right]
    assert_close(torch.autograd.grad(got, inputs, g), torch.autograd.grad(right, inputs, g))


@on_a_gpu
@pytest.mark.parametrize("sizes", SIZES)
def test_it_is_the_scan_of_torchs_operations(sizes):
    check(*sizes, "cuda")


@pytest.mark.slow
def test_interpreted_it_is_the_scan_of_torchs_operations():
    assert_passes(__file__)


@on_a_gpu
def test_numbers_of_half_precision_are_summed_in_float32():
    from seqkit.nn.scan_triton import scan

    x, dt, A, B, C, state = (
        t.detach().float().cuda() for t in arguments(257, e=40, s=16, largest=0.1)
    )
    x, dt, B, C = (t.bfloat16() for t in (x, dt, B, C))
    inputs = [t.requires_grad_() for t in (x, dt, A, B, C, state)]
    exact = [t.detach().double().requires_grad_() for t in inputs]
    right, got = _scan(*exact), scan(*inputs)
    assert [t.dtype for t in got] == [torch.bfloat16, torch.float32]
    assert_close(got[1].double(), right[1], rtol=1e-4, atol=1e-4)
    assert_close(got[0].double(), right[0], rtol=1e-2, atol=1e-2)
    found, expected = (
        torch.autograd.grad(y.sum() + h.sum(), of) for (y, h), of in ((got, inputs), (right, exact))
    )
    for one, other in zip(found, expected):
        assert float((one.double() - other).abs().max()) < 0.02 * float(other.abs().max())


@on_a_gpu
def test_mamba_keeps_the_laws_on_a_gpu():
    check_backbone(partial(Mamba, depth=2), kinds=["text"], device="cuda")


if __name__ == "__main__":
    from seqkit.nn import scan_triton

    interpret(scan_triton)
    for sizes in SIZES:
        check(*sizes, "cpu")
