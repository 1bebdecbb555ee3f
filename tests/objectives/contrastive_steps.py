"""Joined examples and a small contrastive model over them, and its step in one of two processes.

A process that is started for one step imports this file alone: what the tests import takes several seconds.
"""

from datetime import timedelta

import torch
from graphs import graph_of

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.objectives.contrastive import Contrastive
from seqkit.tokenizers import Graph, Ids, Join, Patches

DIM, SIZE, PARTS = 24, 5, ["image", "text", "graph"]
G = torch.Generator().manual_seed(0)
IMAGES = [torch.rand(1, 4, 4 * n, generator=G) for n in (1, 3, 2, 2)]
GRAPHS = [graph_of(3, [(0, 1), (1, 2)]), graph_of(2, [(0, 1)]), graph_of(3, [(0, 2), (1, 2)])]
RAWS = [
    {"image": IMAGES[0], "text": [1, 2, 3], "graph": GRAPHS[0]},
    {"text": [4, 0], "graph": GRAPHS[1]},
    {"image": IMAGES[1], "text": [1, 2, 3]},
    {"image": IMAGES[2], "graph": GRAPHS[2], "text": [0]},
    {"image": IMAGES[3]},
]


def join() -> Join:
    return Join({"image": Patches(4), "text": Ids(SIZE), "graph": Graph(0, num_edge_types=1)})


def batch_of(raws=RAWS) -> TokenBatch:
    return TokenBatch.collate([join().encode(raw) for raw in raws]).with_dtype(torch.float64)


def built(labels=None, backbone=None, parts=PARTS, **settings) -> tuple[Model, Contrastive]:
    torch.manual_seed(0)
    objective = Contrastive(parts, dim=7, **settings)
    objective.fit([None] if labels is None else labels, None)
    model = Model(join().spec, backbone or Transformer(DIM, 2, num_heads=3), objective).double()
    return model, objective


SHARES = [[0, 1, 3], [2, 4]]
"""Examples of each process; no example of the second has a graph."""


def step_of_two(rank: int, folder: str) -> None:
    torch.distributed.init_process_group(
        "gloo", f"file://{folder}/meeting", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    model, objective = built()
    output = objective.step(model, (batch_of([RAWS[i] for i in SHARES[rank]]), None), training=True)
    output.loss.backward()
    sums = [output.loss.detach(), output.count.double(), *(p.grad for p in model.parameters())]
    for x in sums:
        torch.distributed.all_reduce(x)
    if rank == 0:
        torch.save(sums, f"{folder}/sums.pt")
    torch.distributed.destroy_process_group()
