"""`seqkit.fit`: the command from Python, in one line."""

import pytest

import seqkit
from seqkit.cli.main import main
from seqkit.errors import UsageError

QUICK = {"trainer.enable_progress_bar": False, "trainer.accelerator": "cpu"}


def test_a_recipe_is_trained_from_python_and_shows_itself(tmp_path):
    out = tmp_path / "run"
    run = seqkit.fit("image/digits", {"model.backbone": "LSTM", **QUICK}, preset="debug", out=out)
    assert type(run.model.backbone).__name__ == "LSTM"
    assert run.summary["metrics"]["accuracy"] >= 0
    assert (out / "report.html").is_file()
    assert run._repr_html_() == (out / "summary.html").read_text(encoding="utf-8")
    (out / "summary.html").unlink()
    assert "<td>accuracy</td>" in seqkit.load(out)._repr_html_()


def test_a_mistake_is_an_error_with_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"did you mean model\.backbone"):
        seqkit.fit("image/digits", {"model.bakbone": "LSTM"}, out=tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    with pytest.raises(UsageError, match="exists already"):
        seqkit.fit("image/digits", QUICK, preset="debug", out=tmp_path / "run")


def test_what_a_resume_does_not_take_is_named(tmp_path, capsys):
    seqkit.fit("graph/karate", {"trainer.enable_progress_bar": False}, preset="debug", out=tmp_path / "run")
    capsys.readouterr()
    resume = ["fit", "--resume", str(tmp_path / "run")]
    for words, named in (
        (["--preset", "debug"], "leave out --preset"),
        (["graph/karate", "--out", "x"], "leave out graph/karate, --out"),
        (["--trainer.max_epochs", "3"], "has trained to its end"),  # 3 is no recipe
    ):
        assert main([*resume, *words]) == 2
        said = capsys.readouterr().err
        assert named in said
        assert said.count("\n") == 1


def test_a_run_that_was_ended_before_its_first_checkpoint_begins_anew(tmp_path, capsys, caplog):
    words = [
        "graph/karate",
        "--preset",
        "debug",
        "--trainer.enable_progress_bar",
        "false",
        "--out",
        str(tmp_path / "a"),
    ]
    assert main(["fit", *words]) == 0
    for name in ("summary.json", "checkpoints"):
        (tmp_path / "a" / name).rename(tmp_path / f"old-{name}")
    assert main(["fit", *words]) == 2, "an unfinished run is not overwritten"
    assert main(["fit", *words, "--resume", "auto"]) == 0
    assert (tmp_path / "a" / "summary.json").is_file()
    assert (tmp_path / "a-without-checkpoint-1" / "config.yaml").is_file()
    assert "ended before its first checkpoint" in caplog.text
    for name in ("summary.json", "checkpoints"):
        assert (tmp_path / f"old-{name}").exists()


def test_predictions_are_cut_as_training_was(tmp_path):
    (tmp_path / "mine.csv").write_text("text,label\n" + "ab ab,x\nba ba,y\n" * 20, encoding="utf-8")
    keys = {**QUICK, "data": str(tmp_path / "mine.csv"), "data.max_tokens": 4, "tokenizer": "Bytes"}
    run = seqkit.fit("text/classify", keys, preset="debug", out=tmp_path / "run")
    assert run.predict(["ab ab", "ab a then much else"])[0] == run.predict(["ab a"])[0]
    assert [len(run.encode(text)) for text in ("ab ab", "ab")] == [4, 2]
