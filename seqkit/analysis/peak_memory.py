"""Measured peak memory of a piece of work: the live bytes of tensors at their highest."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def peak_bytes(work: Callable[[], object], held: Iterable[Tensor]) -> int:
    """Largest number of bytes of `held` and of the tensors that `work` allocates, at one moment.

    held: tensors that exist before and after (weights, state of an optimizer, a batch); a storage counts once.
    On the CPU it counts the storages of the tensors that operators return, from the first reference to the last, and
    not the memory that kernels use inside or an allocator keeps. On CUDA it is the rise of
    `torch.cuda.max_memory_allocated`, with kernels' workspaces and any other work on the same device.
    """
    tensors = list(held)
    own = {_key(t): t.untyped_storage().nbytes() for t in tensors}
    devices = {t.device for t in tensors if t.device.type == "cuda"}
    if devices:
        (device,) = devices
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        return sum(own.values()) + torch.cuda.max_memory_allocated(device) - before
    with _LiveStorages(set(own)) as live:
        work()
    return sum(own.values()) + live.highest


class _LiveStorages(TorchDispatchMode):
    """Follows every new storage that an operator returns until nothing refers to it.

    known: keys of storages that do not count. highest: largest number of bytes that were alive at once.
    """

    def __init__(self, known: set[int]):
        super().__init__()
        self._known = known
        self._alive = 0
        self._references = dict[int, Any]()
        self.highest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._follow(leaf)
        return result

    def _follow(self, tensor: Tensor) -> None:
        key = _key(tensor)
        if key in self._known or key in self._references:
            return
        storage = tensor.untyped_storage()
        num_bytes = storage.nbytes()

        def freed(_: Any) -> None:
            self._alive -= num_bytes
            del self._references[key]  # its address may be taken by another

        self._references[key] = weakref.ref(storage, freed)
        self._alive += num_bytes
        self.highest = max(self.highest, self._alive)


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
