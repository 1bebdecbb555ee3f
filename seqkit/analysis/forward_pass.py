"""FLOPs of a forward pass, and the bytes that autograd saves in it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

from seqkit.interfaces import TokenBatch


class ForwardPass(NamedTuple):
    """Figures of a training step's forward pass: FLOPs, and bytes of the storages that autograd saves, each once.

    prediction: a tensor, or several in a mapping, on the device of the pass.
    """

    flops: int
    activations: int
    prediction: Any


def counted(
    model: nn.Module, batch: TokenBatch, masked: Tensor | None = None
) -> tuple[nn.Module, TokenBatch, ForwardPass]:
    """Copies of model and batch on the device where the model runs, and its forward pass there.

    That is device meta or, for a model that looks at values, which device meta has none of, the CPU.
    """

    def on(device: str) -> tuple[nn.Module, TokenBatch, ForwardPass]:
        copied = copy.deepcopy(model).to(device)
        given = batch.to(device)
        return (
            copied,
            given,
            _forward_pass(copied, given, None if masked is None else masked.to(device)),
        )

    try:
        return on("meta")
    except Exception:  # whatever a user's own component raises where there are no values
        if any(p.is_meta for p in model.parameters()):
            raise
        with torch.random.fork_rng(devices=[]):
            return on("cpu")


def _forward_pass(model: nn.Module, batch: TokenBatch, masked: Tensor | None = None) -> ForwardPass:
    """A forward pass in training mode.

    torch counts products of matrices and convolutions. A module whose work is neither (an elementwise recurrence, an
    FFT, a scatter-add) has a method `uncounted_flops(x) -> int`: the FLOPs of one call, x being its first input.
    Parameters and buffers are not activations.
    """
    own = {storage_of(t) for t in (*model.parameters(), *model.buffers())}
    saved: dict[int, Tensor] = {}  # by storage; a tensor keeps its address taken
    uncounted: list[int] = []

    def save(t: Tensor) -> Tensor:
        if storage_of(t) not in own:
            saved.setdefault(storage_of(t), t)
        return t

    def count(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _output: Any) -> None:
        uncounted.append(int(module.uncounted_flops(next(iter((*args, *kwargs.values()))))))

    with ExitStack() as stack:
        for module in model.modules():
            if hasattr(module, "uncounted_flops"):
                stack.callback(module.register_forward_hook(count, with_kwargs=True).remove)
        counter = stack.enter_context(FlopCounterMode(display=False))
        attention = stack.enter_context(_FusedAttention(counter))
        with torch.autograd.graph.saved_tensors_hooks(save, lambda t: t):
            prediction = model.train()(batch, masked)
    flops = int(counter.get_total_flops()) + attention.flops + sum(uncounted)
    return ForwardPass(flops, bytes_of(saved.values()), tree_map(Tensor.detach, prediction))


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages of tensors, no two of which share one."""
    return sum(t.untyped_storage().nbytes() for t in tensors)


def storage_of(t: Tensor) -> int:
    """Identity of the memory that a tensor lies in, also on device meta."""
    return t.untyped_storage()._cdata


class _Fused(torch.autograd.Function):
    """Attention that saves what a fused kernel saves: queries, keys, values, output, a number per row (Dao 2022).

    It is for counting alone, and has no backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None,
        attend: Callable[[], Tensor],
    ) -> Tensor:
        if not q.is_meta:
            output = attend()
        elif q.shape[-1] == v.shape[-1]:
            output = torch.empty_like(q)  # in the layout of the queries, as the kernel gives it
        else:
            output = q.new_empty(*q.shape[:-1], v.shape[-1])
        ctx.save_for_backward(q, k, v, attn_mask, output, q.new_empty(q.shape[:3]))
        return output


class _FusedAttention(TorchFunctionMode):
    """Replaces torch's attention, which on some devices is unfused and saves the scores, by a fused one; counts
    FLOPs.

    counter: what counts all else; what it counts inside attention is taken off.
    """

    def __init__(self, counter: FlopCounterMode):
        super().__init__()
        self.counter = counter
        self.flops = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            q, k, v, *rest = args
            before = int(self.counter.get_total_flops())
            output = _Fused.apply(q, k, v, rest[0] if rest else None, lambda: func(*args, **kwargs))
            # scores, then sums of values: n m products a head for each channel of a key, and of a value
            own = 2 * k.shape[2] * (q.numel() + output.numel())
            self.flops += own - (int(self.counter.get_total_flops()) - before)
            return output
        return func(*args, **kwargs)


def tensors_in(thing: Any) -> Iterator[Tensor]:
    """All tensors in an object: in lists, tuples, attributes and fields of dataclasses, at any depth."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for inner in thing:
            yield from tensors_in(inner)
    elif is_dataclass(thing):
        yield from tensors_in([getattr(thing, field.name) for field in fields(thing)])
    elif hasattr(thing, "__dict__"):
        yield from tensors_in(list(vars(thing).values()))
