"""Shares and collectives of a training step on several devices, by torch's fake process group: nothing is sent.

The collectives of `fsdp` are those that `torch.distributed.fsdp.fully_shard` calls in a step; those of `ddp` are one
all-reduce of each gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seqkit.analysis.units import size
from seqkit.interfaces import TokenBatch
from seqkit.training.parallel import check_sharding, local_part, shard

NAMES = {"_allgather_base_": "all-gather", "_reduce_scatter_base_": "reduce-scatter", "allreduce_": "all-reduce"}


@dataclass(frozen=True, slots=True)
class Sharding:
    """Bytes of one training step on each of `num_devices`, in fp32.

    whole: weights, gradients and both moments of AdamW, as each device holds them with `ddp`; held: with `fsdp`, the
    most of any device. gradients: bytes of the all-reduce of `ddp`. collectives: of `fsdp`, by name: number of calls,
    and bytes of all whole tensors, of which a device receives or sends all but its own share.
    """

    num_devices: int
    whole: int
    held: int
    gradients: int
    collectives: Mapping[str, tuple[int, int]]

    def __str__(self) -> str:
        rows = [
            ("weights, gradients, AdamW, each", size(self.whole), size(self.held)),
            ("all-reduce of a step", size(self.gradients), "–"),
            *((f"{name} of a step", "–", f"{size(sent)} in {n}") for name, (n, sent) in self.collectives.items()),
        ]
        lines = [(f"{self.num_devices} devices, fp32", "ddp", "fsdp"), *rows]
        return "\n".join(f"{label:42}  {one:12}  {other}".rstrip() for label, one, other in lines)


def describe_sharding(
    build: Callable[[], nn.Module], batch: TokenBatch, num_devices: int, *, fake: bool = True
) -> Sharding:
    """Run a step of the model that `build` makes, as the first of several devices would.

    fake: tensors have shapes alone, so that a large model takes no memory; False for a model that looks at values.
    Raises ValueError for fewer than two devices, and UsageError for weights that `fsdp` does not shard.
    """
    if num_devices < 2:
        raise ValueError(f"devices is {num_devices}; give 2 or more")
    with _fake_group(num_devices), torch.random.fork_rng(devices=[]):
        mesh = init_device_mesh("cpu", (num_devices,))
        tensors = FakeTensorMode(allow_non_fake_inputs=True) if fake else nullcontext()
        with tensors, Collectives() as calls:
            model = build().train()
            check_sharding(model, None, {"compile": False, "callbacks": None}, generates=False)
            weights = sum(p.nbytes for p in model.parameters())
            gradients = sum(p.nbytes for p in model.parameters() if p.requires_grad)
            shard(model, mesh)
            torch.stack([x.sum() for x in tree_leaves(model(batch)) if isinstance(x, Tensor)]).sum().backward()
        held = sum(local_part(p).nbytes * (4 if p.requires_grad else 1) for p in model.parameters())
    return Sharding(num_devices, weights + 3 * gradients, held, gradients, calls.found)


class Collectives(TorchDispatchMode):
    """Number of collectives and bytes of their whole tensors, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[int, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            op = func.__name__.split(".")[0]
            name, largest = NAMES.get(op, op), max(x.nbytes for x in tree_leaves(args) if isinstance(x, Tensor))
            number, sent = self.found.get(name, (0, 0))
            self.found[name] = number + 1, sent + largest
        return func(*args, **(kwargs or {}))


@contextmanager
def _fake_group(num_devices: int) -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=num_devices, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
