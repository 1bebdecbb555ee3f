"""Molecules: one token per atom, with an adjacency along bonds and by distance in bonds.

n atoms · f features
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

import torch

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.tokenizers.adjacency import build_adjacency, merge_edges, num_adjacency_types

ELEMENTS = ("H", "B", "C", "N", "O", "F", "Na", "Si", "P", "S", "Cl", "K", "Se", "Br", "I")
BONDS = ("single", "double", "triple", "aromatic", "other")
_HYBRIDS = ("SP", "SP2", "SP3")
_RINGS = (3, 4, 5, 6, 7, 8)


class Molecule(Tokenizer):
    """The atoms of a molecule as tokens; by default every pair of a connected molecule is adjacent, by its distance.

    max_distance: most bonds between adjacent atoms; None: any. max_hops: from here on distances share one edge type.
    Edge types: 1 to 5 for a bond (single, double, triple, aromatic, other), then one for 2 bonds, for 3, and so on.
    Content: what an atom is (element, neighbours, hydrogens, charge, hybridisation, rings, R or S) and what it adds to
    properties of the whole: logP and molar refraction (Crippen), polar surface (TPSA), surface (Labute), partial charge
    (Gasteiger; 0 where that has no parameters, as for metals), its hydrogens' share included; `feature_names`.
    When: SMILES and rdkit molecules. Raises ValueError if rdkit is missing. Wildman & Crippen 1999, Ertl et al. 2000,
    Labute 2000, Gasteiger & Marsili 1980, all as in rdkit.
    """

    def __init__(self, *, max_distance: int | None = None, max_hops: int = 8) -> None:
        try:
            import rdkit  # noqa: F401, only whether it is there
        except ImportError as error:
            raise ValueError('molecules need rdkit; pip install "seqkit[graph]"') from error
        self.max_distance, self.max_hops = max_distance, max_hops
        self._num_adjacency_types = num_adjacency_types(len(BONDS), max_distance, max_hops)

    def __repr__(self) -> str:
        return f"Molecule(max_distance={self.max_distance}, max_hops={self.max_hops})"

    @property
    def spec(self) -> TokenSpec:
        """Vectors of atom features without axes, with an adjacency."""
        return TokenSpec(num_features=len(self.feature_names), num_axes=0, num_edge_types=self._num_adjacency_types)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What each of the f features is."""
        return (
            *(f"element {symbol}" for symbol in (*ELEMENTS, "other")),
            *(f"{i} neighbours" for i in (*range(5), "5 or more")),
            *(f"{i} hydrogens" for i in (*range(4), "4 or more")),
            *(f"hybrid {name.lower()}" for name in (*_HYBRIDS, "other")),
            *(f"in a ring of {size}" for size in _RINGS),
            *("in a ring", "aromatic", "chiral R", "chiral S", "donates H bonds", "accepts H bonds"),
            *("formal charge", "mass / 100", "logP", "refraction / 5", "polar surface / 20", "surface / 10"),
            *("partial charge", "partial charge of hydrogens"),
        )

    def encode(self, raw: Any, /) -> Tokens:
        """A molecule as atom features [n f] in the order of its atoms; positions [n 0]; an adjacency, maybe empty.

        raw: SMILES, or an rdkit molecule, whose explicit hydrogens are tokens as other atoms are (a SMILES' are not).
        Raises DataError if a SMILES is invalid, rdkit refuses the molecule, or it has no atoms.
        """
        from rdkit import Chem, rdBase

        with rdBase.BlockLogs():  # what rdkit writes to stderr goes into the error
            molecule = _molecule(Chem, raw)
            rows = list(_rows(Chem, molecule))
        content = torch.tensor(rows, dtype=torch.float32)
        bonds = list(molecule.GetBonds())
        edges = torch.tensor([[b.GetBeginAtomIdx() for b in bonds], [b.GetEndAtomIdx() for b in bonds]])
        types = torch.tensor([_bond_type(b) for b in bonds], dtype=torch.int64)
        edges, types = merge_edges(edges.long(), types, len(rows), directed=False)
        adjacency = build_adjacency(
            edges, types, len(rows), num_edge_types=len(BONDS), max_distance=self.max_distance, max_hops=self.max_hops
        )
        return Tokens(content, torch.zeros(len(rows), 0), adjacency)


def _molecule(chem: Any, raw: Any) -> Any:
    """A molecule of our own to compute on, checked and with its R and S assigned."""
    if isinstance(raw, str):
        params = chem.SmilesParserParams()
        params.parseName = False  # text after the SMILES is an error, not a name
        try:
            molecule = chem.MolFromSmiles(raw.strip(), params)
        except (UnicodeError, RuntimeError, ValueError):
            molecule = None
        if molecule is None:
            shown = raw if len(raw) <= 200 else f"{raw[:200]}…"
            raise DataError(f"{shown!r} is not a valid SMILES: rdkit cannot parse it; correct it or drop the molecule")
    elif isinstance(raw, chem.Mol):
        molecule = chem.Mol(raw)
        try:
            chem.SanitizeMol(molecule)
        except ValueError as error:
            raise DataError(f"rdkit refuses the molecule: {error}; correct it or drop it") from None
        chem.AssignStereochemistry(molecule, cleanIt=True, force=True)
    else:
        raise DataError(
            f"{'None' if raw is None else type(raw).__name__} is not a molecule; give a SMILES or an rdkit Mol"
        )
    if molecule.GetNumAtoms() == 0:
        raise DataError(f"the molecule has no atoms ({raw!r}); drop it")
    return molecule


def _rows(chem: Any, molecule: Any) -> Iterator[list[float]]:
    """The features of each atom, in the order of `Molecule.feature_names`."""
    from rdkit.Chem import Lipinski, rdMolDescriptors, rdPartialCharges

    n = molecule.GetNumAtoms()
    # Crippen's types are defined with hydrogens present; those added here count towards the atom they are bonded to
    full = chem.AddHs(molecule)
    owner = [*range(n), *(full.GetAtomWithIdx(i).GetNeighbors()[0].GetIdx() for i in range(n, full.GetNumAtoms()))]
    log_p, refraction = [0.0] * n, [0.0] * n
    for i, (p, r) in zip(owner, rdMolDescriptors._CalcCrippenContribs(full)):
        log_p[i] += p
        refraction[i] += r
    surface = [0.0] * n
    for i, area in zip(owner, rdMolDescriptors._CalcLabuteASAContribs(full)[0]):
        surface[i] += area
    polar = rdMolDescriptors._CalcTPSAContribs(molecule)
    rdPartialCharges.ComputeGasteigerCharges(molecule)
    donors = {i for match in molecule.GetSubstructMatches(Lipinski.HDonorSmarts) for i in match}
    acceptors = {i for match in molecule.GetSubstructMatches(Lipinski.HAcceptorSmarts) for i in match}
    rings = molecule.GetRingInfo()
    for i, atom in enumerate(molecule.GetAtoms()):
        chirality = atom.GetProp("_CIPCode") if atom.HasProp("_CIPCode") else ""
        yield [
            *_one_hot(atom.GetSymbol(), ELEMENTS),
            *_one_hot(atom.GetDegree(), range(5)),
            *_one_hot(atom.GetTotalNumHs(), range(4)),
            *_one_hot(str(atom.GetHybridization()), _HYBRIDS),
            *(float(rings.IsAtomInRingOfSize(i, size)) for size in _RINGS),
            *(float(x) for x in (atom.IsInRing(), atom.GetIsAromatic(), chirality == "R", chirality == "S")),
            *(float(i in donors), float(i in acceptors)),
            *(atom.GetFormalCharge(), atom.GetMass() / 100),
            *(log_p[i], refraction[i] / 5, polar[i] / 20, surface[i] / 10),
            *(_charge(atom, "_GasteigerCharge"), _charge(atom, "_GasteigerHCharge")),
        ]


def _one_hot(value: Any, known: Any) -> list[float]:
    """One place per known value and the last for all others."""
    places = [float(value == candidate) for candidate in known]
    return [*places, float(not any(places))]


def _charge(atom: Any, name: str) -> float:
    charge = atom.GetDoubleProp(name)
    return charge if isfinite(charge) else 0.0


def _bond_type(bond: Any) -> int:
    name = str(bond.GetBondType()).lower()
    return BONDS.index(name) if name in BONDS else len(BONDS) - 1
