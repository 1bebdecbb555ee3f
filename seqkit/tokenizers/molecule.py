"""Molecules: one token per atom, with an adjacency along bonds and by distance in bonds.

n atoms · f features
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.tokenizers.graph_encodings import GraphEncoding, ShortestPath, Structure

MAX_ATOMS = 2_000
MAX_CHARACTERS = 20_000
"""Most atoms of a molecule, whose pairs take some 3 s, and most characters of a SMILES."""

ELEMENTS = ("H", "B", "C", "N", "O", "F", "Na", "Si", "P", "S", "Cl", "K", "Se", "Br", "I")
BONDS = ("single", "double", "triple", "aromatic", "other")
_HYBRIDS = ("SP", "SP2", "SP3")
_RINGS = (3, 4, 5, 6, 7, 8)
_PLACES = np.cumsum([0, len(ELEMENTS) + 1, 6, 5, len(_HYBRIDS) + 1, len(_RINGS)])
"""The first feature of each group: element, neighbours, hydrogens, hybridisation, sizes of rings, all others."""
_ELEMENT_PLACES = {
    number: i for i, number in enumerate((1, 5, 6, 7, 8, 9, 11, 14, 15, 16, 17, 19, 34, 35, 53))
}
_HYBRID_PLACES = {2: 0, 3: 1, 4: 2}
_BOND_TYPES = {1: 0, 2: 1, 3: 2, 12: 3}
_STEREO_PLACES = {2: 2, 3: 3}
_OPPOSITE_TO_FIRST = {1: 2, 2: 1, 3: 3}
"""Place of the ligand opposite to the first of a square-planar atom, by the number of @SP in SMILES."""
MAX_CIP_STEPS = 1_000_000
LOST_STEREO = "stereo of allenes, and of centres with five neighbours or more, is lost: isomers are the same tokens"
_ALLENE = re.compile(r"=\[\d*C@+\]=|\[\d*C@+\]\(=[^=]*\)=")
"""Atomic numbers, and numbers of rdkit's HybridizationType, BondType and BondStereo (Z, E), to their place; a test
compares the names."""


class Molecule(Tokenizer):
    """The atoms of a molecule as tokens; by default every pair of a connected molecule is adjacent, by its distance.

    encodings: of its structure, as in `Graph`; None: ShortestPath(unreachable=False), the distances in bonds; []: bonds
    alone. Edge types: 1 to 5 for a bond (single, double, triple, aromatic, other), then one for 2 bonds, for 3, and so
    on.
    Content: what an atom is (element, neighbours, hydrogens, charge, hybridisation, rings, R or S, Z or E at the ends
    of a double bond, and E at two opposite ligands of a square-planar atom) and what it adds to properties of the
    whole: logP and molar refraction (Crippen), polar surface (TPSA), surface (Labute), partial charge (Gasteiger; 0
    where that has no parameters, as for metals), its hydrogens'
    share included; `feature_names`.
    When: SMILES and rdkit molecules. Raises ValueError if rdkit is missing. Wildman & Crippen 1999, Ertl et al. 2000,
    Labute 2000, Gasteiger & Marsili 1980, all as in rdkit.
    """

    def __init__(self, *, encodings: Sequence[GraphEncoding] | None = None) -> None:
        try:
            import rdkit  # noqa: F401, only whether it is there
        except ImportError as error:
            raise ValueError('molecules need rdkit; pip install "seqkit[graph]"') from error
        self.encodings = encodings
        if encodings is None:
            encodings = (ShortestPath(unreachable=False),)
        self._structure = Structure(encodings, num_edge_types=len(BONDS))

    @property
    def spec(self) -> TokenSpec:
        """Vectors of atom features without axes, with an adjacency."""
        return self._structure.spec(len(self.feature_names))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features of an atom, the first columns of the content."""
        return (
            *(f"element {symbol}" for symbol in (*ELEMENTS, "other")),
            *(f"{i} neighbours" for i in (*range(5), "5 or more")),
            *(f"{i} hydrogens" for i in (*range(4), "4 or more")),
            *(f"hybrid {name.lower()}" for name in (*_HYBRIDS, "other")),
            *(f"in a ring of {size}" for size in _RINGS),
            *("in a ring", "aromatic", "R or Z", "S or E", "donates H bonds", "accepts H bonds"),
            *(
                "formal charge",
                "mass / 100",
                "logP",
                "refraction / 5",
                "polar surface / 20",
                "surface / 10",
            ),
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
            content = torch.from_numpy(_features(Chem, molecule))
        return self._structure.encode(content, *_bonds(molecule))


def _bonds(molecule: Any) -> tuple[Tensor, Tensor]:
    """Ends [2 e] and types [e] of the bonds."""
    other = len(BONDS) - 1
    bonds = molecule.GetBonds()
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]
    types = [_BOND_TYPES.get(int(bond.GetBondType()), other) for bond in bonds]
    edges = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2)
    return rearrange(edges, "e end -> end e"), torch.tensor(types, dtype=torch.int64)


def _molecule(chem: Any, raw: Any) -> Any:
    """A molecule of our own to compute on, checked and with its R and S assigned."""
    if isinstance(raw, str):
        if len(raw) > MAX_CHARACTERS:
            raise DataError(
                f"a SMILES of {len(raw):,} characters is too long, over {MAX_CHARACTERS:,}; drop it"
            )
        params = chem.SmilesParserParams()
        if _ALLENE.search(raw):
            warnings.warn(LOST_STEREO, stacklevel=2)
        params.parseName = False  # text after the SMILES is an error, not a name
        try:
            molecule = chem.MolFromSmiles(raw.strip(), params)
        except (UnicodeError, RuntimeError, ValueError):
            molecule = None
        if molecule is None:
            shown = raw if len(raw) <= 200 else f"{raw[:200]}…"
            raise DataError(
                f"{shown!r} is not a valid SMILES: rdkit cannot parse it; correct it or drop the molecule"
            )
    elif isinstance(raw, chem.Mol):
        molecule = chem.Mol(raw)
        try:
            chem.SanitizeMol(molecule)
        except ValueError as error:
            raise DataError(f"rdkit refuses the molecule: {error}; correct it or drop it") from None
        chem.AssignStereochemistry(molecule, cleanIt=True, force=True)
    else:
        raise DataError(f"{type(raw).__name__} is not a molecule; give a SMILES or an rdkit Mol")
    if molecule.GetNumAtoms() == 0:
        raise DataError(f"the molecule has no atoms ({raw!r}); drop it")
    if molecule.GetNumAtoms() > MAX_ATOMS:
        raise DataError(
            f"the molecule has {molecule.GetNumAtoms():,} atoms, and {MAX_ATOMS:,} are the most; drop it"
        )
    return molecule


def _features(chem: Any, molecule: Any) -> np.ndarray:
    """Features of the atoms [n f] float32, in the order of `Molecule.feature_names`."""
    from rdkit.Chem import Lipinski, rdMolDescriptors, rdPartialCharges

    n = molecule.GetNumAtoms()
    # Crippen's types are defined with hydrogens present; those added here count towards the atom they are bonded to
    full = chem.AddHs(molecule)
    owner = list(range(n))
    for i in range(n, full.GetNumAtoms()):
        owner.append(full.GetAtomWithIdx(i).GetNeighbors()[0].GetIdx())
    added = np.zeros((n, 3))  # logP, refraction, surface
    np.add.at(added[:, :2], owner, np.array(rdMolDescriptors._CalcCrippenContribs(full)))
    np.add.at(added[:, 2], owner, np.array(list(rdMolDescriptors._CalcLabuteASAContribs(full)[0])))
    rdPartialCharges.ComputeGasteigerCharges(molecule)
    features = np.zeros((n, _PLACES[-1] + 14))
    others = features[:, _PLACES[-1] :]
    # of the ones, as one index for each atom: element, neighbours, hydrogens, hybridisation
    places = []
    chiralities = _chirality(chem, molecule)
    for i, atom in enumerate(molecule.GetAtoms()):
        chirality = chiralities[i]
        places.append(
            (
                _ELEMENT_PLACES.get(atom.GetAtomicNum(), len(ELEMENTS)),
                min(atom.GetDegree(), 5),
                min(atom.GetTotalNumHs(), 4),
                _HYBRID_PLACES.get(int(atom.GetHybridization()), len(_HYBRIDS)),
            )
        )
        others[i, 1:4] = (atom.GetIsAromatic(), chirality.get("R", 0), chirality.get("S", 0))
        others[i, 6:8] = (atom.GetFormalCharge(), atom.GetMass() / 100)
        others[i, 12:] = (_charge(atom, "_GasteigerCharge"), _charge(atom, "_GasteigerHCharge"))
    for bond in molecule.GetBonds():
        if place := _STEREO_PLACES.get(int(bond.GetStereo())):
            others[[bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()], place] = 1
    for atom in molecule.GetAtoms():
        others[_opposite_ligands(chem, molecule, atom), 3] = 1
    features[np.arange(n)[:, None], np.array(places) + _PLACES[:4]] = 1
    for ring in molecule.GetRingInfo().AtomRings():
        others[list(ring), 0] = 1
        if len(ring) in _RINGS:
            features[list(ring), _PLACES[4] + _RINGS.index(len(ring))] = 1
    for pattern, place in ((Lipinski.HDonorSmarts, 4), (Lipinski.HAcceptorSmarts, 5)):
        for match in molecule.GetSubstructMatches(pattern):
            others[list(match), place] = 1
    others[:, 8:10] = added[:, :2] / (1, 5)
    others[:, 10] = np.array(list(rdMolDescriptors._CalcTPSAContribs(molecule))) / 20
    others[:, 11] = added[:, 2] / 10
    return features.astype(np.float32)


def _chirality(chem: Any, molecule: Any) -> list[dict[str, float]]:
    """For each atom, 1 at R or S, or nothing.

    rdkit's old labels leave out centres that depend on each other, as of 1,4-dimethylcyclohexane. These have the new
    ones (r counts as R, s as S), and 1 / distance in bonds for each other one of the same label: of inositols, the
    places of the labels differ, and not their number. Hanson et al. 2018.
    """
    atoms = [*molecule.GetAtoms()]
    found = [{atom.GetProp("_CIPCode"): 1.0} if atom.HasProp("_CIPCode") else {} for atom in atoms]
    tetrahedral = (chem.CHI_TETRAHEDRAL_CW, chem.CHI_TETRAHEDRAL_CCW)
    left = [
        i for i, atom in enumerate(atoms) if not found[i] and atom.GetChiralTag() in tetrahedral
    ]
    if not left:
        return found
    from rdkit.Chem import rdCIPLabeler

    copy = chem.Mol(molecule)
    try:
        rdCIPLabeler.AssignCIPLabels(copy, maxRecursiveIterations=MAX_CIP_STEPS)
    except RuntimeError:
        warnings.warn("R and S of a molecule take too many steps; some are left out", stacklevel=2)
    new = {}
    for i in left:
        atom = copy.GetAtomWithIdx(i)
        if atom.HasProp("_CIPCode"):
            new[i] = atom.GetProp("_CIPCode")
    distances = chem.GetDistanceMatrix(copy)
    for i, label in new.items():
        alike = [distances[i, j] for j in new if j != i and new[j] == label]
        found[i] = {label.upper(): 1 + sum(1 / distance for distance in alike)}
    return found


def _opposite_ligands(chem: Any, molecule: Any, atom: Any) -> list[int]:
    """The ligand of a square-planar atom of the highest rank and the one opposite to it; none of other atoms."""
    if not atom.HasProp("_chiralPermutation"):
        return []
    permutation = atom.GetIntProp("_chiralPermutation")
    ligands = [bond.GetOtherAtomIdx(atom.GetIdx()) for bond in atom.GetBonds()]
    is_planar = atom.GetChiralTag() == chem.ChiralType.CHI_SQUAREPLANAR
    if not is_planar or len(ligands) != 4 or permutation not in _OPPOSITE_TO_FIRST:
        warnings.warn(LOST_STEREO, stacklevel=2)
        return []
    ranks = chem.CanonicalRankAtoms(molecule, breakTies=False, includeChirality=False)
    one = [ligands[0], ligands[_OPPOSITE_TO_FIRST[permutation]]]
    other = [ligand for ligand in ligands if ligand not in one]
    return max(one, other, key=lambda pair: sorted((ranks[i] for i in pair), reverse=True))


def _charge(atom: Any, name: str) -> float:
    charge = atom.GetDoubleProp(name)
    return charge if isfinite(charge) else 0.0
