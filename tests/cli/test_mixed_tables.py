"""An own table of mixed columns: learned by one command, and asked for rows with gaps and for single examples."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

import seqkit
from seqkit.cli.main import main
from seqkit.data.inputs import first_input
from seqkit.errors import DataError
from seqkit.files import read_mapping
from seqkit.report.page import write_report
from seqkit.runs.trained_model import load_one
from seqkit.serve.inputs import InputReader
from seqkit.serve.limits import Limits

RECIPE = {
    "recipe": "mine",
    "tokenizer": {
        "type": "Join",
        "parts": {"text": "Bytes", "image": {"type": "Patches", "patch": 4, "channels": 3}, "cells": "Cells"},
    },
    "model": {
        "objective": {"type": "Classify", "pool": "parts"},
        "backbone": {"type": "Transformer", "dim": 16, "depth": 1, "num_heads": 2},
    },
    "schedule": {"type": "Cosine", "warmup_steps": 2},
    "trainer": {"max_epochs": 2},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on a table of texts, images, numbers and categories with gaps, and the folder of its files."""
    folder = tmp_path_factory.mktemp("products")
    rows = []
    for i in range(30):
        Image.fromarray(np.full((8, 8, 3), 8 * i, np.uint8)).save(folder / f"{i}.png")
        row = {
            "a title": f"thing <b>of {i}",
            "photo": f"{i}.png",
            "price": i / 3,
            "size": "SML"[i % 3],
            "y": ["no", "yes"][i % 2],
        }
        row |= {name: "" for j, name in enumerate(row) if j == i % 9 and name != "y"}
        rows.append(row)
    with (folder / "rows.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    keys = {"data": str(folder / "rows.csv"), "trainer.max_steps": 4}
    trained = seqkit.fit(RECIPE, keys, out=folder / "run", strong_baseline=False)
    return trained, folder


def asked(capsys, *words):
    """Exit code, lines and errors of `seqkit predict`."""
    code = main(["predict", *map(str, words), "--device", "cpu"])
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err


def test_the_configuration_says_what_each_column_became(run):
    config = read_mapping(run[1] / "run" / "config.yaml")
    assert config["data"]["source"]["type"] == "MixedTable"
    kinds = {"a title": "text", "photo": "image", "price": "number", "size": "category"}
    assert config["data"]["source"]["columns"] == kinds
    assert config["tokenizer"]["reads"] == {"a_title": "a title", "photo": "photo", "cells": "cells"}


def test_the_report_says_which_columns_matter_and_shows_the_cells_of_wrong_rows(run):
    report = write_report(run[1] / "run").read_text(encoding="utf-8")
    table = report.partition("Which columns matter</h3>")[2].partition("</table>")[0]
    assert all(f"<td>{name}</td>" in table for name in ("a title", "photo", "price", "size"))
    assert "95 % interval" in table
    errors = report.partition("Most confident errors</h3>")[2]
    assert "<tr><th>column</th><th>value</th></tr>" in errors
    assert "<tr><td>price</td><td>" in errors
    assert "<td>thing &lt;b&gt;of " in errors


def test_rows_are_predicted_also_incomplete_ones(run, capsys):
    """A row is predicted from its cells alone: those of one kind are those of the same raw example from Python."""
    trained, folder = run
    new = folder / "new.csv"
    new.write_text(
        "size,a title,price,other\nM,some words,7.5,x\n,only words,,y\nL,,,\n,,,z\n,,many,\n", encoding="utf-8"
    )
    code, lines, said = asked(capsys, folder / "run", new, "--format", "jsonl", "--probabilities")
    found = [json.loads(line) for line in lines]
    assert code == 3
    assert "has no column photo, so these are absent; it has columns that are not used: other" in said
    raws = [
        {"a title": "some words", "cells": {"size": "M", "price": 7.5}},
        {"a title": "only words"},
        {"cells": {"size": "L"}},
    ]
    assert [one["prediction"] for one in found[:3]] == trained.predict(raws)
    assert "none of a title, price, size is filled" in found[3]["error"]
    assert found[4]["error"].endswith("price is 'many', which is no number; correct it, or leave the cell empty")
    assert "do not rely" not in said


def test_what_the_model_does_not_know_is_said(run, capsys, caplog):
    """Categories that training lacks are counted by column; a column of nearly the name of a missing one is named."""
    _, folder = run
    new = folder / "unknown.csv"
    new.write_text("size,Price,a title\nXL,2,x\nXXL,3,y\nM,2,z\nXL,4,\n", encoding="utf-8")
    code, lines, said = asked(capsys, folder / "run", new)
    assert (code, len(lines)) == (0, 4)
    assert "no column photo, price, so these are absent" in said
    assert said.strip().endswith("; it has columns that are not used: Price (did you mean price?)")
    unknown = "categories that are rare or absent in training count as one unknown word: size: "
    assert [record.getMessage() for record in caplog.records] == [f"{unknown}3 ('XL', 'XXL')"]
    caplog.clear()
    asked(capsys, folder / "run", "--input", "size=XL,price=2")
    assert [record.getMessage() for record in caplog.records] == [f"{unknown}1 ('XL')"]
    caplog.clear()
    asked(capsys, folder / "run", "--input", "size=M,price=2")
    assert not caplog.records


def test_one_example_is_given_part_by_part(run, capsys):
    _, folder = run
    photo = folder / "4.png"
    for words in (
        ["--input", f"photo={photo},a_title=words, and more,price=2"],
        [f"a title=words, and more,price=2,photo={photo}"],
        ["--input", json.dumps({"photo": str(photo), "a title": "words, and more", "price": 2})],
    ):
        code, lines, said = asked(capsys, folder / "run", *words, "--format", "jsonl")
        assert code == 0, said
        assert json.loads(lines[0])["prediction"] in ("no", "yes")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--input", "titel=words"], "'titel' is no part of the run's examples; did you mean a title?"),
        (["--input", "photo=missing.png"], "missing.png does not exist"),
        (["--input", "price=cheap"], "price is 'cheap', which is no number"),
        (["--input", "price="], "is filled"),
        (["just words"], "names no part of an example; give a table, or a title=…"),
        (["nothing.csv"], "nothing.csv does not exist"),
        ([], "give inputs: a table, or --input part=value"),
    ],
)
def test_each_mistake_is_answered_in_one_line(run, words, said, capsys):
    code, lines, error = asked(capsys, run[1] / "run", *words)
    assert code != 0
    assert not lines
    assert said in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "what"), [("inspect", "run/config.yaml"), pytest.param("attention", "run", marks=pytest.mark.slow)]
)
def test_one_example_is_drawn_with_the_words_that_predict_takes(command, what, run, tmp_path, capsys):
    _, folder = run

    def drawn(given):
        code = main([command, str(folder / what), "--input", str(given), "--out", str(tmp_path / "view"), "--force"])
        return code, capsys.readouterr()

    code, printed = drawn(f"photo={folder / '4.png'},a title=words, and more,price=2")
    assert code == 0, printed.err
    assert printed.out.strip().endswith({"inspect": ".png", "attention": ".html"}[command])
    if command == "inspect":
        assert [line for line in printed.out.splitlines() if line.startswith("part")] == [
            "part a_title", "part photo", "part cells",
        ]  # fmt: skip
        assert "tokens     15 ids" in printed.out, "the text is the one given, not one of the table"
    else:  # a table gives its first row
        code, printed = drawn(folder / "rows.csv")
        assert code == 0, printed.err
    for given in ("titel=words", "photo=missing.png"):
        code, printed = drawn(given)
        assert (code, len(printed.err.strip().splitlines())) == (3, 1), printed.err
        assert main(["predict", str(folder / "run"), "--input", given]) == 3
        said = capsys.readouterr().err.strip().removeprefix("seqkit predict: ")
        assert said.removeprefix(f"{given}: ") == printed.err.strip().removeprefix(f"seqkit {command}: ")


def test_a_table_without_any_column_of_the_run_is_refused(run, capsys):
    other = run[1] / "other.csv"
    other.write_text("weight,height\n1,2\n", encoding="utf-8")
    code, _, error = asked(capsys, run[1] / "run", other)
    assert code == 3
    assert "has none of the columns of the run (a title, photo, price, size); it has weight, height" in error


def test_vectors_of_rows_are_written(run, tmp_path, capsys):
    assert main(["embed", str(run[1] / "run"), str(run[1] / "rows.csv"), "--out", str(tmp_path / "v.parquet")]) == 0
    assert "30 vectors of 16 numbers" in capsys.readouterr().out


def test_a_run_on_decimal_commas_reads_its_inputs_with_them(tmp_path, capsys):
    """A table, an example of the command line and a request of the server, all by the run's own configuration."""
    rows = [f"{i}{i},{i % 10};1.2{i:02},{i % 5};{'ab'[i % 2]}" for i in range(1, 41)]
    (tmp_path / "rows.csv").write_text("\n".join(["price;worth;y", *rows]), encoding="utf-8")
    with pytest.raises(DataError, match=r"price is '11,1', .*--data\.decimal ,"):
        seqkit.data.MixedTable(str(tmp_path / "rows.csv"), target="y").splits()
    recipe = {**RECIPE, "data": {"source": {"type": "MixedTable", "path": str(tmp_path / "rows.csv"), "decimal": ","}}}
    recipe["tokenizer"] = {"type": "Join", "parts": {"cells": "Cells"}}
    trained = seqkit.fit(recipe, {"data.target": "y"}, out=tmp_path / "run", strong_baseline=False)
    assert trained.config["data"]["source"]["columns"] == {"price": "number", "worth": "number"}
    (tmp_path / "new.csv").write_text("price;worth\n7,5;1.234,5\n7,5;1234,5\n7.5;1\n", encoding="utf-8")
    code, lines, said = asked(capsys, tmp_path / "run", tmp_path / "new.csv", "--format=jsonl", "--probabilities")
    shares = [list(json.loads(line)["probabilities"].values()) for line in lines[:2]]
    assert shares[0] == shares[1]
    assert code == 3
    assert "line 4: price is '7.5', which is no number" in said
    for given in ("price=7,5,worth=1.234,5", '{"price": 7.5, "worth": 1234.5}', '{"price": 7.5, "worth": "1.234,5"}'):
        code, lines, said = asked(capsys, tmp_path / "run", "--input", given, "--format=jsonl", "--probabilities")
        assert list(json.loads(lines[0])["probabilities"].values()) == shares[0], said
    raw = InputReader(load_one(tmp_path / "run"), Limits()).raw({"price": 7.5, "worth": "1.234,5"})
    assert raw == {"cells": {"price": 7.5, "worth": 1234.5}}
    assert first_input("price=7,5", trained.tokenizer, columns={"price": "number"}, decimal=",")[1] == {
        "cells": {"price": 7.5}
    }
