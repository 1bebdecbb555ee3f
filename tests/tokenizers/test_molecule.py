"""Molecules: contributions sum to rdkit's properties, hops are bond distances, permuting atoms permutes tokens."""

import sys

import pytest
import torch
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.tokenizers import Molecule, ShortestPath, molecule
from seqkit.tokenizers.molecule import ELEMENTS

pytest.importorskip("rdkit")
from rdkit import Chem
from rdkit.Chem import Crippen, rdMolDescriptors

SMILES = [
    "CC(=O)Oc1ccccc1C(=O)O",
    "C[C@H](N)C(=O)O",
    "[Na+].[O-]C(=O)c1ccncc1",
    "C#CCN(C)S(=O)(=O)C1CC1",
    "O",
    "Clc1ccc2c(c1)Oc1cc(Br)ccc1O2",
]


def column(tokens, name):
    return tokens.content[:, Molecule().feature_names.index(name)]


@pytest.mark.parametrize("smiles", SMILES)
def test_contributions_sum_to_the_properties_of_the_whole(smiles):
    molecule, tokens = Chem.MolFromSmiles(smiles), Molecule().encode(smiles)
    Molecule().spec.check(tokens)
    for name, scale, whole in (
        ("logP", 1, Crippen.MolLogP(molecule)),
        ("refraction / 5", 5, Crippen.MolMR(molecule)),
        ("polar surface / 20", 20, rdMolDescriptors.CalcTPSA(molecule)),
        ("formal charge", 1, Chem.GetFormalCharge(molecule)),
    ):
        assert float(column(tokens, name).sum() * scale) == pytest.approx(whole, abs=1e-3)


def test_surface_sums_to_labutes():
    for smiles in SMILES:
        molecule = Chem.AddHs(Chem.MolFromSmiles(smiles))
        total = float(column(Molecule().encode(smiles), "surface / 10").sum() * 10)
        assert total == pytest.approx(
            sum(rdMolDescriptors._CalcLabuteASAContribs(molecule)[0]), abs=1e-3
        )


def test_partial_charges_sum_to_the_charge_of_an_organic_molecule():
    for smiles in ("CC(=O)Oc1ccccc1C(=O)O", "CCO", "C[NH3+]"):
        tokens = Molecule().encode(smiles)
        total = (
            column(tokens, "partial charge").sum()
            + column(tokens, "partial charge of hydrogens").sum()
        )
        assert float(total) == pytest.approx(
            Chem.GetFormalCharge(Chem.MolFromSmiles(smiles)), abs=0.02
        )


@pytest.mark.parametrize("smiles", SMILES)
def test_edge_types_are_bonds_and_then_distances(smiles):
    molecule, tokens = (
        Chem.MolFromSmiles(smiles),
        Molecule(encodings=[ShortestPath(max_hops=4, unreachable=False)]).encode(smiles),
    )
    distance = Chem.GetDistanceMatrix(molecule)
    got = {
        (i, j): k
        for i, j, k in zip(
            *tokens.adjacency.edge_index.tolist(), tokens.adjacency.edge_type.tolist()
        )
    }
    bonds = {1.0: 1, 2.0: 2, 3.0: 3, 1.5: 4}
    expected = {}
    for i in range(len(tokens)):
        for j in range(len(tokens)):
            if distance[i, j] == 1:
                expected[i, j] = bonds[molecule.GetBondBetweenAtoms(i, j).GetBondTypeAsDouble()]
            elif 1 < distance[i, j] < 1000:  # rdkit's distance between fragments is 1e8
                expected[i, j] = 4 + min(int(distance[i, j]), 4)
    assert got == expected


@pytest.mark.parametrize("smiles", SMILES)
def test_permuting_the_atoms_permutes_content_and_adjacency(smiles):
    molecule, tokenizer = Chem.MolFromSmiles(smiles), Molecule()
    n = molecule.GetNumAtoms()
    # the old atom at each new place
    order = torch.randperm(n, generator=torch.Generator().manual_seed(5)).tolist()
    before, after = (
        tokenizer.encode(molecule),
        tokenizer.encode(Chem.RenumberAtoms(molecule, order)),
    )
    assert_close(after.content, before.content[order])
    old = {
        (i, j): k
        for i, j, k in zip(
            *before.adjacency.edge_index.tolist(), before.adjacency.edge_type.tolist()
        )
    }
    new = {
        (order[i], order[j]): k
        for i, j, k in zip(*after.adjacency.edge_index.tolist(), after.adjacency.edge_type.tolist())
    }
    assert new == old


def test_smiles_and_molecule_are_the_same_tokens_and_the_molecule_is_not_changed():
    for smiles in SMILES:
        molecule = Chem.MolFromSmiles(smiles)
        assert_close(Molecule().encode(molecule).content, Molecule().encode(smiles).content)
        assert not molecule.GetAtomWithIdx(0).HasProp("_GasteigerCharge")


def test_enantiomers_differ_in_r_and_s_only():
    left, right = (Molecule().encode(s) for s in ("C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O"))
    differ = [
        name
        for name in Molecule().feature_names
        if not torch.equal(column(left, name), column(right, name))
    ]
    assert differ == ["R or Z", "S or E"]


def test_e_and_z_differ_at_the_atoms_of_the_double_bond_and_without_either_both_are_0():
    for smiles, r_or_z, s_or_e in (("F/C=C/F", 0, 1), ("F/C=C\\F", 1, 0), ("FC=CF", 0, 0)):
        tokens = Molecule().encode(smiles)
        assert column(tokens, "R or Z").tolist() == [0, r_or_z, r_or_z, 0]
        assert column(tokens, "S or E").tolist() == [0, s_or_e, s_or_e, 0]


def sorted_content(smiles):
    content = Molecule().encode(smiles).content
    return sorted(tuple(round(float(x), 4) for x in row) for row in content)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("OC(=O)[C@H]1C[C@@H](C1)C(O)=O", "OC(=O)[C@H]1C[C@H](C1)C(O)=O"),
        ("C[C@@H](F)[C@H](O)[C@H](C)F", "C[C@@H](F)[C@@H](O)[C@H](C)F"),
        ("O[C@H]1[C@H](O)[C@@H](O)[C@H](O)[C@@H](O)[C@@H]1O", "O[C@H]1[C@H](O)[C@H](O)[C@H](O)[C@@H](O)[C@H]1O"),
        ("F[Pd@SP1](F)(Br)Br", "F[Pd@SP2](F)(Br)Br"),
    ],
)  # fmt: skip
def test_centres_that_depend_on_each_other_and_square_planes_tell_isomers(one, other):
    assert sorted_content(one) != sorted_content(other)
    for smiles in (one, other):
        again = Chem.MolToSmiles(Chem.MolFromSmiles(smiles), doRandom=True)
        assert sorted_content(again) == sorted_content(smiles)


@pytest.mark.parametrize("smiles", ["FC=[C@]=CF", "S[As@TB1](F)(Cl)(Br)N"])
def test_stereo_that_is_lost_is_said(smiles):
    with pytest.warns(UserWarning, match="is lost"):
        Molecule().encode(smiles)


def test_a_molecule_of_too_many_atoms_is_refused_before_its_distances_are_computed(monkeypatch):
    monkeypatch.setattr(molecule, "_features", None)
    for smiles, said in (("C" * 2_001, "2,001 atoms"), ("C" * 20_001, "20,001 characters")):
        with pytest.raises(DataError, match=said):
            Molecule().encode(smiles)


def test_features_are_what_their_names_say():
    names = Molecule().feature_names
    assert len(set(names)) == len(names)
    tokens = Molecule().encode("c1ccccc1O")
    assert column(tokens, "element O").tolist() == [0] * 6 + [1]
    assert column(tokens, "in a ring of 6").tolist() == [1] * 6 + [0]
    assert column(tokens, "donates H bonds").tolist() == [0] * 6 + [1]
    assert column(tokens, "1 hydrogens").tolist() == [1] * 5 + [0, 1]
    assert column(tokens, "hybrid sp2").tolist()[:6] == [1] * 6
    assert column(tokens, "3 neighbours").tolist() == [0] * 5 + [1, 0]


@pytest.mark.parametrize("symbol", ELEMENTS)
def test_an_atom_of_each_element_has_the_feature_of_that_name(symbol):
    tokens = Molecule().encode(f"[{symbol}]")
    assert [
        name
        for name in Molecule().feature_names
        if name.startswith("element") and column(tokens, name)
    ] == [f"element {symbol}"]


@pytest.mark.parametrize(
    ("smiles", "name"),
    [("C#N", "sp"), ("C=C", "sp2"), ("CC", "sp3"), ("[PH5]", "other"), ("[H][H]", "other")],
)
def test_an_atom_of_each_hybridisation_has_the_feature_of_that_name(smiles, name):
    tokens = Molecule().encode(smiles)
    of_first = [
        one
        for one in Molecule().feature_names
        if one.startswith("hybrid") and column(tokens, one)[0]
    ]
    assert of_first == [f"hybrid {name}"]


def test_a_bond_of_no_common_type_is_an_edge_of_type_other():
    assert Molecule().encode("[NH3]->[Cu]").adjacency.edge_type.tolist() == [5, 5]


def test_partial_charges_without_gasteiger_parameters_are_zero():
    tokens = Molecule().encode("[Pt](Cl)Cl")
    assert column(tokens, "partial charge").tolist() == [0, 0, 0]
    assert column(tokens, "element other").tolist() == [1, 0, 0]


def test_explicit_hydrogens_are_tokens():
    tokens = Molecule().encode(Chem.AddHs(Chem.MolFromSmiles("CO")))
    assert column(tokens, "element H").tolist() == [0, 0, 1, 1, 1, 1]
    assert float(column(tokens, "logP").sum()) == pytest.approx(
        Crippen.MolLogP(Chem.MolFromSmiles("CO")), abs=1e-3
    )


def test_without_encodings_bonds_are_the_only_edges():
    tokens = Molecule(encodings=[]).encode("CC=O")
    assert sorted(
        zip(*tokens.adjacency.edge_index.tolist(), tokens.adjacency.edge_type.tolist())
    ) == [
        (0, 1, 1),
        (1, 0, 1),
        (1, 2, 2),
        (2, 1, 2),
    ]
    assert Molecule(encodings=[]).spec.num_edge_types == 5


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("n(H)(", r"'n\(H\)\(' is not a valid SMILES"),
        ("C1CC", "'C1CC' is not a valid SMILES"),
        ("C(C)(C)(C)(C)C", "is not a valid SMILES"),
        ("CCO ethanol", "is not a valid SMILES"),
        ("C\ud800", "is not a valid SMILES"),
        ("", "no atoms"),
        (Chem.Mol(), "no atoms"),
        (
            Chem.MolFromSmiles("C(C)(C)(C)(C)C", sanitize=False),
            "rdkit refuses the molecule.*valence",
        ),
        (None, "NoneType is not a molecule"),
    ],
)
def test_bad_molecules_are_refused_with_their_reason_and_nothing_on_stderr(raw, reason, capfd):
    with pytest.raises(DataError, match=reason):
        Molecule().encode(raw)
    assert capfd.readouterr().err == ""


def test_a_missing_rdkit_is_an_error_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(ValueError, match=r'pip install "seqkit\[graph\]"'):
        Molecule()
