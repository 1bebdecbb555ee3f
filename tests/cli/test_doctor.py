"""`seqkit doctor`: disagreeing versions are named, missing extras are not an error; recipes and runs are examined."""

from importlib import metadata

import pytest

from seqkit.cli.doctor import conflicts
from seqkit.cli.main import main
from seqkit.doctor.findings import Fault, Result

REQUIRED = {
    "seqkit": [
        "torch<2.12,>=2.11", "pydantic<3,>=2.9", 'rdkit>=2025.3; extra == "graph"', 'tomli>=2; python_version < "3"'
    ],
    "torchvision": ["torch==2.11.0", 'gdown>=4; extra == "gdown"'],
}  # fmt: skip
GOOD = {
    "seqkit": "0.1",
    "torch": "2.11.0",
    "torchvision": "0.26.0",
    "torchaudio": "2.11.0",
    "pydantic": "2.9.1",
}


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({}, []),
        ({"torch": "2.11.0+cu128", "rdkit": "2025.9.1", "gdown": "1.0"}, []),
        ({"pydantic": "1.10"}, ["seqkit needs pydantic<3,>=2.9, and 1.10 is installed"]),
        ({"pydantic": None}, ["seqkit needs pydantic<3,>=2.9, and nothing is installed"]),
        ({"rdkit": "2024.1"}, ["seqkit needs rdkit>=2025.3, and 2024.1 is installed"]),
        ({"torchaudio": "2.10.0"}, ["torchaudio 2.10.0 was built for another torch than 2.11.0"]),
        (
            {"torch": "2.11.1", "torchaudio": "2.11.1"},
            ["torchvision needs torch==2.11.0, and 2.11.1 is installed"],
        ),
    ],
)
def test_versions_that_disagree_have_a_line_with_the_command_that_mends_them(changed, lines):
    found = {name: version for name, version in (GOOD | changed).items() if version is not None}
    said = list(conflicts(found, REQUIRED))
    assert len(said) == len(lines)
    for line, start in zip(said, lines):
        assert line.startswith(start)
        assert "pip install" in line


def test_the_installation_is_named_with_device_and_data(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SEQKIT_DATA", str(tmp_path))
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    for text in (metadata.version("torch"), "device", str(tmp_path), "all versions agree"):
        assert text in said


def test_a_torch_that_does_not_import_is_named_and_gives_code_1(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert main(["doctor"]) == 1
    assert "torch does not import" in capsys.readouterr().out


# ── a recipe or a run ────────────────────────────────────────────────────────────────────────────────────────────────


def test_findings_give_code_1_each_with_its_cause_and_the_key_that_mends_it(capsys, monkeypatch):
    findings = [
        Fault("too large", "a high rate", "--optimizer.lr 0.01"),
        Fault("NaN", "an overflow", "--seed 2"),
    ]
    results = [
        Result("measured", found, name=f"check {i}") for i, found in enumerate([None, *findings])
    ]
    monkeypatch.setattr("seqkit.doctor.examine.examine", lambda *_: results)
    assert main(["doctor", "graph/karate", "--preset", "debug"]) == 1
    said = capsys.readouterr().out
    for text in (
        "1. check 1: too large",
        "a high rate",
        "--optimizer.lr 0.01",
        "2. check 2: NaN",
        "--seed 2",
    ):
        assert text in said
    assert "nothing is wrong" not in said


@pytest.mark.slow
def test_a_run_is_examined_with_its_curve(tmp_path, capsys):
    quiet = ["--trainer.enable_progress_bar", "false", "--trainer.log_every_n_steps", "1"]
    run_folder = str(tmp_path / "run")
    assert (
        main(["fit", "graph/karate", *quiet, "--trainer.max_epochs", "30", "--out", run_folder])
        == 0
    )
    capsys.readouterr()
    assert main(["doctor", run_folder]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "in 30 steps" in said
    assert "nothing is wrong" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["doctor", "--seed=2"], "seqkit doctor RECIPE --key value"),
        (["doctor", "--preset", "debug"], "seqkit doctor RECIPE --key value"),
        (["doctor", "image/digit"], "did you mean"),
        (["doctor", "image/digits", "--model.bakbone", "LSTM"], "did you mean"),
    ],
)
def test_a_wrong_command_gives_code_2(words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err
