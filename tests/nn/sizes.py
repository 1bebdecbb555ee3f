"""Sizes of the tensors that a piece of code makes."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Sizes(TorchDispatchMode):
    """Elements of all tensors that operations make, the largest and in sum."""

    def __init__(self):
        super().__init__()
        self.largest = self.total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else [result]:
            if isinstance(x, torch.Tensor) and x._base is None:
                self.largest, self.total = max(self.largest, x.numel()), self.total + x.numel()
        return result
