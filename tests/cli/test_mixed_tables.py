"""Own tables as a newcomer types them: fitted by one command, and read alike by every other one."""

import csv
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from seqkit.cli.main import main
from seqkit.data.inputs import Inputs, schema_of
from seqkit.files import read_mapping
from seqkit.report.page import write_report
from seqkit.runs.trained_model import load_one
from seqkit.serve.inputs import InputReader

QUICK = [
    "--preset",
    "debug",
    "--trainer.enable_progress_bar",
    "false",
    "--trainer.accelerator",
    "cpu",
    "--classical",
    "off",
]


STEPS = [
    "--data.columns",
    "[s1, s2, s3, kind]",
    "--data.input",
    "s*",
    "--trainer.checkpoint_every_n_steps",
    "1",
]


def fitted(path, *words, steps=2):
    """The folder of a short run on a file."""
    out = path.parent / f"run-{path.stem}"
    steps = ["--trainer.max_steps", f"{steps}", "--trainer.max_epochs", f"{steps}"]
    assert main(["fit", str(path), *QUICK, *steps, *words, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on texts, images, decimal commas, dates, numbers with NA, and categories, with gaps; and its folder."""
    folder = tmp_path_factory.mktemp("products")
    rows = []
    for i in range(40):
        Image.fromarray(np.full((8, 8, 3), 6 * i, np.uint8)).save(folder / f"{i}.png")
        row = {
            "a title": f"thing <b>of {i}",
            "photo": f"{i}.png",
            "price": f"1.{i:03},50",
            "weight": "NA" if i == 7 else f"{i}.5".replace(".", ","),
            "sold": f"{1 + i % 28:02}.{1 + i % 12:02}.2024",
            "size": "SML"[i % 3],
            "y": ["no", "yes"][i % 2],
        }
        rows.append(row | {name: "" for j, name in enumerate(row) if j == i % 13 and name != "y"})
    with (folder / "rows.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), delimiter=";")
        table.writeheader()
        table.writerows(rows)
    return fitted(folder / "rows.csv"), folder


def asked(capsys, *words):
    """Exit code, lines and errors of `seqkit predict`."""
    code = main(["predict", *map(str, words), "--device", "cpu"])
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err


def test_the_configuration_says_what_each_column_became(run):
    config = read_mapping(run[0] / "config.yaml")
    source = config["data"]["source"]
    assert config["recipe"] == "multimodal/table"
    assert source["columns"] == {
        "a title": "text", "photo": "image", "price": "number", "weight": "number", "sold": "date", "size": "category",
    }  # fmt: skip
    assert source["forms"] == {"price": ",", "weight": ",", "sold": "%d.%m.%Y"}
    assert source["missing"] == ["na"]
    assert config["tokenizer"]["reads"] == {
        "a_title": "a title",
        "photo": "photo",
        "cells": "cells",
    }


@pytest.mark.slow
def test_the_report_shows_the_cells_of_wrong_rows(run):
    report = write_report(run[0]).read_text(encoding="utf-8")
    errors = report.partition("Most confident errors</h3>")[2]
    assert "<tr><th>column</th><th>value</th></tr>" in errors
    assert "<tr><td>price</td><td>" in errors
    assert "<td>thing &lt;b&gt;of " in errors


def test_every_command_reads_cells_as_training_did(run, capsys):
    """A table, an example of the command line, a request of a server: forms, words for nothing, and orders alike."""
    path, folder = run
    trained = load_one(path)
    schema = schema_of(trained.config)
    (folder / "one.csv").write_text(
        'sold,weight,price,y\n03.04.2024,NA,"1.234,50",\n', encoding="utf-8"
    )
    (raw,) = (one.raw for one in Inputs([str(folder / "one.csv")], trained.tokenizer, schema))
    (written,) = (
        one.raw
        for one in Inputs(["sold=03.04.2024,weight=na,price=1.234,50"], trained.tokenizer, schema)
    )
    asked_for = InputReader(trained).raw(
        {"sold": "03.04.2024", "weight": "NA", "price": "1.234,50"}
    )
    assert raw == written == asked_for
    assert raw["cells"].keys() == {"sold", "price"}
    assert raw["cells"]["price"] == 1234.5
    assert 2024 < 1970 + raw["cells"]["sold"] < 2024 + 95 / 366, (
        "April, as the other days are above 12"
    )
    assert InputReader(trained).raw({"price": 1234.5})["cells"] == {"price": 1234.5}
    code, _, said = asked(capsys, path, "sold=2024-04-03")
    assert code == 3
    assert "sold is '2024-04-03', which is no date as the others are (%d.%m.%Y)" in said


def test_the_test_split_is_read_again_as_it_was(run, capsys, caplog):
    path, _ = run
    summary = read_mapping(path / "summary.json", "metrics")
    assert main(["evaluate", str(path)]) == 0
    assert f"{summary['metrics']['loss']:.4f}" in capsys.readouterr().out
    code, lines, _ = asked(capsys, path, "--test", "--format", "csv")
    assert (code, len(lines)) == (0, 1 + summary["num_test"])
    assert "to change" not in caplog.text, "what a run knows of its table is not said again"


def test_rows_are_predicted_also_incomplete_ones(run, capsys):
    """A row is predicted from its cells alone: those of one kind are those of the same raw example from Python."""
    path, folder = run
    trained = load_one(path)
    new = folder / "new.csv"
    new.write_text(
        "size;a title;price;other\nM;some words;7,5;x\n;only words;;y\nL;;;\n;;;z\n;;many;\n;;\n",
        encoding="utf-8",
    )
    code, lines, said = asked(capsys, run[0], new, "--format", "jsonl", "--probabilities")
    found = [json.loads(line) for line in lines]
    assert code == 3
    assert (
        "has no column photo, weight, sold, so these are absent; it has columns that are not used: other"
        in said
    )
    raws = [
        {"a title": "some words", "cells": {"size": "M", "price": 7.5}},
        {"a title": "only words"},
        {"cells": {"size": "L"}},
    ]
    assert [one["prediction"] for one in found[:3]] == trained.predict(raws)
    assert found[3]["error"].endswith("line 5: a title, price, size is empty")
    assert found[4]["error"].endswith("line 6: price is 'many', which is no number")
    assert "line 7 has 3 cells, and the header has 4" in found[5]["error"]
    assert "do not rely" not in said


def test_what_the_model_does_not_know_is_said(run, capsys, caplog):
    """Categories that training lacks are counted by column; a column of nearly the name of a missing one is named."""
    _, folder = run
    new = folder / "unknown.csv"
    new.write_text("size,Price,a title\nXL,2,x\nXXL,3,y\nM,2,z\nXL,4,\n", encoding="utf-8")
    code, lines, said = asked(capsys, run[0], new)
    assert (code, len(lines)) == (0, 4)
    assert "no column photo, price, weight, sold, so these are absent" in said
    assert said.strip().endswith("; it has columns that are not used: Price")
    unknown = "words that are rare or absent in training count as one: "
    assert [record.getMessage() for record in caplog.records] == [
        f"{unknown}size 'XL' (2), size 'XXL' (1)"
    ]
    caplog.clear()
    asked(capsys, run[0], "--input", "size=XL,price=2")
    outside = "numbers outside their range in training: price 2, in training 1003.5 to 1037.5 (1)"
    assert [one.getMessage() for one in caplog.records] == [outside, f"{unknown}size 'XL' (1)"]
    caplog.clear()
    for inside in ("1003.5", "1037.5"):
        asked(capsys, run[0], "--input", f"size=M,price={inside}")
    assert not caplog.records


def test_one_example_is_given_part_by_part(run, capsys):
    _, folder = run
    photo = folder / "4.png"
    for words in (
        ["--input", f"photo={photo},a_title=words, and more,price=2"],
        [f"a title=words, and more,price=2,photo={photo}"],
        ["--input", json.dumps({"photo": str(photo), "a title": "words, and more", "price": 2})],
    ):
        code, lines, said = asked(capsys, run[0], *words, "--format", "jsonl")
        assert code == 0, said
        assert json.loads(lines[0])["prediction"] in ("no", "yes")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--input", "titel=words"],
            "'titel' is no part of the run's examples; did you mean a title?",
        ),
        (["--input", "photo=missing.png"], "missing.png does not exist"),
        (["--input", "price=cheap"], "price is 'cheap', which is no number"),
        (["--input", "price="], "price is empty"),
        (["just words"], "names no part of an example; give a table, or a title=…"),
        (["nothing.csv"], "nothing.csv does not exist"),
    ],
)
def test_each_mistake_is_answered_in_one_line(run, words, said, capsys):
    code, lines, error = asked(capsys, run[0], *words)
    assert code != 0
    assert not lines
    assert said in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "what"),
    [("inspect", "config.yaml"), pytest.param("attention", "", marks=pytest.mark.slow)],
)
def test_one_example_is_drawn_with_the_words_that_predict_takes(
    command, what, run, tmp_path, capsys
):
    path, folder = run

    def drawn(given):
        code = main(
            [
                command,
                str(path / what),
                "--input",
                str(given),
                "--out",
                str(tmp_path / "view"),
                "--force",
            ]
        )
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
        assert main(["predict", str(path), "--input", given]) == 3
        said = capsys.readouterr().err.strip().removeprefix("seqkit predict: ")
        assert said.removeprefix(f"{given}: ") == printed.err.strip().removeprefix(
            f"seqkit {command}: "
        )


def test_a_table_without_any_column_of_the_run_is_refused(run, capsys):
    other = run[1] / "other.csv"
    other.write_text("width,height\n1,2\n", encoding="utf-8")
    code, _, error = asked(capsys, run[0], other)
    assert code == 3
    assert (
        "lacks columns of the run (a title, photo, price, weight, sold, size); it has width, height"
        in error
    )


def test_vectors_of_rows_are_written(run, tmp_path, capsys):
    assert (
        main(
            [
                "predict",
                str(run[0]),
                str(run[1] / "rows.csv"),
                "--embed",
                "--out",
                str(tmp_path / "v.parquet"),
            ]
        )
        == 0
    )
    assert "40 vectors of 32 numbers" in capsys.readouterr().out


@pytest.mark.slow
def test_steps_in_columns_without_a_header_and_chats_are_read_again(tmp_path, capsys):
    rows = [f"{i},5;{i % 7};{i % 3};{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "steps.csv").write_text("\n".join(rows), encoding="utf-8")
    run = fitted(tmp_path / "steps.csv", *STEPS)
    trained = load_one(run)
    capsys.readouterr()
    code, lines, _ = asked(capsys, run, tmp_path / "steps.csv")
    assert (code, len(lines)) == (0, 40)
    first = next(
        iter(Inputs([str(tmp_path / "steps.csv")], trained.tokenizer, schema_of(trained.config)))
    )
    assert first.raw == [0.5, 0, 0]
    assert main(["evaluate", str(run)]) == 0
    for lost in ("summary.json", "checkpoints/model.safetensors"):  # so the run is unfinished
        (run / lost).unlink()
    assert main(["fit", "--resume", str(run)]) == 0
    said = [{"role": role, "content": f"words of {role} " * 9} for role in ("user", "assistant")]
    (tmp_path / "chat.jsonl").write_text(
        "\n".join([json.dumps({"messages": said})] * 40), encoding="utf-8"
    )
    run = fitted(tmp_path / "chat.jsonl")
    assert read_mapping(run / "config.yaml")["recipe"] == "text/char-lm"
    assert (
        main(
            [
                "predict",
                str(run),
                str(tmp_path / "chat.jsonl"),
                "--embed",
                "--out",
                str(tmp_path / "v.parquet"),
            ]
        )
        == 0
    )
    assert (
        main(["generate", str(run), "--prompt", "words", "--device", "cpu", "--tokens", "3"]) == 0
    )


def test_decimals_and_the_index_of_pandas_need_no_flag(tmp_path, capsys):
    frame = pd.DataFrame(
        {"dose": [Decimal(f"{i}.25") for i in range(40)], "level": [0.5 * i for i in range(40)]}
    )
    frame.iloc[::-1].to_parquet(tmp_path / "doses.parquet")
    assert main(["fit", str(tmp_path / "doses.parquet"), *QUICK, "--print_config"]) == 0
    said = capsys.readouterr()
    assert "multimodal/table" in said.err
    assert "__index_level_0__" not in said.out
