"""A scan as an exported graph, which is one loop over the tokens."""

import torch
from torch import nn
from torch.testing import assert_close


class Scan(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


def assert_exported_alike(function, arguments, axes):
    """Outputs and last state are those of `function` at lengths that it was not traced with.

    arguments: random ones of a length. axes: that of each which counts the tokens; None: it has none.
    """
    n = torch.export.Dim("n", min=1, max=1 << 20)
    sizes = tuple(None if axis is None else {axis: n} for axis in axes)
    given = tuple(t.detach() for t in arguments(7))
    graph = torch.export.export(Scan(function), given, dynamic_shapes=(sizes,)).module()
    for length in (1, 2, 41):
        inputs = [t.detach() for t in arguments(length)]
        assert_close(graph(*inputs), function(*inputs), rtol=1e-11, atol=1e-11)
