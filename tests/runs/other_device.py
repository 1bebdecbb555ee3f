"""A simulated second device: its tensors compute on the CPU, and refuse tensors that were not moved."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
"""The name by which the tensors are there; torch computes nothing on it by itself."""


class Moved(torch.Tensor):
    """A tensor on the other device, with its values on the CPU."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "Moved":
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=DEVICE
        )
        made.held = held
        return made

    def tolist(self) -> Any:
        """Values as Python has them; torch's own method refuses subclasses."""
        return self.held.tolist()

    def new_tensor(self, values: Any, **options: Any) -> "Moved":
        """Values of Python's here; torch's own method would make a real tensor of the device's name."""
        return Moved(self.held.new_tensor(values, **options))

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _on_cpu(function, args, kwargs or {})


class OtherDevice(TorchDispatchMode):
    """Context in which tensors can be moved to `DEVICE` and back. moves: how many were moved to it."""

    def __init__(self) -> None:
        super().__init__()
        self.moves = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.ops.aten._has_compatible_shallow_copy_type.default:
            return False
        with self:  # in inference mode, composite operations arrive whole
            if (found := function.decompose(*args, **kwargs)) is not NotImplemented:
                return found
        is_copy = function is torch.ops.aten._to_copy.default
        is_there = any(isinstance(one, Moved) for one in tree_flatten((args, kwargs))[0])
        asked = kwargs.get("device")
        if asked is not None and torch.device(asked) == DEVICE:
            self.moves += is_copy and not is_there
            made = function(*_held(args), **{**_held(kwargs), "device": "cpu"})
            return Moved(made)
        if is_copy and asked is not None:
            return function(*_held(args), **_held(kwargs))
        return _on_cpu(function, args, kwargs) if is_there else function(*args, **kwargs)


def _on_cpu(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on the values. Raises RuntimeError, as an accelerator does, where a tensor was not moved."""
    for one in tree_flatten((args, kwargs))[0]:
        if isinstance(one, torch.Tensor) and not isinstance(one, Moved) and one.ndim:
            raise RuntimeError(
                f"{function}: expected all tensors on {DEVICE}, but one of shape {list(one.shape)} is on cpu"
            )
    found = function(*_held(args), **_held(kwargs))
    moved = tree_map(lambda one: Moved(one) if isinstance(one, torch.Tensor) else one, found)
    inplace = args[0] if function._schema.name.endswith("_") and args else None
    return inplace if inplace is not None else moved


def _held(values: Any) -> Any:
    return tree_map(lambda one: one.held if isinstance(one, Moved) else one, values)


@contextmanager
def other_device() -> Iterator[OtherDevice]:
    """The context, with attention by plain operations: torch picks a fused kernel by the name of the device."""
    with sdpa_kernel(SDPBackend.MATH), OtherDevice() as device:
        yield device
