"""A decoding step whose state has constant shapes, as a CUDA graph.

b sequences · v vocabulary
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from seqkit.errors import one_line
from seqkit.generation.captured import Captured, leaves, sync_debug_mode

log = logging.getLogger("seqkit")


class StepGraph:
    """Runs a step on a state that stays where it is; on CUDA as a graph, if it can be captured.

    step: logits [b v] of ids [b] and a state, whose tensors it replaces by others of their shape. Where it writes to
    them in place, running it again writes the same. It reads no value on the CPU.
    state: any nest of lists, tuples and objects with tensors.
    Raises ValueError for a state that a step changes otherwise than in the values of its tensors.
    """

    def __init__(self, step: Callable[[Tensor, Any], Tensor], state: Any, num_sequences: int):
        self.state = state
        self._step = step
        self.num_sequences = num_sequences
        device = next(leaf.device for leaf in leaves(state) if isinstance(leaf, Tensor))
        self._ids = torch.zeros(num_sequences, dtype=torch.int64, device=device)
        self._graph: Captured[Tensor] | None = None
        if device.type == "cuda":
            self._capture()
        else:
            self._computed()

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits [b' v] for ids [b'] of the first b' sequences, valid until the next step."""
        num = len(ids)
        self._ids[:num].copy_(ids)
        logits = self._run() if self._graph is None else self._graph(())
        return logits[:num]

    def fits(self, state: Any) -> bool:
        """Whether another state differs in the values of its tensors only."""
        return list(map(_kind, leaves(state))) == list(map(_kind, leaves(self.state)))

    def load(self, values: list[Any]) -> None:
        """Copy the values of the leaves of another state that fits."""
        for buffer, value in zip(leaves(self.state), values, strict=True):
            if isinstance(buffer, Tensor) and buffer is not value:
                buffer.copy_(value)

    def _run(self) -> Tensor:
        logits, values = self._computed()
        self.load(values)
        return logits

    def _computed(self) -> tuple[Tensor, list[Any]]:
        """Logits, and the leaves of the next state."""
        moved = structure(self.state)
        logits = self._step(self._ids, moved)
        if not self.fits(moved):
            raise ValueError("the state of a step grows")
        return logits, leaves(moved)

    def _capture(self) -> None:
        device = self._ids.device
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.cuda.stream(side):
                # the first calls allocate workspaces and compile kernels, which a graph must not
                for _ in range(2):
                    self._computed()
                # after a capture that fails, generators could not be used
                with sync_debug_mode("error"):
                    self._computed()
            torch.cuda.current_stream(device).wait_stream(side)
            self._graph = Captured(self._run, ())
        except RuntimeError as error:  # a part reads values on the CPU
            log.info("decoding runs without a CUDA graph: %s", one_line(error)[:200])


@cache
def _load_kernels() -> Any:
    try:
        kernels = import_module("seqkit.generation.kernels")
        kernels.draw(torch.zeros(1, 2, device="cuda"), torch.zeros(1, device="cuda"), 1.0)
        return kernels
    except Exception as error:  # there is no Triton, or it finds no compiler
        log.info("decoding runs without Triton's kernels: %s", one_line(error)[:200])
        return None


def triton_kernels(device: torch.device) -> Any:
    """The module `kernels` on CUDA, if its kernels compile; else None."""
    return _load_kernels() if device.type == "cuda" else None


def structure(state: Any) -> Any:
    """A copy of a nest that has the same tensors."""
    tensors = [leaf for leaf in leaves(state) if isinstance(leaf, Tensor)]
    return copy.deepcopy(state, {id(tensor): tensor for tensor in tensors})


def _kind(leaf: Any) -> Any:
    """Shape and type of a tensor; another value itself. A step keeps them."""
    if isinstance(leaf, Tensor):
        return (leaf.shape, leaf.dtype)
    return leaf
