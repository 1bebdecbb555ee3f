"""Hostile recipes are refused in one line: nothing runs, nothing is imported or made, nothing takes the memory."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from reliability.hostile import ask, put_recipe, watched
from reliability.hostile_recipes import CASES, GROUPS, SENTINEL, recipe


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that is the current one, and on Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def check_refused(folder, cases):
    for name, content in cases:
        answer = put_recipe(folder, content)
        assert not answer.faults, (name, answer)
        assert SENTINEL not in sys.modules, name


@pytest.mark.parametrize("group", [group for group in GROUPS if group != "names"])
def test_hostile_recipes_are_refused_in_one_line(folder, group):
    check_refused(folder, GROUPS[group])


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_names_of_what_is_no_component_are_refused_in_one_line(folder, part):
    """Every fifth case has each name, and each place for one; the others are their products."""
    cases = GROUPS["names"]
    check_refused(folder, [case for i, case in enumerate(cases) if bool(i % 5) == bool(part)])


def test_there_are_many_cases_and_each_is_another():
    assert len(CASES) >= 500
    assert len({name for name, _ in CASES}) == len({content for _, content in CASES}) == len(CASES)


@pytest.mark.slow
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
