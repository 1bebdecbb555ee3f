"""`seqkit predict`: many files at once, in three formats, by a program that loads no more than it needs."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from pyarrow import parquet

import seqkit
from seqkit.cli.main import main
from seqkit.data import read_image
from seqkit.interfaces import TokenBatch
from seqkit.runs.answers import BATCH_SIZE, hidden_states
from seqkit.runs.mixture import load

PREDICT = """
import sys
from seqkit.cli.main import main
code = main(["predict", *sys.argv[1:]])
heavy = {"torch", "pytorch_lightning", "lightning_fabric", "torchmetrics", "torchvision"}
print(code, *sorted(heavy & set(sys.modules)))
"""
QUICK = {"trainer.enable_progress_bar": False, "trainer.accelerator": "cpu"}
NUM = BATCH_SIZE + 5
BAD = 3


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run on digits."""
    return seqkit.fit(
        "image/digits", QUICK, preset="debug", out=tmp_path_factory.mktemp("digits") / "run"
    ).folder


@pytest.fixture(scope="module")
def tags(tmp_path_factory):
    """The folder of a run that gives each word a class."""
    place = tmp_path_factory.mktemp("tags")
    rows = [
        {"tokens": ["a", "cat", "sat"][: 2 + i % 2], "tags": ["D", "N", "V"][: 2 + i % 2]}
        for i in range(20)
    ]
    (place / "tags.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    given = {**QUICK, "data": str(place / "tags.jsonl")}
    return seqkit.fit("text/tag", given, preset="debug", out=place / "run").folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of more images than a batch, of which one is damaged, beside a table that is none."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(NUM):
        pixels = np.random.default_rng(i).integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
    (folder / f"{BAD:02}.png").write_bytes(b"no picture")
    (folder / "labels.csv").write_text("a,b\n", encoding="utf-8")
    return folder


def expected(run, photos):
    """What the model says of each good image, one at a time."""
    trained = load(run)
    good = [i for i in range(NUM) if i != BAD]
    return {i: trained.predict([read_image(photos / f"{i:02}.png", channels=1)])[0] for i in good}


@pytest.mark.slow
def test_a_file_gets_its_prediction_without_lightning(run, tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "x.png")
    command = [sys.executable, "-c", PREDICT, str(run), str(tmp_path / "x.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (name, prediction), (modules,) = (line.split("\t") for line in done.stdout.splitlines())
    answer = load(run).predict([read_image(tmp_path / "x.png", channels=1)])
    assert (name, prediction) == (str(tmp_path / "x.png"), str(answer[0]))
    assert modules == "0 torch"


def test_one_bad_file_among_many_is_an_entry_with_its_reason_and_the_others_are_as_by_themselves(
    run, photos, capsys
):
    assert main(["predict", str(run), str(photos)]) == 3
    out, error = capsys.readouterr()
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[0] for line in lines] == [str(photos / f"{i:02}.png") for i in range(NUM)]
    right = expected(run, photos)
    for i, (_, prediction, *more) in enumerate(lines):
        if i == BAD:
            assert prediction == ""
            assert more[0].startswith("error: ")
            assert "cannot be read as an image" in more[0]
        else:
            assert (prediction, more) == (str(right[i]), [])
    assert f"1 of {NUM} inputs could not be used" in error
    assert "1 of 38 files are skipped (.csv: 1)" in error


def test_one_input_without_an_answer_is_an_error_alone_and_several_are_entries_too(run, capsys):
    assert main(["predict", str(run), "gone.png"]) == 3
    out, error = capsys.readouterr()
    assert out == ""
    assert "'gone.png' is no file" in error
    assert main(["predict", str(run), "gone.png", "lost.png"]) == 3
    out, error = capsys.readouterr()
    assert [line.partition("\terror: ")[0] for line in out.splitlines()] == [
        "gone.png\t",
        "lost.png\t",
    ]
    assert "2 of 2 inputs" in error


def test_csv_and_json_lines_hold_the_same_answers_and_probabilities(run, photos, tmp_path):
    pattern = str(photos / "0*.png")
    for name in ("all.csv", "all.jsonl"):
        assert (
            main(["predict", str(run), pattern, "--probabilities", "--out", str(tmp_path / name)])
            == 3
        )
    with (tmp_path / "all.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    entries = [
        json.loads(line)
        for line in (tmp_path / "all.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert len(rows) == len(entries) == 10
    for i, (row, entry) in enumerate(zip(rows, entries)):
        assert None not in row.values(), "a failed row has as many cells as the others"
        assert row["name"] == entry["name"]
        if i == BAD:
            assert row["error"] == entry["error"]
            assert (row["prediction"], entry["prediction"]) == ("", None)
            continue
        shares = {
            c.removeprefix("probability of "): float(row[c])
            for c in row
            if c.startswith("probability of ")
        }
        assert list(shares.values()) == [entry[f"probability of {c}"] for c in shares]
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert max(shares, key=shares.get) == row["prediction"] == entry["prediction"]
    # no part is left
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.csv", "all.jsonl"]


def test_each_word_has_its_probabilities_and_none_are_of_padding(tags, capsys):
    given = ["predict", str(tags), "a cat", "a cat sat", "--probabilities", "--format"]
    assert main([*given, "jsonl"]) == 0
    for entry, words in zip(map(json.loads, capsys.readouterr().out.splitlines()), (2, 3)):
        shares = {tag: entry[f"probability of {tag}"] for tag in "DNV"}
        assert [len(entry["prediction"]), *map(len, shares.values())] == [words] * 4
        assert [max("DNV", key=lambda tag, i=i: shares[tag][i]) for i in range(words)] == entry[
            "prediction"
        ]
    assert main([*given, "csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert [len(json.loads(row[4])) for row in rows[1:]] == [2, 3]
    assert main([*given, "tsv"]) == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out), delimiter="\t")) == rows


def test_lines_of_standard_input_are_files_where_they_name_images(run, photos, monkeypatch, capsys):
    lines = f"{photos / '00.png'}\n\n{photos / '01.png'}\n".encode() + b"\xff\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main(["predict", str(run), "-"]) == 3
    out, error = capsys.readouterr()
    right = expected(run, photos)
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[1] for line in lines] == [str(right[0]), "", str(right[1]), ""]
    assert "line 2 is blank (2 of 4 inputs" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.png", "--format", "xml"], "--format is 'xml'"),
        (["x.png", "--input", "body"], "--input body"),
        (
            ["--input", "a fine film"],
            "give an example itself without --input: seqkit predict {run} 'a fine film'",
        ),
        ([], "give inputs: files, folders, tables, texts, SMILES"),
        (["x.png", "--embed", "--probabilities"], "leave out --probabilities"),
        (["x.png", "--out", "nowhere/x.csv"], "nowhere/x.csv"),
        (["x.png", "--embed", "--out", "v.npz"], "v.npz has a suffix of another format"),
    ],
)
def test_what_contradicts_itself_is_refused(run, words, message, capsys):
    try:
        code = main(["predict", str(run), *words])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert message.format(run=run) in capsys.readouterr().err


def test_vectors_are_the_pooled_hidden_states_of_each_example_alone(run, photos, tmp_path):
    out = tmp_path / "vectors.parquet"
    assert main(["predict", str(run), str(photos), "--embed", "--out", str(out)]) == 3
    trained = load(run)
    good = [i for i in range(NUM) if i != BAD]
    encoded = [
        trained.tokenizer.encode(read_image(photos / f"{i:02}.png", channels=1)) for i in good
    ]
    with torch.inference_mode():
        right = [
            hidden_states(trained.model, TokenBatch.collate([one]))[0].mean(dim=0)
            for one in encoded
        ]
        # what the head makes of them is the prediction
        head = trained.model.head.linear(torch.stack(right))
        together = trained.model(TokenBatch.collate(encoded))
    torch.testing.assert_close(head, together, atol=1e-5, rtol=1e-5)
    assert str(parquet.read_schema(out).field("vector").type.value_type) == "float"  # float32
    rows = parquet.read_table(out).to_pylist()
    assert rows[BAD]["vector"] is None
    assert "cannot be read" in rows[BAD]["error"]
    names, values = zip(*((row["name"], row["vector"]) for row in rows if row["vector"]))
    assert list(names) == [str(photos / f"{i:02}.png") for i in good]
    np.testing.assert_allclose(values, torch.stack(right), atol=1e-5)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """The folder of a run on two cliques, of which some nodes have a class, and its file."""
    place = tmp_path_factory.mktemp("nodes")
    lines = [
        "source,target",
        *(f"n{k}{i},n{k}{j}" for k in range(2) for i in range(9) for j in range(i)),
    ]
    (place / "edges.csv").write_text("\n".join([*lines, "n00,n10"]), encoding="utf-8")
    rows = [f"n{k}{i},{i / 9},{'ab'[k] if i < 7 else ''}" for k in range(2) for i in range(9)]
    (place / "nodes.csv").write_text("\n".join(["id,x,label", *rows]), encoding="utf-8")
    keys = {**QUICK, "data": str(place), "trainer.max_epochs": 2}
    return seqkit.fit("graph/nodes", keys, out=place / "run", classical="off").folder


def test_each_node_of_a_graph_has_its_answer_labelled_or_not(nodes, tmp_path, capsys):
    assert (
        main(["predict", str(nodes), str(nodes.parent), "--format", "csv", "--probabilities"]) == 0
    )
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["name"] for row in rows] == [f"n{k}{i}" for k in range(2) for i in range(9)]
    for row in rows:
        shares = {name: float(row[f"probability of {name}"]) for name in "ab"}
        assert row["prediction"] == max(shares, key=shares.__getitem__)
        assert sum(shares.values()) == pytest.approx(1, abs=2e-6)  # six digits each
    assert (
        main(
            [
                "predict",
                str(nodes),
                str(nodes.parent),
                "--embed",
                "--out",
                str(tmp_path / "nodes.parquet"),
            ]
        )
        == 0
    )
    found = parquet.read_table(tmp_path / "nodes.parquet").to_pylist()
    assert [one["name"] for one in found] == [row["name"] for row in rows]
    assert {len(one["vector"]) for one in found} == {load(nodes).config["model"]["backbone"]["dim"]}


def test_a_graph_whose_features_mean_something_else_is_refused(nodes, tmp_path, capsys):
    other = tmp_path / "other"
    other.mkdir()
    for name in ("edges.csv", "nodes.csv"):
        (other / name).write_bytes((nodes.parent / name).read_bytes())
    assert main(["predict", str(nodes), str(other)]) == 3
    assert "another file" in capsys.readouterr().err
    table = nodes.parent / "nodes.csv"
    before = table.read_bytes()
    try:
        table.write_bytes(before.replace(b"n00,0.0,", b"n00,7.5,"))
        assert main(["predict", str(nodes), str(nodes.parent)]) == 3
        assert "has changed" in capsys.readouterr().err
    finally:
        table.write_bytes(before)


def test_numbers_that_stand_in_the_file_mean_the_same_in_another(tmp_path, capsys):
    rng = np.random.default_rng(0)
    edges = np.stack([rng.integers(0, 20, 40), rng.integers(0, 20, 40)])
    x, y = rng.normal(size=(20, 3)).astype(np.float32), np.arange(20) % 2
    np.savez(tmp_path / "one.npz", x=x, edge_index=edges, y=y)
    np.savez(tmp_path / "other.npz", x=x, edge_index=edges)
    keys = {
        **QUICK,
        "data": str(tmp_path / "one.npz"),
        "data.eigenvectors": 0,
        "trainer.max_epochs": 2,
    }
    folder = seqkit.fit("graph/nodes", keys, out=tmp_path / "run", classical="off").folder
    said = []
    for name in ("one", "other"):
        assert main(["predict", str(folder), str(tmp_path / f"{name}.npz")]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[0].startswith("0\t")
    assert said[0].count("\n") == 20


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_fault(run, photos):
    command = f"{sys.executable} -m seqkit predict {run} {' '.join([str(photos / '00.png')] * 900)} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert done.returncode == 141


def test_several_targets_have_their_names(tmp_path, capsys):
    lines = [f"{'C' * (i % 7 + 1)}O,{i % 7},{-0.1 * i}" for i in range(30)]
    (tmp_path / "mine.csv").write_text("\n".join(["smiles,length,other", *lines]), encoding="utf-8")
    keys = {
        **QUICK,
        "data": str(tmp_path / "mine.csv"),
        "data.target": ["length", "other"],
        "trainer.max_epochs": 1,
    }
    folder = seqkit.fit("graph/molecules", keys, preset="debug", out=tmp_path / "run").folder
    assert main(["predict", str(folder), "CCO", "--format", "jsonl"]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert list(entry) == ["name", "length", "other", "error", "warning"]
    assert main(["predict", str(folder), "CCO", "--format", "csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [float(row[name]) for name in ("length", "other")] == [entry["length"], entry["other"]]
    assert [repr(entry[name]) for name in ("length", "other")] == [row["length"], row["other"]]
    assert list(load(folder).predict(["CCO"])[0]) == [entry["length"], entry["other"]]
    assert main(["predict", str(folder), "CCO"]) == 0
    assert capsys.readouterr().out == f"CCO\tlength {entry['length']}\tother {entry['other']}\n"


@pytest.fixture(scope="module")
def molecules(tmp_path_factory):
    """A table of molecules with an id, a class, three labels and a number, and runs that learned them."""
    place = tmp_path_factory.mktemp("molecules")
    rows = []
    for i in range(40):
        molecule, verdict = "C" * (i % 9 + 1) + "NOF"[i % 3], "bad" if i % 3 else "good"
        rows.append(
            f"m{i},{molecule},{verdict},{i % 2},{i % 3 and 1},{'' if i % 5 else 1 - i % 2},{i}.5"
        )
    table = place / "own.csv"
    table.write_text(
        "id,smiles,verdict,toxic,irritant,herg,name\n" + "".join(f"{row}\n" for row in rows)
    )
    given = {**QUICK, "data": str(table), "data.batch_size": 7, "trainer.max_steps": 4}

    def fit(name, **more):
        keys = {key.replace("__", "."): value for key, value in more.items()}
        return seqkit.fit(
            "graph/molecules", {**given, **keys}, out=place / name, classical="off"
        ).folder

    labels = fit(
        "labels", model__objective="MultiLabel", data__target=["toxic", "irritant", "herg"]
    )
    return (
        table,
        fit(
            "classes", data__target="verdict", model__objective={"type": "Classify", "pool": "mean"}
        ),
        labels,
        fit("numbers", data__target=["name", "toxic"], data__target_kind="numbers"),
    )


def read(capsys, *words):
    assert main(["predict", *map(str, words), "--format", "csv"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


@pytest.mark.slow
def test_columns_of_the_table_are_kept_beside_its_predictions(molecules, capsys):
    table, run, _, _ = molecules
    rows = read(capsys, run, table, "--keep", "id,name")
    assert list(rows[0]) == ["name", "id", "name of the input", "prediction", "error", "warning"]
    assert [row["id"] for row in rows] == [f"m{i}" for i in range(40)]
    assert [row["name of the input"] for row in rows] == [f"{i}.5" for i in range(40)]
    assert [row["name"] for row in rows] == [f"{table}, line {i + 2}" for i in range(40)]
    assert (
        main(
            ["predict", str(run), str(table), "--keep", "id", "--keep", "herg", "--format", "jsonl"]
        )
        == 0
    )
    first = json.loads(capsys.readouterr().out.splitlines()[1])
    assert list(first) == ["name", "id", "herg", "prediction", "error", "warning"]
    assert (first["id"], first["herg"]) == ("m1", "")
    assert main(["predict", str(run), str(table), "--keep", "id"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split("\t")[:2] == [f"{table}, line 4", "id m2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["CCO", "--keep", "id"], "CCO"),
        (["{table}", "--keep", "ident"], "'ident'; there are: herg, id"),
        (["{table}", "--test"], "leave out inputs"),
        (["--test", "--keep", "id"], "--keep"),
    ],
)
def test_what_cannot_be_kept_is_said(molecules, words, message, capsys):
    table, run, _, _ = molecules
    assert main(["predict", str(run), *(word.format(table=table) for word in words)]) in (2, 3)
    assert message in capsys.readouterr().err


def test_the_predictions_of_the_test_split_give_the_accuracy_of_the_run(molecules, capsys):
    table, run, _, _ = molecules
    rows = read(capsys, run, "--test")
    trained = load(run)
    assert list(rows[0]) == ["name", "target", "prediction", "error", "warning"]
    assert len(rows) == trained.summary["num_test"]
    verdicts = {f"{table}, line {i + 2}": "bad" if i % 3 else "good" for i in range(40)}
    assert all(row["target"] == verdicts[row["name"]] for row in rows)
    hits = sum(row["target"] == row["prediction"] for row in rows)
    assert hits / len(rows) == pytest.approx(trained.summary["metrics"]["accuracy"])


def test_labels_and_numbers_of_the_test_split_have_the_names_of_their_columns(molecules, capsys):
    _, _, labels, numbers = molecules
    assert load(labels).objective.label_names == ["toxic", "irritant", "herg"]
    names = ["toxic", "irritant", "herg"]
    rows = read(capsys, labels, "--test")
    assert list(rows[0]) == [
        "name",
        *(f"{name} target" for name in names),
        *names,
        "error",
        "warning",
    ]
    assert {row[f"{name} target"] for row in rows for name in names} == {"0", "1", ""}
    assert read(capsys, labels, "--test", "--probabilities") == rows, "they are the predictions"
    rows, names = read(capsys, numbers, "--test"), {"name": "predicted name", "toxic": "toxic"}
    errors = [
        (float(row[f"{key} target"]) - float(row[name])) ** 2
        for row in rows
        for key, name in names.items()
    ]
    assert (sum(errors) / len(errors)) ** 0.5 == pytest.approx(
        load(numbers).summary["metrics"]["rmse"], rel=1e-4
    )


def test_the_tags_of_the_test_split_are_beside_the_predicted_ones(tags, capsys):
    rows = read(capsys, tags, "--test")
    assert all(len(json.loads(row["target"])) == len(json.loads(row["prediction"])) for row in rows)
    assert {tag for row in rows for tag in json.loads(row["target"])} == {"D", "N", "V"}
