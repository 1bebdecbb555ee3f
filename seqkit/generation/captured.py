"""A function of tensors captured as a CUDA graph: one launch in place of hundreds. For decoding and for training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Found = TypeVar("Found")


class Captured(Generic[Found]):
    """Replays a function, whose tensors stay where they are; its first run is the capture, which computes nothing.

    inputs: tensors that it reads, and that are filled anew for a replay. pool: memory that graphs share; None: its own.
    outputs: what the function gave. Raises RuntimeError where a graph cannot hold it.
    """

    def __init__(self, function: Callable[[], Found], inputs: Sequence[Tensor], pool: Any = None):
        self.inputs = list(inputs)
        self._graph = torch.cuda.CUDAGraph()
        # other threads, such as the loader's, may use the device meanwhile
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self.outputs = function()

    def __call__(self, inputs: Sequence[Tensor]) -> Found:
        """The outputs for these inputs, valid until the next call."""
        if inputs:
            torch._foreach_copy_(self.inputs, list(inputs))
        self._graph.replay()
        return self.outputs


@contextmanager
def sync_debug_mode(mode: str) -> Iterator[list[warnings.WarningMessage]]:
    """Context in which an operation that waits for the device is an "error", or one of the warnings given ("warn")."""
    before = torch.cuda.get_sync_debug_mode()
    # torch says of the mode that it is a prototype
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode(mode)
        try:
            yield said
        finally:
            torch.cuda.set_sync_debug_mode(before)


def leaves(state: Any) -> list[Any]:
    """Tensors and plain values of a nest of lists, tuples, mappings and objects, in order."""
    if isinstance(state, Tensor):
        return [state]
    if isinstance(state, Mapping):
        parts = [*state.keys(), *state.values()]
    elif isinstance(state, list | tuple):
        parts = list(state)
    else:
        names = [*getattr(state, "__dict__", ()), *getattr(state, "__slots__", ())]
        parts = [getattr(state, name) for name in names]
    if parts:
        return [leaf for part in parts for leaf in leaves(part)]
    return [state]
