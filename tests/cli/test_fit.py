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
