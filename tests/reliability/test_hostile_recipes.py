"""Hostile recipes are refused in one line: nothing runs, nothing is imported or made, nothing takes the memory."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from reliability.hostile import ask, put_recipe, watched
from reliability.hostile_recipes import CASES, SENTINEL, recipe


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that is the current one, and on Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("name", "content"), CASES, ids=[name[:60] for name, _ in CASES])
def test_a_hostile_recipe_is_refused_in_one_line(folder, name, content):
    answer = put_recipe(folder, content)
    assert not answer.faults, answer
    assert SENTINEL not in sys.modules


def test_there_are_many_cases_and_each_is_another():
    assert len(CASES) >= 500
    assert len({name for name, _ in CASES}) == len({content for _, content in CASES}) == len(CASES)


def test_the_recipe_that_the_cases_change_trains(folder):
    (folder / "sound.yaml").write_text(recipe(), encoding="utf-8")
    answer = ask(["fit", "sound.yaml", "--out", "run"])
    assert answer.code == 0, answer.said
    assert (folder / "run" / "summary.json").is_file()


def test_what_a_hostile_recipe_would_do_is_seen(folder):
    (folder / f"{SENTINEL}.py").write_text("", encoding="utf-8")
    with watched() as done:
        os.system("true")
        subprocess.run(["true"], check=True)
        importlib.import_module(SENTINEL)
        Path("/dev/zero").open("rb").close()
    del sys.modules[SENTINEL]
    assert [event.split()[0] for event in done if "uname" not in event][:1] == ["os.system"]
    assert {"subprocess.Popen", "import", "open"} <= {event.split()[0] for event in done}
    with watched() as done:
        pass
    os.system("true")
    assert done == []
