"""Peak memory of a piece of work, measured: the live bytes of tensors at their highest."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def peak_bytes(work: Callable[[], object], held: Iterable[Tensor]) -> int:
    """Bytes of `held` and of all that `work` allocates, at the moment when that is most.

    held: tensors that exist before and after (weights, state of an optimizer, a batch); a storage counts once.
    On the CPU these are the storages of the tensors that operators return, from the first reference to the last. What
    a kernel allocates and frees inside itself is not seen, nor what an allocator keeps beside. On CUDA it is
    `torch.cuda.max_memory_allocated` above what was allocated before, which sees kernels' workspaces too; other work
    on the same device would be counted.
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

    known: keys of storages that do not count. highest: most bytes that were alive at once.
    """

    def __init__(self, known: set[int]):
        super().__init__()
        self._known, self._alive, self._references = known, 0, dict[int, Any]()
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
