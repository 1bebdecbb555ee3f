"""Damaged and hostile run folders are refused in one line by what reads them."""

import shutil
import sys

import pytest
from PIL import Image
from reliability.hostile import ask, damage
from reliability.hostile_recipes import SENTINEL, recipe
from reliability.hostile_runs import CASES, CONFIG, STATE, SUMMARY, WEIGHTS


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


@pytest.mark.parametrize("is_rest", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "changed",
    [CONFIG, *(pytest.param(x, marks=pytest.mark.slow) for x in (STATE, SUMMARY, WEIGHTS))],
)
def test_hostile_runs_are_refused_in_one_line(run, folder, changed, is_rest):
    """Both commands load a run alike, so `test` gets every tenth case at first; of names, so does `predict`."""
    for i, (name, file, edit) in enumerate(CASES):
        is_first = {"predict": i % 10 == 0 or " names " not in name, "evaluate": i % 10 == 0}
        commands = [command for command in is_first if is_first[command] != is_rest]
        if file != changed or not commands:
            continue
        copy = damage(run, folder, file, edit)
        for command in commands:
            answer = ask([command, str(copy), *(["one.png"] if command == "predict" else [])])
            assert not answer.faults, (name, command, answer)
        assert not (folder / "hostile").exists(), name
        assert SENTINEL not in sys.modules, name
        shutil.rmtree(copy)


def test_the_run_that_the_cases_damage_predicts(run, folder):
    answer = ask(
        ["predict", str(damage(run, folder, "config.yaml", lambda content: content)), "one.png"]
    )
    assert (answer.code, answer.done) == (0, [])
    assert answer.printed.startswith("one.png\t")
