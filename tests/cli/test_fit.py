"""`seqkit.fit`: the command from Python, in one line."""

import json
import logging
import shutil
import sys

import pytest

import seqkit
from seqkit.cli.main import main
from seqkit.errors import UsageError
from seqkit.report.page import write_report
from seqkit.runs.folder import opened
from seqkit.runs.summary import read_summary

QUICK = {"trainer.enable_progress_bar": False, "trainer.accelerator": "cpu"}


@pytest.mark.slow
def test_a_recipe_is_trained_from_python(tmp_path, monkeypatch):
    monkeypatch.setattr("seqkit.report.page.write_report", write_report)
    keys = {"model.backbone": "LSTM", "trainer.max_steps": 2, **QUICK}
    for out in (tmp_path / "run", tmp_path / "without"):
        run = seqkit.fit("image/digits", keys, preset="debug", out=out, report=out.name == "run")
        assert (out / "report.html").is_file() == (out.name == "run")
    assert type(run.model.backbone).__name__ == "LSTM"
    assert run.summary["metrics"]["accuracy"] >= 0


@pytest.mark.parametrize("rank", ["0", "1"])
def test_of_several_processes_the_first_alone_speaks_of_the_data(monkeypatch, rank):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("RANK", rank)
    log, before = logging.getLogger("seqkit"), logging.getLogger("seqkit").level
    try:
        assert main(["fit", "graph/karate", "--print_config"]) == 0
        assert (log.level == logging.ERROR) == (rank == "1")
    finally:
        log.setLevel(before)


def test_a_size_of_the_data_that_is_refused_has_its_whole_key(tmp_path, capsys):
    (tmp_path / "own.csv").write_text("text,label\n" + "a fine film,good\nan awful film,bad\n" * 9)
    words = [
        "fit",
        "text/classify",
        "--data",
        str(tmp_path / "own.csv"),
        "--out",
        str(tmp_path / "run"),
    ]
    assert main([*words, "--data.batch_size", "-4"]) == 2
    assert "data.batch_size is -4" in capsys.readouterr().err


def test_a_mistake_is_an_error_with_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"did you mean model\.backbone"):
        seqkit.fit("image/digits", {"model.bakbone": "LSTM"}, out=tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    with pytest.raises(UsageError, match=str(tmp_path / "run")):
        seqkit.fit("image/digits", QUICK, preset="debug", out=tmp_path / "run")


@pytest.mark.parametrize("words", [[], ["--resume", "auto"]])
def test_an_empty_folder_of_ones_own_stays_where_a_run_fails(tmp_path, capsys, words):
    out = tmp_path / "mine"
    out.mkdir()
    for keys in (["--data.batch_size", "-4"], ["--tokenizer.patch", "5"]):
        assert main(["fit", "image/digits", *keys, "--out", str(out), *words]) in (2, 3)
        assert out.is_dir(), capsys.readouterr().err
    with pytest.raises(ValueError, match="too late"), opened(out, lambda: False):
        (out / "config.yaml").touch()
        (out / "checkpoints").mkdir()
        raise ValueError("too late for the components, too early for a step")
    assert not list(out.iterdir())


def test_what_a_resume_does_not_take_is_named(tmp_path, capsys):
    seqkit.fit(
        "graph/karate", {"trainer.enable_progress_bar": False}, preset="debug", out=tmp_path / "run"
    )
    capsys.readouterr()
    resume = ["fit", "--resume", str(tmp_path / "run")]
    for words, named in (
        (["--preset", "debug"], "--preset"),
        (["graph/karate", "--out", "x"], "graph/karate, --out"),
        (["--trainer.max_epochs", "3"], "is finished"),  # 3 is no recipe
    ):
        assert main([*resume, *words]) == 2
        said = capsys.readouterr().err
        assert named in said
        assert said.count("\n") == 1


DOCUMENTED = {
    "classical": "off",
    "trainer.skip_nonfinite": "10",
    "trainer.allow_broken_laws": "true",
    "trainer.checkpoint_every_minutes": "3",
    "trainer.checkpoint_every_n_steps": "2",
    "trainer.checkpoint_keep": "2",
    "trainer.enable_progress_bar": "false",
    "data.num_workers": "1",
}
"""Keys that a resumed run may be given anew, by docs/training.md, and a value for each."""


def stopped(folder):
    """A run whose end was lost: the last two of its three epochs are to be trained again."""
    keys = "--trainer.max_epochs 3 --trainer.checkpoint_every_n_steps 1 --trainer.enable_progress_bar false"
    assert (
        main(["fit", "graph/karate", "--preset", "debug", *keys.split(), "--out", str(folder)]) == 0
    )
    (folder / "summary.json").unlink()
    (folder / "checkpoints" / "model.safetensors").unlink()
    return ["fit", "--resume", str(folder)]


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unfinished") / "run"
    stopped(folder)
    return folder


@pytest.mark.parametrize("spelled", ["--{} {}", "--{}={}"])
def test_an_unfinished_run_goes_on_with_every_documented_key(unfinished, tmp_path, spelled, capsys):
    from seqkit.runs.run import MAY_CHANGE

    assert set(DOCUMENTED) == set(MAY_CHANGE)
    shutil.copytree(unfinished, tmp_path / "run")
    words = " ".join(spelled.format(key, value) for key, value in DOCUMENTED.items()).split()
    assert main(["fit", *words, "--resume", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 3


@pytest.mark.parametrize(
    "words", [["--seed", "2"], ["--trainer.max_epochs=9"], ["--trainer.skip_nonfinite", "some"]]
)
def test_any_other_key_is_refused_by_its_name(unfinished, words, capsys):
    assert main(["fit", "--resume", str(unfinished), *words]) == 2
    said = capsys.readouterr().err
    assert words[0].removeprefix("--").partition("=")[0] in said
    assert said.count("\n") == 1


def test_a_mistyped_key_of_a_resumed_run_is_answered_with_the_nearest(unfinished, capsys):
    assert main(["fit", "--resume", str(unfinished), "--trainer.max_stpes", "5"]) == 2
    assert "did you mean trainer.max_steps" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_diverged_goes_on_when_steps_may_be_skipped(tmp_path, capsys):
    (tmp_path / "nan_once.py").write_text(NAN_ONCE, encoding="utf-8")
    plugin = ["--plugin", str(tmp_path / "nan_once.py")]
    keys = [
        "--trainer.callbacks",
        "[NanOnce]",
        "--trainer.enable_progress_bar",
        "false",
        "--trainer.max_epochs",
        "4",
    ]
    out = tmp_path / "run"
    keys += ["--trainer.checkpoint_every_n_steps", "1"]
    fit = ["fit", "graph/karate", "--preset", "debug", *keys, "--out", str(out)]
    try:
        assert main([*fit, *plugin]) == 1
        assert main(["fit", "--resume", str(out), *plugin]) == 1, "the same again diverges again"
        assert main(["fit", "--resume", str(out), *plugin, "--trainer.skip_nonfinite", "10"]) == 0
    finally:
        sys.modules.pop("nan_once", None)
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["state"], summary["skipped_steps"]) == ("finished", 1)


NAN_ONCE = """
import torch
from pytorch_lightning import Callback
from seqkit import register

@register("callback")
class NanOnce(Callback):
    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        if trainer.global_step == 2:
            for weight in pl_module.parameters():
                if weight.grad is not None:
                    weight.grad.fill_(float("nan"))
"""


@pytest.mark.slow
def test_a_run_that_was_ended_before_its_first_checkpoint_begins_anew(tmp_path):
    quiet = ["--preset", "debug", "--trainer.enable_progress_bar", "false"]
    words = ["graph/karate", *quiet, "--out", str(tmp_path / "a")]
    assert main(["fit", *words]) == 0
    for name in ("summary.json", "checkpoints"):
        (tmp_path / "a" / name).rename(tmp_path / f"old-{name}")
    assert main(["fit", *words]) == 2, "an unfinished run is not overwritten"
    assert main(["fit", *words, "--resume", "auto"]) == 0
    assert (tmp_path / "a" / "summary.json").is_file()
    for name in ("summary.json", "checkpoints"):
        assert (tmp_path / f"old-{name}").exists()


@pytest.mark.slow
def test_a_run_that_is_finished_is_not_trained_again_by_a_job_that_is_requeued(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    fit = [
        "fit",
        "graph/karate",
        "--preset",
        "debug",
        "--trainer.enable_progress_bar",
        "false",
        "--resume",
        "auto",
    ]
    assert main([*fit, "--out", "mine"]) == 0
    before = (tmp_path / "mine" / "summary.json").read_bytes()
    assert main([*fit, "--out", "mine"]) == 0
    assert (tmp_path / "mine" / "summary.json").read_bytes() == before
    assert main([*fit, "--out", "mine", "--seed", "3"]) == 2, (
        "another configuration's folder is not taken for it"
    )
    # stopped between training and test
    summary = json.loads(before) | {"state": "trained", "metrics": {}, "baseline": {}}
    (tmp_path / "mine" / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    assert main([*fit, "--out", "mine"]) == 0, capsys.readouterr().err
    assert json.loads((tmp_path / "mine" / "summary.json").read_text())["state"] == "finished"
    assert main(fit) == 2, "auto looks in a folder"


def test_predictions_are_cut_as_training_was(tmp_path):
    (tmp_path / "mine.csv").write_text("text,label\n" + "ab ab,x\nba ba,y\n" * 20, encoding="utf-8")
    keys = {**QUICK, "data": str(tmp_path / "mine.csv"), "data.max_tokens": 4, "tokenizer": "Bytes"}
    run = seqkit.fit("text/classify", keys, preset="debug", out=tmp_path / "run")
    assert run.predict(["ab ab", "ab a then much else"])[0] == run.predict(["ab a"])[0]
    assert [len(run.encode(text)) for text in ("ab ab", "ab")] == [4, 2]


@pytest.mark.parametrize(
    ("words", "steps", "is_beside"),
    [
        ([], 60, True),
        (["--data.limit", "500"], 60, True),
        (["--classical", "off"], 60, False),
        (["--no-baseline"], 60, False),
        ([], 3, False),
    ],
)
@pytest.mark.slow
def test_a_specialist_is_set_beside_a_run_but_not_beside_a_trial(
    tmp_path, capsys, words, steps, is_beside
):
    pytest.importorskip("sklearn")
    rows = "".join(
        f"{'good' if i % 2 else 'bad'} thing number {i},{'yes' if i % 2 else 'no'}\n"
        for i in range(60)
    )
    (tmp_path / "t.csv").write_text("text,label\n" + rows, encoding="utf-8")
    small = ["--model.backbone", "MeanPool", "--model.backbone.dim", "8", "--data.batch_size", "6"]
    command = ["fit", "text/classify", "--data", str(tmp_path / "t.csv"), *small, *words]
    assert main([*command, "--trainer.max_steps", str(steps), "--out", str(tmp_path / "run")]) == 0
    summary = read_summary(tmp_path / "run")
    assert ("strong_baseline" in summary) == is_beside
    assert ("100.00 %, logistic regression" in capsys.readouterr().out) == is_beside
    if is_beside:
        assert summary["strong_baseline"]["metrics"]["accuracy"] == 1.0
