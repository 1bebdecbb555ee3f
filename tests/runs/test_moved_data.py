"""Runs whose data has moved: the error names file, key and a command, and that command finds it, by all four doors."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from seqkit.cli.main import main
from seqkit.config import complete
from seqkit.errors import UsageError
from seqkit.runs.evaluate import evaluate
from seqkit.runs.mixture import evaluate_run
from seqkit.runs.run import run

COMMANDS = ["evaluate RUN", "report RUN", "attention RUN --example 1", "doctor RUN"]


def reviews(path, word):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"{('good', 'bad')[i % 2]} {word} {i},{i % 2}" for i in range(40)]
    path.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")


@pytest.fixture
def trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reviews(Path("old/train.csv"), "film")
    reviews(Path("old/test.csv"), "book")
    words = {
        "data": "old/train.csv",
        "data.test": "old/test.csv",
        "data.target": "label",
        "trainer.max_steps": 2,
    }
    words |= {"trainer.enable_progress_bar": False, "model.backbone": "Transformer"}
    run(complete("text/classify", "debug", words), Path("run"))
    (tmp_path / "else").mkdir()
    Path("old").rename("new folder")
    monkeypatch.chdir("else")
    return tmp_path


def command(words, folder):
    return [str(folder) if word == "RUN" else word for word in shlex.split(words)]


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_names_the_file_and_its_key_and_the_printed_command_works(
    trained, words, capfd
):
    folder = trained / "run"
    code = main(command(words, folder))
    said = capfd.readouterr().err
    if words == "report RUN":
        said = (folder / "report.html").read_text(encoding="utf-8")
    else:
        assert code != 0
    assert re.search(
        r"old/train\.csv does not exist \(data\.source\.path of \S+config\.yaml\)", said
    )
    way = re.findall(
        r"seqkit (\w+ \S+/run[^:]* --data) NEW", " ".join(re.sub("<[^>]+>", "", said).split())
    )[-1]
    assert main([*shlex.split(way), str(trained / "new folder" / "train.csv")]) in (0, 1)
    found = capfd.readouterr()
    assert "does not exist" not in found.out + found.err
    assert "has changed" not in found.out + found.err
    if words == "report RUN":
        page = (folder / "report.html").read_text(encoding="utf-8")
        assert "no examples are shown" not in page


def test_other_content_is_named_as_changed(trained, caplog):
    folder = trained / "run"
    place = str(trained / "new folder" / "train.csv")
    known = evaluate(folder, "test", moved_to=place)
    assert "has changed" not in caplog.text
    assert evaluate_run(folder, "test", moved_to=place) == {"": known}
    reviews(trained / "new folder" / "test.csv", "song")
    evaluate(folder, "test", moved_to=place)
    assert f"test data of {folder} has changed" in caplog.text


@pytest.mark.slow
def test_several_files_move_with_their_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        text = "".join(f"{name}{i} " for i in range(600))
        Path("texts").mkdir(exist_ok=True)
        Path(f"texts/{name}.txt").write_text(text, encoding="utf-8")
    words = {"data": "texts", "trainer.max_steps": 2, "trainer.enable_progress_bar": False}
    run(complete("text/char-lm", "debug", words), Path("run"))
    known = evaluate(Path("run"), "test")
    shutil.move("texts", "moved")
    assert evaluate(Path("run"), "test", moved_to="moved") == known


def test_places_that_are_none_and_data_without_a_file_are_refused(trained):
    digits = trained / "digits"
    words = {"trainer.max_steps": 1, "trainer.enable_progress_bar": False, "data.limit": 40}
    run(complete("image/digits", "debug", words), digits)
    with pytest.raises(UsageError, match="--data nowhere: there is no such file"):
        evaluate(trained / "run", "test", moved_to="nowhere")
    with pytest.raises(UsageError, match="no file of yours; leave out --data"):
        evaluate(Path(digits), "test", moved_to=str(trained))
    assert main(["report", str(trained / "run"), str(digits), "--data", str(trained)]) == 2
    assert main(["attention", str(trained / "run"), "--input", "x", "--data", str(trained)]) == 2
