"""A screen: which comparisons it is, what it refuses, its page from made-up results, and one that runs."""

import shlex
from dataclasses import replace

import pytest

import seqkit
from seqkit.cli.main import main
from seqkit.comparison.screen import RECIPE, screen_settings
from seqkit.comparison.types import Unmatched
from seqkit.config import read_recipe
from seqkit.errors import UsageError
from seqkit.report.screen import ABILITIES, overview, write_screen
from tests.report.synthetic_results import candidate, comparison, difference

TASKS = {task: one for task, one in read_recipe(RECIPE)[1].items() if task != "debug"}
SHORT = {
    "trainer.max_steps": 2,
    "trainer.val_check_interval": 1,
    "data.limit": 24,
    "schedule.warmup_steps": 1,
}


def test_every_task_is_a_comparison_beside_the_same_rivals():
    found = screen_settings(["MinGRU", "LSTM"], lr_trials=5)
    assert found.keys() == TASKS.keys() == ABILITIES.keys()
    for task, one in found.items():
        assert one.backbones == ["Transformer", "LSTM", "Mamba", "MinGRU"]
        assert (one.recipe, one.preset, one.lr_trials) == (RECIPE, task, 5)


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ({"vary": {"model.dropout": ["0", "0.1"]}}, "takes no --vary"),
        ({"preset": "parity"}, "takes no --preset"),
        ({"overrides": ["--data", "texts.csv"]}, "--data would change"),
        ({"overrides": ["--data.source.length=9"]}, "--data.source.length would change"),
        ({"overrides": ["--tokenizer.vocab_size", "9"]}, "--tokenizer.vocab_size would change"),
        ({"overrides": ["--model.objective", "Regress"]}, "--model.objective would change"),
        ({"overrides": ["--seed", "3"]}, "--seed would change"),
    ],
)
def test_what_would_change_the_tasks_is_refused(settings, fact):
    with pytest.raises(UsageError, match=fact) as error:
        screen_settings(["MinGRU"], **settings)
    assert "\n" not in str(error.value)


def test_keys_of_training_and_of_the_model_are_of_every_task():
    words = ["--trainer.max_steps", "400", "--data.batch_size=16", "--data.limit", "9"]
    assert all(one.overrides == words for one in screen_settings([], overrides=words).values())


@pytest.mark.slow
def test_the_command_line_refuses_in_one_line(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    for words, fact in (
        (["--vary", "model.dropout=0,0.1"], "takes no --vary"),
        (["--out", str(tmp_path)], "something else than a screen"),
        (["--out", str(tmp_path / "mine.txt")], "give another --out"),
        (["--jobs", "0"], "--jobs is 0"),
        (["--tuning-seeds", "3"], "give 1 or 2"),
        (["--backbones", "MinGRUU"], "MinGRU"),
    ):
        assert main(["compare", "screen", *words]) == 2
        said = capsys.readouterr().err
        assert fact in said
        assert said.count("\n") == 1


@pytest.fixture
def made_up():
    """Two tasks: in the second, one candidate failed."""
    first = comparison(3)
    warning = Unmatched(kind="warning", what="seeds", text="One seed only.")
    second = replace(comparison(3, failed=(2,)), unmatched=[warning, *first.unmatched])
    return {"copy": first, "parity": second}


def test_the_table_has_the_verdicts_of_the_tasks(made_up):
    table = overview(made_up)
    assert table.head == ["task", "best constant", "Transformer", "LSTM", "GRU"]
    for row, results in zip(table.rows, made_up.values(), strict=True):
        assert row[1].text == "10.00"
        for name, cell in zip(table.head[2:], row[2:]):
            worse = {
                one.b if one.a == name else one.a
                for one in results.differences
                if one.better == name
            }
            assert worse == {
                other for other in table.head[2:] if f"{other}" in cell.small.partition("than")[2]
            }
    assert [cell.style for cell in table.rows[0][2:]] == ["best", "", ""]
    assert table.rows[1][4][:2] == ("failed", "no seed finished: loss is NaN at step 12")


def test_a_candidate_that_breaks_a_law_is_better_than_none():
    rows = [replace(candidate(0), broken=["it reads the future"]), candidate(1)]
    results = replace(
        comparison(2), candidates=rows, differences=[replace(difference(*rows), better=None)]
    )
    cell = overview({"copy": results}).rows[0][2]
    assert (cell.small, cell.style) == ("breaks a law", "")


def test_the_page_names_tasks_chance_rates_and_what_was_not_matched(made_up, tmp_path):
    page = write_screen(tmp_path, made_up, "seqkit compare screen --backbones GRU", 5)
    html = page.read_text(encoding="utf-8")
    for task, results in made_up.items():
        assert f'<a href="{task}/report.html">' in html
        assert ABILITIES[task] in html
        for finding in results.unmatched:
            assert html.count(finding.text) == 1
    assert "(copy and parity)" in html
    assert "2 of 5 tasks" in html
    markdown = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| task | best constant | Transformer | LSTM | GRU |\n| --- |" in markdown
    assert "$ seqkit compare screen --backbones GRU\n" in markdown
    rows = (tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + 2 * 3
    assert "0.003" in rows[1]
    assert "better than LSTM and GRU" in html


def test_in_python_the_files_of_the_candidates_are_imported(tmp_path):
    with pytest.raises(UsageError, match=r"plugins: .*mine.py is no file"):
        seqkit.compare("screen", ["Mine"], plugins=[str(tmp_path / "mine.py")])
    with pytest.raises(UsageError, match="takes no --vary"):
        seqkit.compare("screen", ["MinGRU"], vary={"model.dropout": [0.0, 0.1]})


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_screen_runs_goes_on_and_its_command_is_the_same_screen(tmp_path, capsys):
    folder = tmp_path / "screen"
    arguments = {"overrides": SHORT, "seeds": 1, "lr_trials": 0, "threads": 1}
    results = seqkit.compare("screen", ["MinGRU"], out=folder, **arguments)
    assert results.keys() == TASKS.keys()
    names = ["Transformer", "LSTM", "Mamba", "MinGRU"]
    assert all(list(one.by_name) == names for one in results.values())
    assert all(abs(row.budget_gap) < 0.02 for one in results.values() for row in one.candidates)
    command = next(
        line
        for line in (folder / "results.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("$")
    )
    words = shlex.split(command)[2:]
    cells = {path: path.stat().st_mtime_ns for path in folder.glob("*/cells/**/*.json")}
    assert len(cells) == len(TASKS) * 4
    gone = folder / "parity" / "cells" / "LSTM" / "seed-1.json"
    gone.unlink()
    assert main([*words, "--out", str(folder)]) == 0
    assert f"report  {folder / 'report.html'}" in capsys.readouterr().out
    again = {path: path.stat().st_mtime_ns for path in folder.glob("*/cells/**/*.json")}
    assert {path for path in again if again[path] != cells[path]} == {gone}
    with pytest.raises(UsageError, match="seeds 1, not 2"):
        seqkit.compare("screen", ["MinGRU"], out=folder, **arguments | {"seeds": 2})
