"""Whole comparisons: failing cells, killed processes, the command line, what is refused."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqkit import compare
from seqkit.cli.main import main
from seqkit.comparison.results import read_results
from seqkit.report.sentences import answers
from tests.comparison.conftest import SMALL, WORDS

PLUGIN = Path(__file__).with_name("faulty_backbones.py")


def read(folder):
    return json.loads((folder / "results.json").read_bytes())


def means(results):
    return {row["name"]: row["mean"] for row in results["candidates"]}


def written(folder):
    """When the result of each cell was written."""
    cells = folder / "cells"
    return {
        path.relative_to(cells).as_posix(): path.stat().st_mtime_ns
        for path in cells.glob("**/*.json")
    }


@pytest.mark.slow
def test_cells_that_fail_are_in_the_table_and_the_others_finish(tmp_path):
    import seqkit.registry.plugins

    seqkit.registry.plugins.import_plugins([PLUGIN])
    backbones = ["Plain", "Diverges", "KillsItsProcess", "NeedsTooMuch"]
    results = compare(
        "image/digits", backbones, out=tmp_path / "c", plugins=[str(PLUGIN)], jobs=2, **SMALL
    )
    rows = results.by_name
    assert rows["Plain"].mean is not None
    assert [run.error for run in rows["Plain"].runs] == [None]
    reasons = {"Diverges": "nan", "KillsItsProcess": "signal 9", "NeedsTooMuch": "out of memory"}
    page = (tmp_path / "c" / "report.html").read_text(encoding="utf-8")
    for name, reason in reasons.items():
        assert rows[name].mean is None
        assert reason in rows[name].error.lower()
        assert (tmp_path / "c" / "failed" / name / "seed-1").is_dir()
        assert str(tmp_path / "c" / "failed" / name / "seed-1") in rows[name].error
        assert reason in page.lower()
    assert len(results.failures) == 3
    assert not list((tmp_path / "c" / "runs").glob("*/.*"))  # nothing half done
    assert {path.parent.name for path in (tmp_path / "c" / "runs").glob("*/seed-1")} == {"Plain"}
    before = written(tmp_path / "c")
    again = compare(
        "image/digits", backbones, out=tmp_path / "c", plugins=[str(PLUGIN)], jobs=2, **SMALL
    )
    assert written(tmp_path / "c") == before
    assert again.candidates == results.candidates
    assert len((tmp_path / "c" / "results.csv").read_text(encoding="utf-8").splitlines()) == 1 + 4


@pytest.mark.slow
def test_a_comparison_is_tuned_run_measured_and_written(kept):
    results = read(kept)
    assert [row["name"] for row in results["candidates"]] == ["LSTM", "GRU"]
    for row in results["candidates"]:
        assert [run["seed"] for run in row["runs"]] == [1, 2]
        assert row["mean"] == pytest.approx(sum(run["value"] for run in row["runs"]) / 2)
        (trial,) = row["trials"]
        assert trial["values"]["optimizer.lr"] == row["chosen"]["optimizer.lr"]
        assert [point[0] for point in row["cost"]["seconds_by_length"]] == [4, 8]
        for run in row["runs"]:
            summary = json.loads((kept / run["folder"] / "summary.json").read_bytes())
            assert summary["metrics"]["accuracy"] == pytest.approx(run["value"])
    assert results["num_test"] == 40
    answer = answers(read_results(kept / "results.json")).text
    assert answer in (kept / "results.md").read_text(encoding="utf-8").replace("\\", "")
    assert answer in (kept / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_cell_without_a_result_is_run_again_and_no_other(kept, tmp_path, capsys):
    folder = shutil.copytree(kept, tmp_path / "c")
    (folder / "cells" / "GRU" / "seed-2.json").unlink()
    shutil.rmtree(folder / "runs" / "GRU" / "seed-2")
    (folder / "runs" / "GRU" / ".seed-2.77").mkdir()  # of a process that was killed
    before = written(folder)
    assert main([*WORDS, "--out", str(folder)]) == 0
    assert "report.html" in capsys.readouterr().out
    after = written(folder)
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {"GRU/seed-2.json"}
    assert means(read(folder)) == means(read(kept))
    assert read(folder)["differences"] == read(kept)["differences"]
    assert not list(folder.glob("runs/*/.*"))


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_comparison_that_is_killed_goes_on_and_ends_with_the_same_table(kept, tmp_path):
    folder = tmp_path / "c"
    process = subprocess.Popen(
        [sys.executable, "-m", "seqkit", *WORDS, "--jobs", "2", "--out", str(folder)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and not list(folder.glob("cells/**/seed-*.json")):
        time.sleep(0.05)
    process.kill()  # its workers see that it has gone
    process.wait()
    before = written(folder)
    assert main([*WORDS, "--out", str(folder)]) == 0
    assert before.items() <= written(folder).items()
    one, two = read(kept), read(folder)
    assert means(one) == means(two)
    assert one["differences"] == two["differences"]
    for a, b in zip(one["candidates"], two["candidates"]):
        assert (a["chosen"], a["trials"]) == (b["chosen"], b["trials"])
    assert not list(folder.glob("runs/*/.*"))
