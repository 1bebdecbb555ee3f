"""Files of a format that only the user's tokenizer reads: `--plugin FILE --tokenizer NAME --data FOLDER` or a table."""

import json
import sys

import pytest

from seqkit.cli.main import main
from seqkit.config import complete
from seqkit.config.table_columns import reads_files
from seqkit.registry import BUILT_IN, components

PLUGIN = '''
import torch
from seqkit import DataError, Tokenizer, Tokens, TokenSpec, register


@register("tokenizer", "Pulses")
class Pulses(Tokenizer):
    """Files `PULSE 3 1 2`: three numbers are three tokens."""

    spec = TokenSpec(num_features=1)

    def read(self, path):
        head, *numbers = path.read_bytes().split()
        if head != b"PULSE":
            raise DataError("this file does not begin with PULSE")
        return [float(x) for x in numbers]

    def encode(self, raw, /):
        if raw[0] < 0:
            raise DataError("a pulse is below zero")
        return Tokens(torch.tensor(raw)[:, None], torch.arange(float(len(raw)))[:, None])


@register("tokenizer", "Plain")
class Plain(Pulses):
    read = None


@register("tokenizer", "Fitted")
class Fitted(Pulses):
    def fit(self, raws):
        assert all(isinstance(raw, list) for raw in raws)
'''
QUIET = [
    "--trainer.enable_progress_bar",
    "false",
    "--trainer.accelerator",
    "cpu",
    "--trainer.max_steps",
    "2",
]
FIT = [
    "fit",
    "own/classify",
    "--plugin",
    "pulses.py",
    "--tokenizer",
    "Pulses",
    "--preset",
    "debug",
    *QUIET,
]


def pulse(path, height, fault=b""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        fault or b"PULSE " + b" ".join(b"%d" % (height + i % 2) for i in range(5 + height % 3))
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with the plug-in and `data/low` and `data/high`; what registers is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pulses.py").write_text(PLUGIN)
    for i in range(10):
        pulse(tmp_path / "data" / "low" / f"{i}.pls", i % 3)
        pulse(tmp_path / "data" / "high" / f"{i}.{('csv', 'txt', 'png', 'bin')[i % 4]}", 50 + i % 3)
    yield tmp_path
    sys.modules.pop("pulses", None)


def error(capsys):
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1].startswith("seqkit fit: ")
    return said[-1]


@pytest.mark.slow
def test_a_folder_of_any_files_trains_predicts_and_repeats_by_its_configuration(
    place, capsys, caplog
):
    assert main([*FIT, "--data", "data", "--out", "run"]) == 0
    summary = json.loads((place / "run" / "summary.json").read_text())
    assert (summary["num_train"], summary["num_test"]) == (14, 4)
    assert "16 training, 4 test files of 2 classes" in caplog.text
    capsys.readouterr()
    assert main(["predict", "run", "data/low", "--plugin", "pulses.py"]) == 0
    assert len(capsys.readouterr().out.strip().splitlines()) == 10
    again = ["fit", "run/config.yaml", "--plugin", "pulses.py", *QUIET, "--out", "again"]
    assert main(again) == 0
    assert (
        json.loads((place / "again" / "summary.json").read_text())["data_sha256"]
        == summary["data_sha256"]
    )


def test_the_folder_alone_names_the_recipe(place, capsys):
    words = ["fit", "data", *FIT[2:], "--print_config"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "seqkit fit own/classify --data data --plugin" in said.err
    assert "type: FileFolder" in said.out


def test_a_tokenizer_that_is_fitted_reads_the_folder_too(place):
    assert main([*FIT[:5], "Fitted", *FIT[6:], "--data", "data", "--out", "run"]) == 0


def test_bad_files_are_named_by_class_file_and_fault_and_left_out_by_number(place, capsys, caplog):
    pulse(place / "data" / "low" / "bad.pls", 0, b"NOISE 3")
    pulse(place / "data" / "high" / "empty.pls", 0, b"PULSE")
    pulse(place / "data" / "high" / "below.pls", -5)
    assert main([*FIT, "--data", "data"]) == 3
    named = error(capsys)
    assert (
        "data/high/below.pls: a pulse is below zero (3 of 23 files cannot be read; --data.skip_bad 3"
        in named
    )
    assert main([*FIT, "--data", "data", "--data.skip_bad", "2"]) == 3
    assert main([*FIT, "--data", "data", "--data.skip_bad", "3", "--out", "run"]) == 0
    assert "3 of 23 files cannot be read and are left out" in caplog.text
    for name in ("below", "empty"):
        (place / "data" / "high" / f"{name}.pls").unlink()
    assert main([*FIT, "--data", "data"]) == 3
    assert "data/low/bad.pls: this file does not begin with PULSE" in error(capsys)
    pulse(place / "data" / "low" / "bad.pls", 0, b"PULSE three")
    assert main([*FIT, "--data", "data"]) == 3
    assert "data/low/bad.pls: Pulses.read raised ValueError" in error(capsys)


def test_a_tokenizer_without_read_is_told_what_is_missing(place, capsys):
    for i in range(10):
        (place / "odd" / "a").mkdir(parents=True, exist_ok=True)
        (place / "odd" / "a" / f"{i}.bin").write_bytes(b"\0")
    without = [*FIT[:5], "Plain", *FIT[6:]]
    assert main([*without, "--data", "odd"]) == 2
    assert "or a tokenizer that has read(path)" in error(capsys)
    assert main([*without, "--data.source", "FileFolder", "--data.path", "odd"]) == 2
    assert "read(path), which Plain does not have" in error(capsys)
    (place / "table.csv").write_text("file,label\n" + "data/low/0.pls,a\ndata/low/0.pls,b\n" * 4)
    assert main([*without, "--data", "table.csv", "--data.columns", "{file: file}"]) == 3
    assert "file names files for a tokenizer with read(path), which Plain does not have" in error(
        capsys
    )


def rows(place, head, cell):
    files = [(f"low/{i}.pls", cell(0, i)) for i in range(10)]
    files += [
        (f"high/{path.name}", cell(1, i))
        for i, path in enumerate(sorted((place / "data" / "high").iterdir()))
    ]
    text = "\n".join([head, *(f"{i},{name},{value}" for i, (name, value) in enumerate(files))])
    (place / "data" / "table.csv").write_text(text)


def test_a_table_names_files_and_classes(place, capsys, caplog):
    rows(place, "id,measured,label", lambda high, i: ("low", "high")[high])
    assert main([*FIT, "--data", "data/table.csv", "--out", "run"]) == 0
    assert "table.csv: file: 'measured', input" in caplog.text
    assert "table.csv: category: 'label', target (classes)" in caplog.text
    assert "16 training, 4 test rows" in caplog.text
    capsys.readouterr()
    assert main(["predict", "run", "data/table.csv", "--plugin", "pulses.py"]) == 0
    assert len(capsys.readouterr().out.strip().splitlines()) == 20
    assert main(["predict", "run", "data/high/0.csv", "--plugin", "pulses.py"]) == 0
    assert len(capsys.readouterr().out.strip().splitlines()) == 1


def test_a_table_of_files_and_numbers_is_a_regression(place, capsys):
    rows(place, "id,measured,height", lambda high, i: 50 * high + i % 3 + 0.5)
    assert (
        main([*FIT, "--data", "data/table.csv", "--model.objective", "Regress", "--out", "run"])
        == 0
    )
    assert "rmse" in json.loads((place / "run" / "summary.json").read_text())["metrics"]
    assert main(["fit", "data/table.csv", *FIT[2:], "--print_config"]) == 0
    said = capsys.readouterr()
    assert "seqkit fit own/classify" in said.err
    assert "type: Regress" in said.out


def test_bad_rows_are_named_by_line_file_and_fault_and_left_out_by_number(place, capsys, caplog):
    rows(place, "id,measured,label", lambda high, i: ("low", "high")[high])
    pulse(place / "data" / "low" / "3.pls", 0, b"NOISE 3")
    pulse(place / "data" / "low" / "4.pls", 0, b"PULSE")
    (place / "data" / "low" / "5.pls").unlink()
    table = [*FIT, "--data", "data/table.csv"]
    assert main(table) == 3
    assert "line 7: low/5.pls does not exist in data" in error(capsys)
    pulse(place / "data" / "low" / "5.pls", 0)
    assert main([*table, "--data.skip_bad", "1"]) == 3
    assert "line 5: data/low/3.pls: this file does not begin with PULSE (2 of 20 rows" in error(
        capsys
    )
    assert main([*table, "--data.skip_bad", "2", "--out", "run"]) == 0
    assert "2 of 20 rows are left out" in caplog.text


def test_a_folder_is_its_tokenizers_and_a_pattern_is_one_table(place, caplog):
    for name, start in (("shards", "part-"), ("flat", "")):
        (place / name).mkdir()
        for i in range(2):
            (place / name / f"{start}{i}.csv").write_text("text,label\n" + "one,a\ntwo,b\n" * 5)
    sources = {}
    assert main([*FIT[:6], "--data", "data", "--print_config"]) == 0
    given = [
        ("shards", "Pulses"),
        ("flat", "Pulses"),
        ("flat", "Bytes"),
        ("data", "Bytes"),
        ("data", "Pulses"),
    ]
    for name, tokenizer in [*given, ("flat/*.csv", "Pulses")]:
        words = ["--tokenizer", tokenizer, "--data", str(place / name)]
        caplog.clear()
        sources[name, tokenizer] = complete("own/classify", None, words)["data"]["source"]["type"]
        if (name, tokenizer) == ("flat", "Pulses"):
            assert (
                caplog.text.count(
                    "flat: each file in it is an example, which the tokenizer's read(path) reads"
                )
                == 1
            )
    assert sources == {
        ("shards", "Pulses"): "FileFolder", ("data", "Bytes"): "TextFolder", ("data", "Pulses"): "FileFolder",
        ("flat", "Pulses"): "FileFolder", ("flat", "Bytes"): "Table", ("flat/*.csv", "Pulses"): "Table",
    }  # fmt: skip


def test_no_built_in_tokenizer_reads_files_itself():
    assert not [one.name for one in BUILT_IN["tokenizer"] if hasattr(one.load(), "read")]
    assert not any(reads_files(name) for name in components("tokenizer") if name != "Pulses")
    assert not reads_files("no such name")


def test_a_folder_of_a_format_that_nothing_else_reads_is_its_tokenizers(place):
    pulse(place / "only" / "a" / "0.pls", 1)
    words = ["--tokenizer", "Pulses", "--data", str(place / "only")]
    assert main([*FIT[:6], "--data", "data", "--print_config"]) == 0
    assert complete("own/classify", None, words)["data"]["source"]["type"] == "FileFolder"
