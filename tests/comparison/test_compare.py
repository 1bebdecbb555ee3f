"""Whole comparisons: failing cells, killed processes, the command line, what is refused."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import seqkit
from seqkit import compare
from seqkit.cli.main import main
from seqkit.comparison.compare import check_folder, default_folder, make_plan, promise
from seqkit.comparison.results import read_results
from seqkit.comparison.scores import METRICS
from seqkit.comparison.settings import Settings
from seqkit.comparison.stages import Plan
from seqkit.errors import UsageError
from seqkit.files import write_json
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
    return {path.relative_to(cells).as_posix(): path.stat().st_mtime_ns for path in cells.glob("**/*.json")}


@pytest.mark.slow
def test_cells_that_fail_are_in_the_table_and_the_others_finish(tmp_path):
    import seqkit.registry.plugins

    seqkit.registry.plugins.import_plugins([PLUGIN])
    backbones = ["Plain", "Diverges", "KillsItsProcess", "NeedsTooMuch"]
    results = compare("image/digits", backbones, out=tmp_path / "c", plugins=[str(PLUGIN)], jobs=2, **SMALL)
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
    again = compare("image/digits", backbones, out=tmp_path / "c", plugins=[str(PLUGIN)], jobs=2, **SMALL)
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
        assert row["gradient_flow"]
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


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_pretraining_comes_first_and_both_rankings_are_reported(tmp_path):
    from safetensors.torch import load_file

    small = {**SMALL, "lr_trials": 1}
    results = compare("image/digits", ["LSTM", "GRU"], out=tmp_path / "c", pretrain="masked", **small)
    groups = {row.name: row.group for row in results.candidates}
    assert groups["LSTM"] is None
    assert groups["LSTM + masked pretraining"] == "masked pretraining"
    assert all(row.mean is not None for row in results.candidates)
    assert "with masked pretraining" in (tmp_path / "c" / "results.md").read_text(encoding="utf-8")
    plain, pretrained = (
        load_file(tmp_path / "c" / "runs" / name / "seed-1" / "checkpoints" / "model.safetensors")
        for name in ("LSTM", "LSTM-masked-pretraining")
    )
    layers = [name for name in plain if name.startswith("backbone.")]
    assert max(float((pretrained[name] - plain[name]).abs().max()) for name in layers) > 1e-4  # they began elsewhere


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_any_key_can_be_what_differs_and_tokenizers_are_compared_by_bytes(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 200, encoding="utf-8")
    small = {**SMALL, "overrides": {"data.batch_size": 4, "trainer.max_steps": 2, "data.window": 16}}
    small["overrides"] |= {"data": str(text), "data.limit": None}
    results = compare(
        "text/char-lm", vary={"tokenizer": ["Characters", "Bytes"]}, out=tmp_path / "c", match="none", **small
    )
    assert results.metric.name == "bits_per_byte"
    assert all(0 < row.mean < 20 for row in results.candidates)


# ── finished runs ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("here")
def test_finished_runs_stand_side_by_side_and_what_else_differs_is_said(kept, tmp_path, capsys):
    folders = [str(kept / "runs" / name) for name in ("LSTM/seed-1", "LSTM/seed-2", "GRU/seed-1")]
    out = tmp_path / "c"
    assert main(["compare", *folders, "--out", str(out)]) == 0
    results = read(out)
    assert [[run["seed"] for run in row["runs"]] for row in results["candidates"]] == [[1, 2], [1]]
    found = {finding["what"]: finding["kind"] for finding in results["unmatched"]}
    assert found["seeds"] == found["tuning"] == "warning"
    for row, one in zip(results["candidates"], read(kept)["candidates"]):
        expected = [run["value"] for run in one["runs"]][: len(row["runs"])]
        assert [run["value"] for run in row["runs"]] == pytest.approx(expected)
    page = (out / "report.html").read_bytes()
    for words, fact in (
        ([folders[0], folders[1]], "seed"),
        ([folders[0], folders[0], folders[2]], "twice"),
        ([folders[0], folders[2], "--dry-run"], "--dry-run"),
        ([folders[0], folders[2], "--data.limit", "7"], "as they are"),
        ([folders[0], folders[2], "--out", str(out)], str(out)),
        ([folders[0], str(tmp_path)], str(tmp_path)),
    ):
        capsys.readouterr()
        assert main(["compare", *words]) == 2
        assert fact in capsys.readouterr().err
    assert (out / "report.html").read_bytes() == page


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("words", [{}, {"tokenizer.patch": 2}], ids=["equal tokens", "other tokens"])
def test_finished_runs_that_were_tested_on_other_examples_are_refused(kept, tmp_path, capsys, words):
    settings = {"data.limit": 39, "trainer.max_steps": 1, "trainer.max_epochs": None, **words}
    seqkit.fit("image/digits", settings, preset="debug", out=tmp_path / "a", report=False, strong_baseline=False)
    capsys.readouterr()
    assert main(["compare", str(kept / "runs" / "LSTM" / "seed-1"), str(tmp_path / "a")]) == 2
    assert "39 examples" in capsys.readouterr().err


# ── before anything runs ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_dry_run_prints_the_grid_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*WORDS, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "7 runs or more, of up to 4 steps" in out
    assert "runs/compare/image-digits-" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_plan_says_what_will_be_run_and_decided_and_binds_what_runs_in_its_folder(tmp_path, capsys):
    folder = tmp_path / "c"
    words = ["compare", "image/digits", "--preset", "debug", "--backbones", "LSTM,GRU", "--out", str(folder)]
    assert main([*words, "--plan", "--model.backbone.dim", "32", "--model.backbone.depth", "2"]) == 0
    assert "plan.md" in capsys.readouterr().out
    text = (folder / "plan.md").read_text(encoding="utf-8")
    for fact in (
        "seqkit compare image/digits", "Muon, 0.01, 0.003", "AdamW, 0.003", "layers of width", "accuracy of trials",
        "seeds 1 to 3", "test accuracy", "1 pair", "1001 and 1002",
    ):  # fmt: skip
        assert fact in text, fact
    assert not (folder / "runs").exists()


def test_a_folder_keeps_to_its_plan_and_a_plan_is_written_before_the_runs(tmp_path):
    small = ["--model.backbone.dim=8", "--model.backbone.depth=1"]
    settings = Settings(
        recipe="image/digits", preset="debug", overrides=small, backbones=["LSTM", "GRU"], match="none", lr_trials=0
    )
    plan, folder = make_plan(settings), tmp_path / "c"
    assert promise(plan, folder).sha256 == plan.sha256
    with pytest.raises(UsageError, match="seeds 3, not 5"):
        check_folder(folder, replace(plan, settings=replace(settings, seeds=5)))
    (folder / "cells").mkdir()
    write_json(folder / "cells" / "lr-1.json", {"metrics": {"loss": 1.0}})
    with pytest.raises(UsageError, match="begun"):
        promise(plan, folder)
    assert check_folder(folder, plan)["planned"]


def test_another_comparison_in_the_folder_is_refused_by_the_setting_that_differs(tmp_path):
    settings = Settings(recipe="image/digits", backbones=["LSTM", "GRU"])
    one = Plan(settings, [], METRICS["loss"])
    first = check_folder(tmp_path, one)
    assert check_folder(tmp_path, one) == first
    with pytest.raises(UsageError, match="seeds 3, not 5"):
        check_folder(tmp_path, replace(one, settings=replace(settings, seeds=5)))
    with pytest.raises(UsageError, match="changed"):
        check_folder(tmp_path, replace(one, metric=METRICS["rmse"]))
    for damaged in ({"settings": {}}, {"settings": 3, "sha256": "a", "started": ""}):
        write_json(tmp_path / "comparison.json", damaged)
        with pytest.raises(UsageError, match="damaged"):
            check_folder(tmp_path, one)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(UsageError, match="something else"):
        check_folder(other, one)


@pytest.mark.slow
def test_the_same_settings_of_a_recipe_that_was_edited_are_another_comparison(tmp_path):
    recipe = tmp_path / "my.yaml"
    data = "data: {source: digits, limit: 8}\ntokenizer: {type: Patches, patch: 4}\n"
    model = "model: {objective: Classify, backbone: {type: LSTM, dim: 8, depth: 1}}\n"
    prints = []
    for epochs in (1, 1, 2):
        recipe.write_text(f"{data}{model}trainer: {{max_epochs: {epochs}}}\n", encoding="utf-8")
        settings = Settings(recipe=str(recipe), backbones=["LSTM", "GRU"], match="none", lr_trials=0)
        prints.append(make_plan(settings).sha256)
    assert prints[0] == prints[1] != prints[2]


def test_the_same_command_has_the_same_folder_and_another_another():
    one, two = (Settings(recipe="image/digits", backbones=["LSTM", "GRU"], seeds=n) for n in (3, 4))
    assert default_folder(one) == default_folder(Settings(recipe="image/digits", backbones=["LSTM", "GRU"]))
    assert default_folder(one) != default_folder(two)


WRONG = {
    "image/digit": "image/digits",
    "image/digits text/char-lm": "folders",
    "image/digits --backbones LSTM": "one candidate",
    "image/digits --vary model.dropout": "two values",
    "image/digits --jobs 0": "--jobs is 0",
    "image/digits --threads -1": "--threads is -1",
    "image/digits --vary tokenizer={type:Patches,Bytes": "two values",
    "image/digits --vary tokenizer=Bytes,{type:BPE": "not readable",
    "graph/karate --data.source.valid_per_class 0 --data.source.per_class 1 --backbones LSTM,GRU": "--lr-trials 0",
    "image/digits --match memory": "flops",
    "image/digits --modle.dropout 1": "did you mean",
    "image/digits --preset debug --backbones LSTM,GRU --optimizer.lr fast": "optimizer.lr",
}


def test_a_wrong_command_is_one_line(capsys):
    for words, fact in WRONG.items():
        assert main(["compare", *words.split()]) == 2, words
        error = capsys.readouterr().err.strip()
        assert error.startswith("seqkit compare: "), words
        assert fact in error, words
        assert "\n" not in error, words
