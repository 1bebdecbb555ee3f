"""`seqkit predict` and `seqkit embed`: many files at once, in three formats, by a program that loads no more than it
needs."""

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
from seqkit.runs.answers import BATCH_SIZE, embedding
from seqkit.runs.trained_model import load

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
    return seqkit.fit("image/digits", QUICK, preset="debug", out=tmp_path_factory.mktemp("digits") / "run").folder


@pytest.fixture(scope="module")
def tags(tmp_path_factory):
    """The folder of a run that gives each word a class."""
    place = tmp_path_factory.mktemp("tags")
    rows = [{"tokens": ["a", "cat", "sat"][: 2 + i % 2], "tags": ["D", "N", "V"][: 2 + i % 2]} for i in range(20)]
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


def test_a_file_gets_its_prediction_without_lightning(run, tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "x.png")
    command = [sys.executable, "-c", PREDICT, str(run), str(tmp_path / "x.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (name, prediction), (modules,) = (line.split("\t") for line in done.stdout.splitlines())
    answer = load(run).predict([read_image(tmp_path / "x.png", channels=1)])
    assert (name, prediction) == (str(tmp_path / "x.png"), str(answer[0]))
    assert modules == "0 torch"


def test_one_bad_file_among_many_is_an_entry_with_its_reason_and_the_others_are_as_by_themselves(run, photos, capsys):
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


def test_a_command_that_answers_nothing_prints_nothing_but_its_error(run, capsys):
    assert main(["predict", str(run), "gone.png", "lost.png"]) == 3
    out, error = capsys.readouterr()
    assert out == ""
    assert "'gone.png' is no file" in error
    assert "2 of 2 inputs" in error


def test_csv_and_json_lines_hold_the_same_answers_and_probabilities(run, photos, tmp_path):
    pattern = str(photos / "0*.png")
    for name in ("all.csv", "all.jsonl"):
        assert main(["predict", str(run), pattern, "--probabilities", "--out", str(tmp_path / name)]) == 3
    with (tmp_path / "all.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    entries = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len(entries) == 10
    for i, (row, entry) in enumerate(zip(rows, entries)):
        assert row["name"] == entry["name"]
        if i == BAD:
            assert row["error"] == entry["error"]
            assert (row["prediction"], "prediction" in entry) == ("", False)
            continue
        shares = {c: float(row[f"probability of {c}"]) for c in entry["probabilities"]}
        assert shares == entry["probabilities"]
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert max(shares, key=shares.get) == row["prediction"] == entry["prediction"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.csv", "all.jsonl"]  # no part is left


def test_the_top_classes_are_the_likeliest_in_their_order(run, photos, capsys):
    path = str(photos / "00.png")
    assert main(["predict", str(run), path, "--format", "jsonl", "--top", "3"]) == 0
    (entry,) = map(json.loads, capsys.readouterr().out.splitlines())
    trained = load(run)
    image = trained.tokenizer.encode(read_image(path, channels=1))
    with torch.inference_mode():
        shares = trained.model(TokenBatch.collate([image]))[0].softmax(-1)
    best = shares.topk(3)
    assert list(entry["probabilities"]) == [trained.objective.names[i] for i in best.indices]
    assert list(entry["probabilities"].values()) == pytest.approx(best.values.tolist(), abs=1e-6)


def test_each_word_has_its_probabilities_and_none_are_of_padding(tags, capsys):
    given = ["predict", str(tags), "a cat", "a cat sat", "--format", "jsonl", "--top", "1"]
    assert main(given) == 0
    for entry, words in zip(map(json.loads, capsys.readouterr().out.splitlines()), (2, 3)):
        assert len(entry["prediction"]) == len(entry["probabilities"]) == words
        assert [next(iter(word)) for word in entry["probabilities"]] == entry["prediction"]
    assert main([*given[:-4], "--probabilities", "--format", "csv"]) == 0
    _, first, second = csv.reader(io.StringIO(capsys.readouterr().out))
    assert [len(json.loads(row[3])) for row in (first, second)] == [2, 3]


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
        (["x.png", "--top", "0"], "--top 0 counts the classes"),
        (["x.png", "--format", "xml"], "--format is 'xml'"),
        (["x.png", "--input", "body"], "--input body names a column of a table, and none is given"),
        (["x.png", "--out", "nowhere/x.csv"], "is in a folder that does not exist"),
    ],
)
def test_what_contradicts_itself_is_refused(run, words, message, capsys):
    try:
        code = main(["predict", str(run), *words])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_vectors_are_the_pooled_hidden_states_of_each_example_alone(run, photos, tmp_path, suffix):
    out = tmp_path / f"vectors.{suffix}"
    assert main(["embed", str(run), str(photos), "--out", str(out)]) == 3
    trained = load(run)
    good = [i for i in range(NUM) if i != BAD]
    encoded = [trained.tokenizer.encode(read_image(photos / f"{i:02}.png", channels=1)) for i in good]
    with torch.inference_mode():
        right = [embedding(trained.model, TokenBatch.collate([one]))[0] for one in encoded]
        head = trained.model.head.linear(torch.stack(right))  # what the head makes of them is the prediction
        together = trained.model(TokenBatch.collate(encoded))
    torch.testing.assert_close(head, together, atol=1e-5, rtol=1e-5)
    if suffix == "npz":
        found = np.load(out)  # without pickle
        names, values = list(found["names"]), found["vectors"]
        assert list(found["failed"]) == [str(photos / f"{BAD:02}.png")]
        assert "cannot be read" in found["errors"][0]
    else:
        rows = parquet.read_table(out).to_pylist()
        assert rows[BAD]["vector"] is None
        assert "cannot be read" in rows[BAD]["error"]
        names, values = zip(*((row["name"], row["vector"]) for row in rows if row["vector"]))
    assert list(names) == [str(photos / f"{i:02}.png") for i in good]
    np.testing.assert_allclose(values, torch.stack(right), atol=1e-5)


def test_vectors_go_to_a_file_of_a_known_format_alone(run, tmp_path, capsys):
    assert main(["embed", str(run), "x.png", "--out", str(tmp_path / "v.csv")]) == 2
    assert ".parquet or .npz" in capsys.readouterr().err
