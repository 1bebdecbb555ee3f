"""`seqkit fit FILE`: the recipe that fits is said with the whole command, and run."""

import csv
import json
import shlex
import wave
from argparse import Namespace

import numpy as np
import pytest
from PIL import Image

from seqkit.cli.guess import take_data_as_recipe
from seqkit.cli.main import main
from seqkit.config import complete
from seqkit.errors import DataError, UsageError


def photos(folder):
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for i in range(12):
            pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")


def letters(folder):
    for name in ("notice", "poem"):
        (folder / name).mkdir(parents=True)
        for i in range(12):
            (folder / name / f"{i}.txt").write_text(f"a {name} of {i} words", encoding="utf-8")


def chapters(folder):
    """Folders that name no classes: splits, and a folder of one text."""
    for name in ("train/1.txt", "train/2.txt", "test/1.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("to be or not to be " * 50, encoding="utf-8")


def recordings(folder):
    for name in ("yes", "no"):
        (folder / name).mkdir(parents=True)
        with wave.open(str(folder / name / "0.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(bytes(4000))


def table(head, *rows):
    return lambda path: path.write_text("\n".join([head, *(row for _ in range(20) for row in rows)]), encoding="utf-8")


CASES = {
    "notes.txt": (lambda path: path.write_text("to be or not to be " * 50, encoding="utf-8"), "text/char-lm", []),
    "letters": (letters, "text/classify", []),
    "chapters": (chapters, "text/char-lm", []),
    "my photos": (photos, "image/classify", []),
    "recordings": (recordings, "audio/classify", []),
    "molecules.csv": (table("smiles,solubility", "CCO,1.5", "CCCO,2.5", "CO,0.25"), "graph/molecules", []),
    "reviews.csv": (table("text,label", "good and fine,yes", "bad or worse,no"), "text/classify", []),
    "ratings.csv": (
        table("text,score", "good and fine,1.5", "bad or worse,2.75"),
        "text/classify",
        ["--model.objective"],
    ),
    "pairs.tsv": (
        lambda path: path.write_text(
            "source\ttarget\n" + "".join(f"one {i} two\tzwei {i} eins\n" for i in range(40)), "utf-8"
        ),
        "text/translate",
        [],
    ),
    "tags.jsonl": (
        lambda path: path.write_text(
            "\n".join([json.dumps({"tokens": ["a", "cat"], "tags": ["D", "N"]})] * 20), "utf-8"
        ),
        "text/tag",
        [],
    ),
    "patients.csv": (
        table("age,crp,city,readmitted", "69,7.25,Rome,yes", "47,3.5,Oslo,no"),
        "multimodal/classify",
        ["--data.target=readmitted"],
    ),
    "ages.csv": (table("age,crp,city", "69,7.25,Rome", "47,3.5,Oslo"), "multimodal/regress", ["--data.target=age"]),
    "notes.csv": (
        table("note,other,verdict", "good and fine,1.5,yes", "bad or worse,2.5,no"),
        "text/classify",
        ["--data.input=note", "--data.target=verdict"],
    ),
    "beats.jsonl": (
        lambda path: path.write_text(
            "\n".join(json.dumps({"beats": [i % 7, 1, 2.5], "label": "ab"[i % 2]}) for i in range(30)), "utf-8"
        ),
        "own/classify",
        ["--tokenizer"],
    ),
    "edges.csv": (table("source,target", "a,b", "b,c"), "graph/nodes", []),
}


@pytest.mark.parametrize("name", CASES)
def test_the_recipe_that_fits_is_said_with_the_whole_command(tmp_path, monkeypatch, capsys, name):
    write, recipe, words = CASES[name]
    monkeypatch.chdir(tmp_path)
    write(tmp_path / name)
    given = [word for word in words if word.startswith("--data.")]
    words = [word for word in words if word not in given]
    args = Namespace(command="fit", recipe=name, preset="debug", overrides=[*given, "--seed=3"])
    take_data_as_recipe(args)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    command = shlex.split(said.partition("this runs: ")[2])
    assert command[:7] == ["seqkit", "fit", recipe, "--preset", "debug", "--data", name]
    assert command[-2:] == ["--seed", "3"]
    assert [word for word in command[7:-2] if word.startswith("--")] == [
        *words, *(word.partition("=")[0] for word in given)
    ]  # fmt: skip
    config = complete(args.recipe, args.preset, args.overrides)
    assert config == complete(recipe, "debug", command[5:])
    assert config["recipe"] == recipe


def test_it_runs(tmp_path, monkeypatch, capsys):
    CASES["reviews.csv"][0](tmp_path / "reviews.csv")
    monkeypatch.chdir(tmp_path)
    words = ["--preset", "debug", "--trainer.enable_progress_bar", "false", "--out", "run"]
    assert main(["fit", "reviews.csv", *words]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["recipe"] == "text/classify"
    assert "seqkit fit text/classify --preset debug --data reviews.csv" in capsys.readouterr().err


def test_a_target_that_is_not_named_and_a_folder_that_exists_are_refused_at_once(tmp_path, monkeypatch, capsys):
    CASES["patients.csv"][0](tmp_path / "patients.csv")
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "patients.csv"]) == 3
    assert "'city', 'readmitted'" in capsys.readouterr().err
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("words", encoding="utf-8")
    assert main(["fit", "patients.csv", "--out", "run"]) == 2, "before the table is read"
    assert "run exists already" in capsys.readouterr().err


def test_a_run_is_no_data_and_two_data_are_refused(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 1", encoding="utf-8")
    args = Namespace(command="fit", recipe=str(tmp_path), preset=None, overrides=[])
    take_data_as_recipe(args)
    assert args.recipe == str(tmp_path)
    (tmp_path / "notes.txt").write_text("words", encoding="utf-8")
    with pytest.raises(UsageError, match="--data"):
        take_data_as_recipe(Namespace(command="fit", recipe=str(tmp_path / "notes.txt"), overrides=["--data=x"]))
    (tmp_path / "a.bin").write_bytes(bytes(9))
    with pytest.raises(UsageError, match=r"a\.bin"):
        take_data_as_recipe(Namespace(command="fit", recipe=str(tmp_path / "a.bin"), overrides=[]))


CUSTOMERS = {
    "a remark: free": ("it took very long to get an answer", "they were quick and very friendly"),
    "age": (31, 47),
    "spent": ("12.5", "7.25"),
    "class": ("leaves", "stays"),
}


def customers(path, **more):
    columns = CUSTOMERS | more
    rows = [
        {name: f"{cells[i % 2]} {i}" if "remark" in name else cells[i % 2] for name, cells in columns.items()}
        for i in range(40)
    ]
    rows[3]["a remark: free"] = ""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(columns), delimiter=";")
        table.writeheader()
        table.writerows(rows)


def guessed(path, *words):
    args = Namespace(command="fit", recipe=str(path), preset="debug", overrides=[*words])
    take_data_as_recipe(args)
    return args


def test_columns_beside_a_text_are_learned_from_too_and_the_command_for_the_text_alone_is_said(tmp_path, capsys):
    path = tmp_path / "my customers.csv"
    customers(path)
    assert guessed(path, "--data.separator=;").recipe == "multimodal/classify"
    alone = capsys.readouterr().err.partition("; for the text alone: ")[2].partition("; this runs: ")[0]
    words = shlex.split(alone)
    assert words[:3] == ["seqkit", "fit", "text/classify"]
    source = complete("text/classify", "debug", words[3:])["data"]["source"]
    assert (source["path"], source["input"], source["target"]) == (str(path), "a remark: free", "class")
    assert source["separator"] == ";"
    customers(path, age=("", ""), spent=("x", "x"))
    assert guessed(path).recipe == "text/classify", "no other column holds anything to learn from"


def test_an_unclear_column_beside_a_text_is_refused_and_not_left_out(tmp_path):
    """Before, the table went to text/classify, without a word on seven columns that hold numbers and dates."""
    path = tmp_path / "customers.csv"
    customers(path, spent=("666,29", "71,3"))
    with pytest.raises(DataError, match=r"666,29.*seqkit fit text/classify --da"):
        guessed(path)
