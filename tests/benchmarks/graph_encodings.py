"""Which structural encodings of graphs help: one table, validation beside test, three seeds, short trainings.

    SEQKIT_DATA=FOLDER python tests/benchmarks/graph_encodings.py [--only regular freesolv cora solubility]

SEQKIT_DATA holds cora/cora.npz. Trainings are the recipes' own, but shorter (`STEPS`). `regular`: which of two regular
graphs that message passing cannot tell apart. Results are kept in --kept, so a repeated command goes on.
"""

import argparse
import json
import re
import tempfile
from functools import partial
from pathlib import Path

import networkx
import pandas
import torch

import seqkit
from seqkit.backbones import GIN, GPSBlock, Transformer
from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.nn.attention.edge import EdgeAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.objectives import Classify
from seqkit.raw import GraphData
from seqkit.tokenizers import Degree, EdgeTokens, Graph, Laplacian, RandomWalk, ShortestPath

SEEDS = (1, 2, 3)
STEPS = {"freesolv": 150, "solubility": 150, "cora": 40}
FIXED = {"trainer.enable_progress_bar": False, "trainer.min_steps": None, "trainer.max_epochs": -1}
RECIPES = {
    "freesolv": ("graph/molecules", {**FIXED, "schedule.warmup_steps": 20}, "rmse"),
    "solubility": (
        "graph/molecules",
        {**FIXED, "data.source": "solubility", "schedule.warmup_steps": 20},
        "rmse",
    ),
    "cora": ("graph/nodes", FIXED, "accuracy"),
}
WALK, VECTORS, EVERY = {"type": "RandomWalk"}, {"type": "Laplacian"}, {"type": "ShortestPath"}
HOPS = {"type": "ShortestPath", "unreachable": False}
OF_MOLECULES = {  # preset, encodings, more keys
    "GIN, distances (default)": (None, [HOPS], {}),
    "GIN, bonds": (None, [], {}),
    "GIN, distances, random walk": (None, [HOPS, WALK], {}),
    "GIN, bonds, virtual node": (None, ["VirtualNode"], {}),
    "Transformer, bonds": ("transformer", [], {}),
    "Transformer, distances (default)": ("transformer", [HOPS], {}),
    "Transformer, distances and unreachable": ("transformer", [EVERY], {}),
    "Transformer, distances, random walk": ("transformer", [HOPS, WALK], {}),
    "Transformer, distances, eigenvectors": ("transformer", [HOPS, VECTORS], {}),
    "Transformer, distances, virtual node": ("transformer", [HOPS, "VirtualNode"], {}),
    "Transformer, distances, edge tokens": ("transformer", [HOPS, "EdgeTokens"], {}),
    "GPS, distances": (
        "transformer",
        [HOPS],
        {"model.backbone.block": {"type": "GPSBlock", "max_edge_type": 5}},
    ),
}
OF_NODES = {
    "APPNP, degree (default)": (None, ["Degree"], {}),
    "APPNP, nothing": (None, [], {}),
    "APPNP, degree, random walk": (None, ["Degree", WALK], {}),
    "APPNP, degree, eigenvectors": (None, ["Degree", VECTORS], {}),
}
GPS_ALONG_EDGES = partial(GPSBlock, attention=partial(MultiHeadAttention, mechanism=EdgeAttention))
REGULAR = {
    "GIN, degree": (GIN, [Degree()]),
    "GIN, random walk": (GIN, [RandomWalk()]),
    "Transformer, degree": (Transformer, [Degree()]),
    "Transformer, edge tokens": (Transformer, [Degree(), EdgeTokens()]),
    "Transformer, shortest paths": (Transformer, [Degree(), ShortestPath()]),
    "Transformer, eigenvectors": (Transformer, [Laplacian()]),
    "Transformer, random walk": (Transformer, [RandomWalk()]),
    "GPS, random walk": (
        lambda dim, depth: Transformer(dim, depth, block=GPS_ALONG_EDGES),
        [RandomWalk()],
    ),
}


def regular_pairs():
    """Pairs of regular graphs with equal numbers of nodes and edges, which colour refinement cannot tell apart."""
    ring = networkx.cycle_graph
    return [
        (networkx.disjoint_union(ring(6), ring(6)), ring(12)),
        (networkx.disjoint_union(ring(3), ring(4)), ring(7)),
        (networkx.circular_ladder_graph(3), networkx.complete_bipartite_graph(3, 3)),
        (networkx.disjoint_union(*[networkx.complete_graph(4)] * 2), networkx.hypercube_graph(3)),
    ]


def drawn(generator, pairs):
    """Each graph of each pair once, its nodes in random order, and which of the pair it is."""
    graphs, label = [], []
    for pair in pairs:
        for which, graph in enumerate(pair):
            edges = torch.tensor([*networkx.convert_node_labels_to_integers(graph).edges]).T
            graphs.append(
                GraphData(
                    torch.zeros(len(graph), 0),
                    torch.randperm(len(graph), generator=generator)[edges],
                )
            )
            label.append(which)
    return graphs, torch.tensor(label)


def regular(make, encodings, seed, steps=400):
    """Accuracy on 20 new orders of each graph."""
    torch.manual_seed(seed)
    generator, pairs = torch.Generator().manual_seed(seed), regular_pairs()
    tokenizer, objective = Graph(encodings=encodings), Classify(pool="mean")
    objective.fit([0, 1], None)
    model = Model(tokenizer.spec, make(32, 3), objective)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def loss(training):
        graphs, label = drawn(generator, pairs)
        prediction = model(TokenBatch.collate([tokenizer.encode(graph) for graph in graphs]))
        return objective.loss(prediction, label, training=training)

    for _ in range(steps):
        optimizer.zero_grad()
        loss(True).loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.inference_mode():
        right = torch.cat(
            [(one.preds == one.target).float() for one in (loss(False) for _ in range(20))]
        )
    return {"test": float(right.mean())}


def trained(data, preset, encodings, more, seed):
    recipe, keys, metric = RECIPES[data]
    keys = {
        **keys,
        **more,
        "tokenizer.encodings": encodings,
        "trainer.max_steps": STEPS[data],
        "seed": seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        run = seqkit.fit(
            recipe, keys, preset=preset, out=f"{folder}/run", classical="off", report=False
        )
        valid = pandas.read_csv(f"{folder}/run/metrics.csv")[f"valid/{metric}"].dropna()
    return {
        "valid": float(valid.min() if metric == "rmse" else valid.max()),
        "test": run.summary["metrics"][metric],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", default=["regular", *RECIPES])
    parser.add_argument("--kept", type=Path, default=Path("graph_encodings.json"))
    given = parser.parse_args()
    kept = json.loads(given.kept.read_text()) if given.kept.exists() else {}
    print(
        "| data | encodings | validation (regular: new orders) | test |\n|---|---|---|---|",
        flush=True,
    )
    for data in given.only:
        rows = {"regular": REGULAR, "cora": OF_NODES}.get(data, OF_MOLECULES)
        for name, settings in rows.items():
            if data == "solubility" and not re.search("default|walk|GPS", name):
                continue  # to save an hour
            for seed in SEEDS:
                key = f"{data} | {name} | {seed}"
                if key not in kept:
                    kept[key] = (
                        regular(*settings, seed)
                        if data == "regular"
                        else trained(data, *settings, seed)
                    )
                    given.kept.write_text(json.dumps(kept, indent=1))
            found = [kept[f"{data} | {name} | {seed}"] for seed in SEEDS]
            columns = (
                [one[split] for one in found] for split in ("valid", "test") if split in found[0]
            )
            spreads = [
                f"{pandas.Series(values).mean():.3f} ± {pandas.Series(values).std():.3f}"
                for values in columns
            ]
            print(f"| {data} | {name} | {' | '.join(spreads)} |", flush=True)


if __name__ == "__main__":
    main()
