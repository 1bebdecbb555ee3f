"""`seqkit runs`: every run is a row, whatever state its files are in."""

import hashlib
import json
import os

import pytest

from seqkit.cli.main import main
from seqkit.runs.summary import data_name, find_runs

SUMMARY = {
    "sha256": "0", "recipe": "a/b", "backbone": "LSTM", "seed": 1, "num_parameters": 7, "tokens_seen": 7, "steps": 7,
    "wall_seconds": 2.0, "metrics": {"loss": 1.0, "accuracy": 0.5}, "versions": {"seqkit": "0"},
    "baseline": {"accuracy": 0.25}, "objective": "Classify", "main_metric": "accuracy",
}  # fmt: skip


@pytest.fixture
def runs(tmp_path):
    """(name, time, summary or None, config) → a run's folder below runs."""

    def make(name, time, summary, source="digits"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(
            f"recipe: a/{name}\ndata: {{source: {source}}}\n", encoding="utf-8"
        )
        os.utime(folder / "config.yaml", (time, time))
        (folder / "state.json").write_text("{}", encoding="utf-8")
        if summary is not None:
            (folder / "summary.json").write_text(summary, encoding="utf-8")
        return folder

    make("good", 1_000_000, json.dumps(SUMMARY))
    make(
        "better",
        2_000_000,
        json.dumps(SUMMARY | {"metrics": {"accuracy": 0.75}, "wall_seconds": 1.0}),
    )
    make(
        "error", 3_000_000, json.dumps(SUMMARY | {"objective": "Regress", "metrics": {"rmse": 3.0}})
    )
    make("damaged", 4_000_000, "{")
    make("wrong", 5_000_000, json.dumps(SUMMARY | {"seed": "one"}))
    make("unfinished", 6_000_000, None)
    make("trained", 7_000_000, json.dumps(SUMMARY | {"state": "trained", "metrics": {}}))
    (tmp_path / "runs" / "note.txt").write_text("no run", encoding="utf-8")
    (tmp_path / "runs" / "good" / "checkpoints").mkdir()
    return tmp_path / "runs"


def listed(capsys, *words):
    assert main(["runs", *map(str, words)]) == 0
    return [
        line.split()[1][2:]
        for line in capsys.readouterr().out.splitlines()
        if line.count(" a/") == 1
    ]


def test_every_run_is_an_entry_with_its_state_and_damage_is_one_with_its_reason(runs):
    entries = {row.folder.name: row for row in find_runs(runs)}
    states = {name: entry.state for name, entry in entries.items()}
    assert states == {
        "good": "finished", "better": "finished", "error": "finished", "damaged": "damaged", "wrong": "damaged",
        "unfinished": "unfinished", "trained": "trained",
    }  # fmt: skip
    assert entries["good"].summary["metrics"]["accuracy"] == 0.5
    assert entries["good"].data == "digits"
    assert "summary.json is damaged: seed" in entries["wrong"].reason
    assert {name for name, entry in entries.items() if entry.reason} == {"wrong", "damaged"}


@pytest.mark.parametrize("name", ["config.yaml", "state.json"])
def test_a_file_that_changed_since_training_is_damage(runs, name):
    folder = runs / "good"
    digests = {
        f"{file.partition('.')[0]}_sha256": hashlib.sha256((folder / file).read_bytes()).hexdigest()
        for file in ("config.yaml", "state.json")
    }
    (folder / "summary.json").write_text(json.dumps(SUMMARY | digests), encoding="utf-8")
    assert {row.folder.name: row.state for row in find_runs(runs)}["good"] == "finished"
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write("\n")
    (entry,) = [row for row in find_runs(runs) if row.folder.name == "good"]
    assert entry.state == "damaged"
    assert f"{name} has changed since training" in entry.reason


def test_runs_are_sorted_by_time_or_by_metric_the_best_first(runs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert listed(capsys, runs) == [
        "trained",
        "unfinished",
        "wrong",
        "damaged",
        "error",
        "better",
        "good",
    ]
    assert listed(capsys, runs, "--sort", "metric")[:3] == ["better", "good", "error"]


def test_the_table_has_all_of_it_and_the_reasons_below(runs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["runs", str(runs)]) == 0
    out = capsys.readouterr().out
    for shown in (
        "a/good",
        "digits",
        "accuracy 50.00 %",
        "25.00 %",
        "RMSE 3.000",
        "1970-01-1",
        "trained",
    ):
        assert shown in out
    assert f"{runs / 'damaged'}: {runs / 'damaged' / 'summary.json'} is damaged" in out


def test_a_narrow_terminal_breaks_no_word_and_no_path(runs, capsys, monkeypatch):
    shown = {}
    for width in (300, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["runs", str(runs)]) == 0
        shown[width] = capsys.readouterr().out.partition(f"{runs / 'damaged'}: ")[0]
    for line in shown[300].splitlines()[2:]:
        assert set(line.split()) <= set(shown[80].split())
    lines = shown[80].splitlines()
    assert all(len(line) <= 80 for line in lines if str(runs) not in line)
    assert f"{runs / 'good'}" in lines


def test_no_folder_is_refused_and_an_empty_one_said(tmp_path, capsys):
    assert main(["runs", str(tmp_path / "gone")]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert main(["runs", str(tmp_path)]) == 0
    assert "holds no runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("digits", "digits"),
        ({"type": "Table", "path": "/data/reviews.csv"}, "reviews.csv"),
        ({"type": "TextFiles", "path": ["a/x.txt", "b.txt"]}, "x.txt and 1 more"),
        ({"type": "ImageFolder", "path": "photos/"}, "photos"),
        ({"type": "Table", "path": "hf://owner/name"}, "name"),
        ({"type": "mnist"}, "mnist"),
        (None, ""),
    ],
)
def test_data_are_called_by_their_file_or_their_source(source, name):
    assert data_name({"data": {"source": source}}) == name


def test_a_run_that_lost_to_the_classical_method_says_so(runs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    summary = json.loads((runs / "good" / "summary.json").read_text(encoding="utf-8"))
    strong = {"name": "TF-IDF", "num_train": 9, "seconds": 1.0, "metrics": {"accuracy": 0.9}}
    for name, difference in (("lost", (-0.4, -0.5, -0.3)), ("even", (-0.4, -0.9, 0.1))):
        folder = runs / name
        folder.mkdir()
        for file in ("config.yaml", "state.json"):
            (folder / file).write_text((runs / "good" / file).read_text())
        own = summary | {"strong_baseline": strong | {"difference": difference}}
        (folder / "summary.json").write_text(json.dumps(own), encoding="utf-8")
    assert main(["runs", str(runs)]) == 0
    lines = capsys.readouterr().out.splitlines()
    lost, even = (next(line for line in lines if f"/{name} " in line) for name in ("lost", "even"))
    assert "classical method is better" in lost
    assert "classical" not in even
