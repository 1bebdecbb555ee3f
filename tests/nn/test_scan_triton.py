"""The Triton scan is the scan of torch's operations, forward and backward: on a GPU compiled, elsewhere interpreted.

As a program, this file checks it in Triton's interpreter, which Triton chooses when it is imported.
"""

import builtins
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from nn.test_selective_scan import arguments
from torch.testing import assert_close

from seqkit.nn.selective_scan import _scan

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
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@on_a_gpu
def test_numbers_of_half_precision_are_summed_in_float32():
    from seqkit.nn.scan_triton import scan

    x, dt, A, B, C, state = (t.detach().float().cuda() for t in arguments(257, e=40, s=16, largest=0.1))
    x, dt, B, C = (t.bfloat16() for t in (x, dt, B, C))
    inputs = [t.requires_grad_() for t in (x, dt, A, B, C, state)]
    exact = [t.detach().double().requires_grad_() for t in inputs]
    right, got = _scan(*exact), scan(*inputs)
    assert [t.dtype for t in got] == [torch.bfloat16, torch.float32]
    assert_close(got[1].double(), right[1], rtol=1e-4, atol=1e-4)
    assert_close(got[0].double(), right[0], rtol=1e-2, atol=1e-2)
    found, expected = (torch.autograd.grad(y.sum() + h.sum(), of) for (y, h), of in ((got, inputs), (right, exact)))
    for one, other in zip(found, expected):
        assert float((one.double() - other).abs().max()) < 0.02 * float(other.abs().max())


def _range(*ends):
    """The built-in of numbers as Triton's interpreter has them, arrays of one."""
    return builtins.range(*(int(x.handle.data.item()) if hasattr(x, "handle") else x for x in ends))


if __name__ == "__main__":
    from seqkit.nn import scan_triton

    scan_triton.range = _range
    for sizes in SIZES:
        check(*sizes, "cpu")
