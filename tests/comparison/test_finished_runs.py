"""Finished runs side by side: readable names, and commands that work as they are printed."""

import json
import re
import shlex
from pathlib import Path

import pytest

from seqkit.cli.main import main
from seqkit.comparison.finished_runs import _again
from seqkit.comparison.results import read_results

PLUGIN = Path(__file__).with_name("faulty_backbones.py")
SHORT = ["--preset", "debug", "--data.limit", "40", "--trainer.max_steps", "2", "--trainer.max_epochs", "null",
         "--optimizer", "AdamW", "--classical", "off", "--plugin", str(PLUGIN)]  # fmt: skip


def fit(folder, *words):
    assert main(["fit", "image/digits", *SHORT, *words, "--out", str(folder)]) == 0
    return str(folder)


@pytest.mark.slow
def test_runs_of_a_plug_in_are_named_and_the_printed_commands_give_the_same_numbers(tmp_path):
    mixed = "{type: Transformer, mixer: [MinGRU, null], dim: 16, depth: 2}"
    runs = [
        fit(tmp_path / "own", "--model.backbone", "Plain"),
        fit(tmp_path / "mixed", "--model.backbone", mixed),
        fit(tmp_path / "small", "--model.backbone", "{type: Transformer, dim: 16, depth: 1}"),
        fit(tmp_path / "large", "--model.backbone", "{type: Transformer, dim: 32, depth: 1}"),
    ]
    summary = tmp_path / "own" / "summary.json"
    elsewhere = json.loads(summary.read_text(encoding="utf-8"))
    elsewhere["machine"]["cpu"] = "of another machine"
    summary.write_text(json.dumps(elsewhere), encoding="utf-8")
    out = tmp_path / "both"
    compare = ["compare", *runs, "--out", str(out), "--plugin", str(PLUGIN)]
    assert main(compare) == 0
    assert main(compare) == 0, "the same comparison again"
    assert main(["compare", *runs[:2], "--out", str(out), "--plugin", str(PLUGIN)]) == 2
    first = read_results(out / "results.json")
    names = ["Plain", "MinGRU+null", "Transformer, dim=16", "Transformer, dim=32"]
    assert [row.name for row in first.candidates] == names
    told = [one.text for one in first.unmatched if one.what == "machine"]
    assert len(told) == 1
    assert re.match(r"cpu was not the same \(.*of another machine: Plain", told[0])
    assert "faulty_backbones.py" in first.commands[0].partition("--plugin ")[2]
    for line in first.commands:
        assert main(shlex.split(line)[1:]) == 0, line
    again = read_results(tmp_path / "both-again" / "results.json")
    assert [row.mean for row in again.candidates] == [row.mean for row in first.candidates]


def test_a_task_is_trained_again_with_its_mixture():
    folders = [Path("runs/image"), Path("runs/four/tasks/image"), Path("runs/four/tasks/text")]
    *fits, compare = _again(folders, Path("runs/both"))
    fits = [line.partition(" --plugin")[0] for line in fits]
    assert fits == [
        "seqkit fit runs/image/config.yaml --out runs/image-again",
        "seqkit fit runs/four/config.yaml --out runs/four-again",
    ]
    assert compare.startswith(
        "seqkit compare runs/image-again runs/four-again/tasks/image runs/four-again/tasks/text "
        "--out runs/both-again"
    )
