"""`make demo`: every recipe is tried, and one that fails does not hide the others."""

import json
import signal
import warnings

import pytest
import yaml

from seqkit.errors import Interrupted
from seqkit.report import demo


@pytest.fixture
def recipe(config, tmp_path):
    """A small recipe of that kind as a file."""

    def write(kind):
        path = tmp_path / f"{kind.replace(' ', '-')}.yaml"
        preset = {"presets": {"demo": {"seed": 5}}}
        path.write_text(f"# About {kind}.\n{yaml.safe_dump(config(tmp_path, kind) | preset)}", encoding="utf-8")
        return str(path)

    return write


def main(*arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers, loops and folders
        return demo.main(arguments)


def test_a_failing_recipe_hides_no_other_but_the_code_is_1(recipe, tmp_path, capsys):
    good, other = recipe("regress"), recipe("classify")
    code = main("nobody/knows", good, other, "--out", str(tmp_path / "out"))
    printed = capsys.readouterr().out
    assert code == 1
    assert "FAILED nobody/knows: there is no recipe called 'nobody/knows'" in printed
    assert "About regress." in printed
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for text in ("nobody/knows: there is no recipe", "test/regress", "test/classify"):
        assert text in page
    summaries = list((tmp_path / "out").rglob("summary.json"))
    assert len(summaries) == 2
    assert all(json.loads(path.read_text(encoding="utf-8"))["seed"] == 5 for path in summaries)  # the preset's


def test_a_recipe_that_is_stopped_ends_the_demo(recipe, tmp_path, capsys, monkeypatch):
    good, other = recipe("regress"), recipe("classify")
    began = []

    def stop(config, folder):
        began.append(folder)
        raise Interrupted("SIGINT: stopped after step 2 of 3", signal.SIGINT)

    monkeypatch.setattr(demo, "run", stop)
    assert main(good, other, "--out", str(tmp_path / "out")) == 1
    assert "SIGINT: stopped after step 2 of 3" in capsys.readouterr().out
    assert len(began) == 1


def test_when_all_went_well_the_code_is_0(recipe, tmp_path):
    assert main(recipe("regress"), "--out", str(tmp_path / "out")) == 0


def test_the_demo_shows_each_modality_once():
    assert [name.split("/")[0] for name in demo.RECIPES] == ["text", "image", "audio", "graph"]
