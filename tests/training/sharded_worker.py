"""What two processes find about sharded weights; `test_parallel` forks them and reads `results.json`."""

import copy
import json
from types import SimpleNamespace

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from seqkit.analysis.cost import PresetModel
from seqkit.backbones.presets import PUBLISHED
from seqkit.training.checkpoint_io import read_checkpoint, write_checkpoint
from seqkit.training.optim import Muon, TorchOptimizer
from seqkit.training.parallel import (
    ELEMENTWISE,
    gather_weights,
    is_sharded,
    shard,
    sharded_tensors,
    whole_tensors,
    without_weights,
)
from seqkit.training.recompute import blocks_of
from seqkit.training.resume import check_finite_weights

ROWS = 31
"""Of a weight: no multiple of two, so that the parts differ in size."""


class Tied(nn.Module):
    """Input and output share a table; one weight has a single row, so that a process has none of it."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(ROWS, 16), nn.Linear(16, ROWS, bias=False)
        self.head.weight = self.table.weight
        self.row = nn.Parameter(torch.ones(1, 16))
        self.register_buffer("known", torch.arange(3.0))


def distance(whole, sharded, start):
    """Largest difference of the weights, over the largest change since `start`."""
    changed = max(
        float((a - b).detach().abs().max()) for a, b in zip(whole.parameters(), start.parameters())
    )
    gathered = [p.full_tensor() for p in sharded.parameters()]
    return (
        max(float((a - b).detach().abs().max()) for a, b in zip(whole.parameters(), gathered))
        / changed
    )


def trained(factory, mesh):
    """Distance after five steps on the mean gradient of two examples, one of each process."""
    torch.manual_seed(0)
    whole = nn.Sequential(
        nn.Linear(17, ROWS, bias=False), nn.GELU(), nn.Linear(ROWS, 16, bias=False)
    )
    start, sharded = copy.deepcopy(whole), copy.deepcopy(whole)
    fully_shard(sharded, mesh=mesh)
    optimizers = factory.build(whole), factory.build(sharded)
    for _ in range(5):
        x = torch.randn(2, 11, 17)
        ((whole(x[0]).square().sum() + whole(x[1]).square().sum()) / 2).backward()
        sharded(x[distributed.get_rank()]).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return distance(whole, sharded, start)


def state(mesh):
    """Weights and an optimizer after a step, sharded."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, ROWS), nn.Linear(ROWS, 1))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3, 16)).sum().backward()
    optimizer.step()
    return {
        "state_dict": model.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
        "epoch": 3,
        "run": {"a": 1},
    }


def same(one, other):
    """Whether two nested values are equal, parts of tensors to the bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "to_local"):
        return one.placements == other.placements and torch.equal(one.to_local(), other.to_local())
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def find(folder):
    """Write what was found; the first process's word counts."""
    distributed.init_process_group("gloo")
    found = {}
    mesh, rank = init_device_mesh("cpu", (2,)), distributed.get_rank()
    for name in ELEMENTWISE:
        found[name] = trained(TorchOptimizer(getattr(torch.optim, name), lr=0.01), mesh)
    found["Muon"] = trained(Muon(0.01), mesh)

    model = Tied()
    whole, start = without_weights(model), copy.deepcopy(model)
    fully_shard(model, mesh=mesh)
    gather_weights(model, whole, keep=rank == 0)
    if rank == 0:
        found["gathered"] = same(dict(whole.state_dict()), dict(start.state_dict()))
        found["tied"] = whole.head.weight is whole.table.weight

    content, path = state(mesh), folder / "resume-step=5.ckpt"
    whole = whole_tensors(content, keep=rank == 0)
    if rank == 0:
        write_checkpoint(whole, path)
    distributed.barrier()
    found["read back"] = same(sharded_tensors(read_checkpoint(path, mmap=True), mesh), content)
    found["point"] = str(path)
    found["files"] = sorted(path.name for path in folder.iterdir())

    published = PresetModel(PUBLISHED["llama_nano"])
    shard(published, mesh)
    found["blocks"] = [is_sharded(block) for block in blocks_of(published)]

    bad = nn.Linear(4, 4)
    fully_shard(bad, mesh=mesh)
    if rank == 1:
        with torch.no_grad():
            bad.weight.to_local()[0, 0] = torch.nan
    found["not finite"] = sorted(told_not_finite(bad))
    if rank == 0:
        (folder / "results.json").write_text(json.dumps(found))
    distributed.barrier()


def reshard(source, target, number):
    """Read a checkpoint as one of so many processes, and write it again."""
    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (number,))
    content = sharded_tensors(read_checkpoint(source, mmap=True), mesh)
    rows = content["state_dict"]["0.weight"].to_local().shape[0]
    assert rows in (ROWS // number, -(-ROWS // number)), rows
    whole = whole_tensors(content, keep=distributed.get_rank() == 0)
    if distributed.get_rank() == 0:
        write_checkpoint(whole, target)
    distributed.barrier()


def told_not_finite(model):
    """What every process says of a model of which one part is not finite."""
    from seqkit.errors import DivergedError
    from seqkit.training.parallel import ShardedStrategy

    strategy = object.__new__(ShardedStrategy)
    trainer = SimpleNamespace(
        strategy=strategy, lightning_module=model, global_step=3, world_size=2
    )
    told = "nothing"
    try:
        check_finite_weights(trainer)
    except DivergedError as error:
        told = str(error)
    each = [None, None]
    distributed.all_gather_object(each, told)
    return each
