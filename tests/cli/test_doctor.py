"""`seqkit doctor`: disagreeing versions are named, missing extras are not an error; recipes and runs are examined."""

from argparse import Namespace
from importlib import metadata
from pathlib import Path

import pytest

from seqkit.cli import doctor
from seqkit.cli.doctor import check, run
from seqkit.cli.main import main
from seqkit.doctor.findings import Finding, Result

WANTED = [
    "torch<2.12,>=2.11", "torchvision<0.27,>=0.26", "torchaudio<2.12,>=2.11", "pytorch-lightning<3,>=2.6.6",
    "pydantic<3,>=2.9", 'rdkit>=2025.3; extra == "graph"', 'pytest>=8; extra == "dev"',
    'x-transformers>=2; extra == "bench"',
    'tomli>=2; python_version < "3.11"',
]  # fmt: skip
GOOD = {
    "torch": "2.11.0", "torchvision": "0.26.0", "torchaudio": "2.11.0", "pytorch-lightning": "2.6.6",
    "pydantic": "2.14.3", "rdkit": "2025.9.1",
}  # fmt: skip
NOTHING = Namespace(what=None, preset=None, overrides=[])
EXACT = {"torchvision": ["numpy", "torch==2.11.0"], "torchaudio": []}


def problems(changes, exact=EXACT):
    found = {name: version for name, version in (GOOD | changes).items() if version is not None}
    return {line.name: line.problem for line in check(found, WANTED, exact) if line.problem}


def test_versions_that_agree_have_no_problem():
    assert problems({}) == {}
    assert {line.name for line in check(GOOD, WANTED, EXACT)} == set(GOOD)


@pytest.mark.parametrize("local", ["2.11.0+cpu", "2.11.0+cu130"])
def test_a_build_for_another_device_is_the_same_version(local):
    assert problems({"torch": local}) == {}


def test_a_torch_that_torchvision_was_not_built_for_is_named_with_the_cure():
    found = problems({"torch": "2.11.1"})
    assert set(found) == {"torchvision + torch"}
    assert "torchvision was built for torch==2.11.0" in found["torchvision + torch"]
    assert '"torch<2.12,>=2.11" "torchvision<0.27,>=0.26" "torchaudio<2.12,>=2.11"' in found["torchvision + torch"]


def test_pips_own_choice_of_torch_and_torchaudio_is_named():
    found = problems({"torch": "2.15.0", "torchvision": "0.30.0"}, {"torchvision": ["torch==2.15.0"]})
    assert set(found) == {"torch", "torchvision", "torchaudio + torch"}
    assert "not tested" in found["torch"]


def test_versions_below_a_security_floor_are_called_unsafe():
    ((name, problem),) = problems({"pytorch-lightning": "2.6.5"}).items()
    assert name == "pytorch-lightning"
    assert "not safe" in problem
    assert "pip install" in problem


@pytest.mark.parametrize(("version", "bad"), [("2.6.1", False), ("2.6.2", True), ("2.6.3", True)])
def test_the_releases_that_were_malware_are_named(version, bad):
    assert ("malware" in problems({"lightning": version}).get("lightning", "")) == bad


def test_a_missing_extra_is_no_problem_but_a_missing_dependency_is():
    assert problems({"rdkit": None}) == {}
    (line,) = [line for line in check(GOOD | {"rdkit": "2024.1"}, WANTED, EXACT) if line.name == "rdkit"]
    assert (line.extra, "not tested" in line.problem) == ("graph", True)
    assert problems({"torchaudio": None}) == {"torchaudio": 'missing: pip install "torchaudio<2.12,>=2.11"'}


def test_a_package_that_several_extras_ask_for_is_one_line_with_all_of_them():
    wanted = [
        "torch>=2",
        "tokenizers>=1; extra == 'text'",
        "tokenizers>=1; extra == 'hub'",
        "torch>=2; extra == 'text'",
    ]
    lines = check({"torch": "2.1", "tokenizers": "1.2"}, wanted, {})
    assert [(line.name, line.extra) for line in lines] == [("torch", ""), ("tokenizers", "text, hub")]
    names = [line.name for line in check(GOOD, metadata.requires("seqkit"), {})]
    assert len(names) == len(set(names))


def test_the_report_says_whats_what_here(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SEQKIT_DATA", str(tmp_path / "new"))
    code = run(NOTHING)
    said = capsys.readouterr().out
    assert code == 0, said  # the constraints file is what the tests run with
    for text in ("torchvision", "pydantic", "cores", "accelerator", "all versions agree", str(tmp_path / "new")):
        assert text in said
    assert "writable, made when needed" in said
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder at hand that takes no files from anybody")
def test_a_folder_that_takes_no_files_is_read_only_whoever_asks(capsys, monkeypatch):
    monkeypatch.setenv("SEQKIT_DATA", "/proc")
    run(NOTHING)
    assert "/proc ($SEQKIT_DATA), read-only" in capsys.readouterr().out


def test_a_disagreement_gives_code_1(capsys, monkeypatch):
    line = doctor.Line("a + b", "1 + 2", "a 2", "a was built for another b: pip install a")
    monkeypatch.setattr(doctor, "check", lambda *_: [line])
    assert run(NOTHING) == 1
    assert "all versions agree" not in capsys.readouterr().out


def test_a_torch_that_does_not_import_is_named_and_gives_code_1(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert run(NOTHING) == 1
    assert "torch does not import" in capsys.readouterr().out


# ── a recipe or a run ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_healthy_recipe_gives_code_0(capsys):
    assert main(["doctor", "--preset", "debug", "graph/karate"]) == 0
    said = capsys.readouterr().out
    assert "graph/karate" in said
    assert "nothing is wrong" in said


def test_findings_give_code_1_each_with_its_cause_and_the_key_that_mends_it(capsys, monkeypatch):
    findings = [Finding("too large", "a high rate", "--optimizer.lr 0.01"), Finding("NaN", "an overflow", "--seed 2")]
    results = [Result(f"check {i}", "measured", found) for i, found in enumerate([None, *findings])]
    monkeypatch.setattr("seqkit.doctor.examine.examine", lambda *_: results)
    assert main(["doctor", "graph/karate", "--preset", "debug"]) == 1
    said = capsys.readouterr().out
    for text in ("1. check 1: too large", "a high rate", "--optimizer.lr 0.01", "2. check 2: NaN", "--seed 2"):
        assert text in said
    assert "nothing is wrong" not in said


@pytest.mark.slow
def test_a_rate_that_is_too_high_is_found(capsys):
    assert main(["doctor", "mechanism/parity", "--preset", "debug", "--optimizer.lr", "3"]) == 1
    said = capsys.readouterr().out
    assert "1. learning rate" in said
    assert "mend:  --optimizer.lr 0.0" in said


@pytest.mark.slow
def test_a_run_is_examined_with_its_curve_and_result(tmp_path, capsys):
    quiet = ["--trainer.enable_progress_bar", "false", "--trainer.log_every_n_steps", "1"]
    run_folder = str(tmp_path / "run")
    assert main(["fit", "graph/karate", *quiet, "--trainer.max_epochs", "30", "--out", run_folder]) == 0
    capsys.readouterr()
    code = main(["doctor", run_folder])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "trained weights finite" in said
    assert "in 30 steps" in said
    assert code == (0 if "nothing is wrong" in said else 1)


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


@pytest.mark.parametrize("place", ["own", "other", "none"])
def test_another_program_called_seqkit_is_named(monkeypatch, tmp_path, place):
    own, other = tmp_path / "own" / "seqkit", tmp_path / "other" / "seqkit"
    for path in (own, other):
        path.parent.mkdir()
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(own.parent / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / place))
    said = {
        "own": str(own),
        "other": f"{other}, which is not the one of this Python; python -m seqkit is",
        "none": "not on the path; python -m seqkit is the same",
    }
    assert doctor._command() == said[place]
