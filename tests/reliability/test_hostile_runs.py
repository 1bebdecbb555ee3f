"""Damaged and hostile run folders are refused in one line by what reads them."""

import sys

import pytest
from PIL import Image
from reliability.hostile import ask, damage
from reliability.hostile_recipes import SENTINEL, recipe
from reliability.hostile_runs import CASES


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("sound")
    (folder / "sound.yaml").write_text(recipe(), encoding="utf-8")
    assert ask(["fit", str(folder / "sound.yaml"), "--out", str(folder / "run")]).code == 0
    return folder / "run"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder with a picture, and a module that nothing may import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{SENTINEL}.py").write_text("open('hostile', 'w').close()\n", encoding="utf-8")
    Image.new("L", (8, 8)).save(tmp_path / "one.png")
    return tmp_path


@pytest.mark.parametrize(("name", "file", "edit"), CASES, ids=[case[0][:70] for case in CASES])
def test_a_hostile_run_is_refused_in_one_line(run, folder, name, file, edit):
    copy = damage(run, folder, file, edit)
    for words in (["predict", str(copy), "one.png"], ["test", str(copy)]):
        answer = ask(words)
        assert not answer.faults, (words[0], answer)
    assert not (folder / "hostile").exists()
    assert SENTINEL not in sys.modules


def test_the_run_that_the_cases_damage_predicts(run, folder):
    answer = ask(["predict", str(damage(run, folder, "config.yaml", lambda content: content)), "one.png"])
    assert (answer.code, answer.done) == (0, [])
    assert answer.printed.startswith("one.png\t")
