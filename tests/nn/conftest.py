"""What tests of layers share."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seqkit.nn.attention.context import AttentionContext


class Largest(TorchDispatchMode):
    """Elements of the largest tensor made inside."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.numel())
        return out


@pytest.fixture
def largest_tensor():
    """`(mechanism, n, causal)` -> elements of the largest tensor of a forward and backward pass, one head of 4."""

    def measure(mechanism, n, causal):
        q, k, v = (torch.randn(1, 1, n, 4, requires_grad=True) for _ in range(3))
        with Largest() as largest:
            mechanism(q, k, v, AttentionContext(is_causal=causal)).sum().backward()
        return largest.numel

    return measure
