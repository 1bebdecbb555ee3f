"""Graphs with labelled nodes: one sample is a graph, its label [n] int64, `IGNORE` at the nodes of other splits.

n nodes · e edges
"""

import torch
from einops import rearrange
from torch import Tensor

from seqkit import GraphData
from seqkit.data import DataSource, Sample, Splits, stratified
from seqkit.data.download import find, missing
from seqkit.data.graph_files import read_graph
from seqkit.data.source import import_optional
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE


class Karate(DataSource):
    """`karate`, Zachary's karate club: one graph of 34 members and 78 friendships, from networkx (offline).

    The label is the club that a member joined. Node features are the node's index (34 categories, one-hot once
    tokenized), so what is learned does not transfer to another graph. per_class, valid_per_class: members of each club
    in the training and the validation split, drawn in SHA-256 order (seed 0); all others are test.
    """

    def __init__(self, *, per_class: int = 4, valid_per_class: int = 0):
        if per_class < 1 or valid_per_class < 0 or per_class + valid_per_class > 16:
            given = f"per_class is {per_class} and valid_per_class {valid_per_class}"
            raise ValueError(
                f"{given}; each club has 17 members: give 1 to 16 together, so that some are left to test"
            )
        self.per_class, self.valid_per_class = per_class, valid_per_class

    def splits(self) -> Splits:
        """One sample each, the same graph with other nodes labelled. Raises DataError if networkx is missing."""
        club = import_optional("networkx", "graph").karate_club_graph()
        names = ["Mr. Hi", "Officer"]
        label = torch.tensor([names.index(club.nodes[node]["club"]) for node in club])
        order, _ = stratified(label.tolist(), 0.0, seed=0)
        train, valid = torch.zeros(2, len(label), dtype=torch.bool)
        for club_label in range(len(names)):
            members = [i for i in order if label[i] == club_label]
            train[members[: self.per_class]] = True
            valid[members[self.per_class : self.per_class + self.valid_per_class]] = True
        edges = rearrange(torch.tensor(list(club.edges)), "e ends -> ends e")
        graph = GraphData(nodes=torch.arange(len(label)), edges=edges)
        held_out = _labelled(graph, label, valid) if self.valid_per_class else None
        return Splits(
            _labelled(graph, label, train),
            _labelled(graph, label, ~(train | valid)),
            held_out,
            names,
        )


class Cora(DataSource):
    """`cora`: citation graph of 2,708 papers in 7 fields, 5,278 citations; node features: 1,433 words, 0 or 1.

    Planetoid's public split: 140 training, 500 validation and 1,000 test nodes of the same graph.
    """

    # Planetoid's files number the fields without names; these follow from their sizes, which all differ
    NAMES = (
        "Theory", "Reinforcement_Learning", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods",
        "Case_Based", "Rule_Learning",
    )  # fmt: skip

    def splits(self) -> Splits:
        """One sample each. Raises DataError where `cora/cora.npz` is missing or holds something else."""
        layout = (
            "put Planetoid's Cora there as arrays x [2708 1433], edge_index [2 10556], y [2708] in 0 … 6 and booleans "
            "train, val, test [2708]"
        )
        if (path := find("cora/cora.npz")) is None:
            raise missing("cora/cora.npz", layout)
        raw = read_graph(str(path))
        if raw.x is None or not {"y", "train_mask", "val_mask", "test_mask"} <= set(raw.attributes):
            raise DataError(f"{path} is not complete; {layout}")
        graph = GraphData(nodes=torch.from_numpy(raw.x).float(), edges=torch.from_numpy(raw.edges))
        label = torch.tensor(raw.attributes["y"])
        masks = (
            torch.tensor(raw.attributes[f"{split}_mask"]) for split in ("train", "test", "val")
        )
        return Splits(*(_labelled(graph, label, mask) for mask in masks), list(self.NAMES))


def _labelled(graph: GraphData, label: Tensor, is_labelled: Tensor) -> list[Sample]:
    return [Sample(graph, label.masked_fill(~is_labelled, IGNORE))]
