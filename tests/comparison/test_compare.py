"""Whole comparisons: failing cells, killed processes, the command line, what is refused."""

import json
import os
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqkit import compare
from seqkit.cli.main import main
from seqkit.comparison.compare import check_folder, default_folder, prepare
from seqkit.comparison.settings import Settings
from seqkit.errors import UsageError
from seqkit.files import write_json

PLUGIN = Path(__file__).with_name("faulty_backbones.py")
KILLS = int(os.environ.get("SEQKIT_KILLS", "1"))
"""How often the comparison is killed before it may end; the closing figure was taken with 10."""

SMALL = {
    "preset": "debug",
    "overrides": {"data.limit": 60, "optimizer": "AdamW"},
    "lr_trials": 2,
    "seeds": 2,
    "measure": False,
    "threads": 1,
}


def weights(runs):
    """Of the model that a candidate trained with the first seed."""
    from safetensors.torch import load_file

    return load_file(runs / "seed-1" / "checkpoints" / "model.safetensors")


def means(results):
    return {row["name"]: row["mean"] for row in results["candidates"]}


@pytest.mark.slow
def test_cells_that_fail_are_in_the_table_and_the_others_finish(tmp_path):
    import seqkit.registry.plugins

    seqkit.registry.plugins.import_plugins([PLUGIN])
    backbones = ["Plain", "Diverges", "KillsItsProcess", "NeedsTooMuch", "GRU"]
    small = SMALL | {"lr_trials": 0, "seeds": 1}
    results = compare("image/digits", backbones, out=tmp_path / "c", plugins=[str(PLUGIN)], jobs=2, **small)
    rows = {row["name"]: row for row in results["candidates"]}
    for name in ("Plain", "GRU"):
        assert rows[name]["mean"] is not None
        assert [run["error"] for run in rows[name]["runs"]] == [None]
    reasons = {"Diverges": "the loss is nan", "KillsItsProcess": "killed by signal 9", "NeedsTooMuch": "out of memory"}
    for name, reason in reasons.items():
        assert rows[name]["mean"] is None
        assert reason in rows[name]["error"].lower()
        assert name in next(sentence for sentence in results["answers"] if "have no result" in sentence)
    assert len(results["failures"]) == 3
    page = (tmp_path / "c" / "report.html").read_text(encoding="utf-8")
    assert all(reason in page for reason in ("killed by signal 9", "out of memory"))
    assert not list((tmp_path / "c" / "runs").glob("*/.*"))  # nothing half done
    kept = {path.parent.name for path in (tmp_path / "c" / "runs").glob("*/seed-1")}
    assert kept == {"Plain", "GRU"}
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "c" / "cells").glob("**/*.json")}
    again = compare("image/digits", backbones, out=tmp_path / "c", plugins=[str(PLUGIN)], jobs=2, **small)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "c" / "cells").glob("**/*.json")} == written
    assert again["candidates"] == results["candidates"]
    lines = (tmp_path / "c" / "results.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 5


def words_of(folder, jobs=1):
    words = ["compare", "image/digits", "--preset", "debug", "--backbones", "LSTM,GRU", "--lr-trials", "2"]
    words += ["--seeds", "1", "--no-measure", "--threads", "1", "--jobs", jobs, "--data.limit", "60"]
    words += ["--trainer.max_steps", "4", "--trainer.max_epochs", "null"]
    words += ["--optimizer", "AdamW", "--no-depths", "--out", folder]
    return list(map(str, words))


@pytest.mark.slow
def test_a_comparison_that_is_killed_and_resumed_ends_with_the_same_table(tmp_path, capsys):
    """The one that is killed is a process of its own and runs two cells at a time; the others run one."""
    assert main(words_of(tmp_path / "whole")) == 0
    assert "report" in capsys.readouterr().out
    rng, folder, done = random.Random(0), tmp_path / "killed", 0
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-m", "seqkit", *words_of(folder, jobs=2)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        wanted, deadline = done + rng.randint(0, 1), time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if len(list(folder.glob("cells/**/*.json"))) >= wanted:
                time.sleep(2 * rng.random())
                break
            time.sleep(0.05)
        process.kill()  # its workers see that it has gone
        process.wait()
        done = len(list(folder.glob("cells/**/*.json")))
    assert main(words_of(folder)) == 0
    one, two = (json.loads((tmp_path / name / "results.json").read_bytes()) for name in ("whole", "killed"))
    assert means(one) == means(two)
    assert one["differences"] == two["differences"]
    for a, b in zip(one["candidates"], two["candidates"]):
        assert a["chosen"] == b["chosen"]
        assert a["trials"] == b["trials"]
    assert not list(folder.glob("runs/*/.*"))
    # shorter runs are added to what is there
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("cells/**/*.json")}
    assert main([*words_of(folder), "--run-shares", "0.5"]) == 0
    written = {path: path.stat().st_mtime_ns for path in folder.glob("cells/**/*.json")}
    assert kept.items() <= written.items()
    assert {path.stem for path in written.keys() - kept.keys()} == {"share-0.5-seed-1"}
    curves = json.loads((folder / "results.json").read_bytes())
    assert means(curves) == means(one)
    for row in curves["candidates"]:
        half, whole_run = row["by_steps"]
        assert (2 * half["steps"], whole_run["mean"]) == (whole_run["steps"], row["mean"])
    assert len(curves["exchange_rates"]) == 1
    assert "Results by length of training" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_pretraining_comes_first_and_both_rankings_are_reported(tmp_path):
    small = {**SMALL, "lr_trials": 1, "seeds": 1}
    results = compare("image/digits", ["LSTM", "GRU"], out=tmp_path / "c", pretrain="masked", jobs=2, **small)
    groups = {row["name"]: row["group"] for row in results["candidates"]}
    assert groups["LSTM"] is None
    assert groups["LSTM + masked pretraining"] == "masked pretraining"
    assert all(row["mean"] is not None for row in results["candidates"])
    assert "with masked pretraining" in (tmp_path / "c" / "results.md").read_text(encoding="utf-8")
    plain, pretrained = (weights(tmp_path / "c" / "runs" / name) for name in ("LSTM", "LSTM-masked-pretraining"))
    layers = [name for name in plain if name.startswith("backbone.")]
    assert max(float((pretrained[name] - plain[name]).abs().max()) for name in layers) > 1e-4  # they began elsewhere


@pytest.mark.slow
def test_any_key_can_be_what_differs_and_tokenizers_are_compared_by_bytes(tmp_path):
    overrides = {"data.batch_size": 4, "trainer.max_steps": 2, "data.window": 16}
    small = {**SMALL, "overrides": overrides, "lr_trials": 1, "seeds": 1}
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 200, encoding="utf-8")
    small["overrides"] |= {"data": str(text), "data.limit": None}
    results = compare(
        "text/char-lm", vary={"tokenizer": ["Characters", "Bytes"]}, out=tmp_path / "c", match="none", **small
    )
    assert results["metric"]["name"] == "bits_per_byte"
    assert all(0 < row["mean"] < 20 for row in results["candidates"])


@pytest.mark.slow
def test_finished_runs_stand_side_by_side_and_what_else_differs_is_said(tmp_path, capsys):
    import seqkit

    for name, words in (("one", {"seed": 1}), ("two", {"seed": 2}), ("wide", {"data.batch_size": 32})):
        seqkit.fit("image/digits", {"data.limit": 60, **words}, preset="debug", out=tmp_path / name)
    folders = [str(tmp_path / name) for name in ("one", "two", "wide")]
    assert main(["compare", *folders, "--out", str(tmp_path / "c")]) == 0
    results = json.loads((tmp_path / "c" / "results.json").read_bytes())
    assert [[run["seed"] for run in row["runs"]] for row in results["candidates"]] == [[1, 2], [1]]
    found = {finding["what"]: finding["kind"] for finding in results["unmatched"]}
    assert found["data.batch_size"] == found["seeds"] == found["tuning"] == "warning"
    accuracy = json.loads((tmp_path / "wide" / "summary.json").read_bytes())["metrics"]["accuracy"]
    assert results["candidates"][1]["mean"] == pytest.approx(accuracy)
    for name, words in (("fewer", {}), ("fewer, of other tokens", {"tokenizer.patch": 2})):
        seqkit.fit("image/digits", {"data.limit": 59, **words}, preset="debug", out=tmp_path / name)
        capsys.readouterr()
        assert main(["compare", folders[0], str(tmp_path / name), "--out", str(tmp_path / "d")]) == 2
        said = capsys.readouterr().err
        assert "tested on other examples" in said
        assert "59 examples" in said
    assert main(["compare", folders[0], folders[1], "--out", str(tmp_path / "d")]) == 2
    assert "differ in their seed at most" in capsys.readouterr().err
    before = (tmp_path / "one" / "report.html").read_bytes()
    for words, message in (
        ([folders[0], folders[0], folders[2]], "a run is given twice"),
        ([folders[0], folders[2], "--seeds", "7"], "finished runs take no --seeds"),
        ([folders[0], folders[2], "--dry-run"], "finished runs take no --dry-run"),
        ([folders[0], folders[2], "--out", folders[0]], "holds something else"),
    ):
        assert main(["compare", *words]) == 2
        assert message in capsys.readouterr().err
    assert (tmp_path / "one" / "report.html").read_bytes() == before
    assert main(["compare", *folders, "--out", str(tmp_path / "c")]) == 0  # the same runs again


def test_a_dry_run_prints_the_grid_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["compare", "image/digits", "--preset", "debug", "--backbones", "Transformer,GRU", "--dry-run"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "3 learning rates of Muon and AdamW" in out
    assert "31 runs; about" in out
    assert "runs/compare/image-digits-" in out
    assert list(tmp_path.iterdir()) == []


def test_a_plan_says_what_will_be_run_and_decided_and_binds_what_runs_in_its_folder(tmp_path, capsys):
    folder = tmp_path / "c"
    words = ["compare", "image/digits", "--preset", "debug", "--backbones", "Transformer,GRU", "--out", str(folder)]
    assert main([*words, "--plan"]) == 0
    assert capsys.readouterr().out.strip().endswith("plan.md")
    text = (folder / "plan.md").read_text(encoding="utf-8")
    assert shlex.join(["seqkit", *words[:-2]]) in text
    decides = "The measure is the test accuracy of the whole test split; higher is better"
    for said in (
        "optimizer.lr 0.01; optimizer.adamw.lr 0.003",
        "AdamW",
        "8 layers of width",
        "the seeds 1 to 3",
        decides,
    ):
        assert said in text
    assert "for 1 pair." in text
    assert "1001 and 1002" in text
    assert not (folder / "runs").exists()
    assert main([*words, "--seeds", "5", "--dry-run"]) == 0
    assert main([*words, "--seeds", "5"]) == 2  # another comparison than the planned one
    assert "seeds 3, not 5" in capsys.readouterr().err
    (folder / "cells" / "GRU").mkdir(parents=True)
    write_json(folder / "cells" / "GRU" / "lr-1.json", {"metrics": {"loss": 1.0}})
    assert main([*words, "--plan"]) == 2
    assert "has begun" in capsys.readouterr().err


def test_another_comparison_in_the_folder_is_refused_by_the_setting_that_differs(tmp_path):
    settings = Settings(recipe="image/digits", backbones=["LSTM", "GRU"])
    first = check_folder(tmp_path, settings, "a")
    assert check_folder(tmp_path, settings, "a") == first
    with pytest.raises(UsageError, match="with seeds 3, not 5"):
        check_folder(tmp_path, Settings(recipe="image/digits", backbones=["LSTM", "GRU"], seeds=5), "a")
    with pytest.raises(UsageError, match="the recipe, a plug-in or the rules of tuning have changed"):
        check_folder(tmp_path, settings, "b")
    for damaged in ({"settings": {}}, {"settings": 3, "fingerprint": "a", "started": ""}):
        write_json(tmp_path / "comparison.json", damaged)
        with pytest.raises(UsageError, match="damaged"):
            check_folder(tmp_path, settings, "a")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(UsageError, match="something else"):
        check_folder(other, settings, "a")


def test_the_same_settings_of_a_recipe_that_was_edited_are_another_comparison(tmp_path):
    recipe = tmp_path / "my.yaml"
    written = "data: {source: digits, limit: 40}\ntokenizer: {type: Patches, patch: 4}\n"
    written += "model: {objective: Classify, backbone: {type: LSTM, dim: 8, depth: 1}}\ntrainer: {max_epochs: EPOCHS}\n"
    prints = []
    for epochs in (1, 1, 2):
        recipe.write_text(written.replace("EPOCHS", str(epochs)), encoding="utf-8")
        prints.append(prepare(Settings(recipe=str(recipe), backbones=["LSTM", "GRU"])).fingerprint)
    assert prints[0] == prints[1] != prints[2]


def test_the_same_command_has_the_same_folder_and_another_another():
    one, two = (Settings(recipe="image/digits", backbones=["LSTM", "GRU"], seeds=n) for n in (3, 4))
    assert default_folder(one) == default_folder(Settings(recipe="image/digits", backbones=["LSTM", "GRU"]))
    assert default_folder(one) != default_folder(two)


ONE_NODE_A_CLASS = ["--data.source.valid_per_class", "0", "--data.source.per_class", "1"]
"""Of so few no validation nodes can be set aside."""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["image/digit"], "did you mean image/digits"),
        (["image/digits", "text/char-lm"], "give one recipe, or several folders"),
        (["image/digits", "--backbones", "LSTM"], "one candidate only"),
        (["image/digits", "--vary", "model.dropout"], "give a key and two values"),
        (["image/digits", "--jobs", "0"], "--jobs is 0"),
        (["image/digits", "--threads", "-1"], "--threads is -1"),
        (["image/digits", "--vary", "tokenizer={type: Patches,Bytes"], "give a key and two values"),
        (["image/digits", "--vary", "tokenizer=Bytes,{type: BPE"], "is not readable"),
        (["graph/karate", *ONE_NODE_A_CLASS, "--backbones", "LSTM,GRU"], "--lr-trials 0"),
        (["image/digits", "--match", "memory"], "give parameters, flops, time, none"),
        (["image/digits", "--modle.dropout", "1"], "did you mean"),
        (["image/digits", "--preset", "debug", "--backbones", "LSTM,GRU", "--optimizer.lr", "fast"], "optimizer.lr"),
    ],
)
def test_a_wrong_command_is_one_line(words, message, capsys):
    assert main(["compare", *words]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert error.startswith("seqkit compare: ")
    assert "\n" not in error
