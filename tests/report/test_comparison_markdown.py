"""A comparison as Markdown says what results.json says, and nothing in a name becomes markup."""

import re
from pathlib import Path

import pytest
from synthetic_results import comparison, hostile, without_values

from seqkit.report import comparison as page
from seqkit.report.numbers import finite


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch):
    """Figures are empty: Markdown shows none."""
    monkeypatch.setattr(page, "svg", lambda figure: "")


def comparison_markdown(results):
    results = finite(results)
    return page.comparison_markdown(results, page.comparison_sections(results))


def rows_of(text, first):
    """Cells of the table whose second column is called `first`."""
    table = next(block for block in text.split("\n\n") if block.startswith("|  | ") and first in block)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_table_ranks_candidates_with_their_values():
    results = comparison(4)
    rows = rows_of(comparison_markdown(results), "candidate")
    by_mean = sorted(results["candidates"], key=lambda row: -row["mean"])
    assert [row[1] for row in rows] == [row["name"] for row in by_mean]
    for row, candidate in zip(rows, by_mean):
        assert f"{candidate['mean'] * 100:.2f} ± {candidate['std'] * 100:.2f}" in row[2]
        assert row[4] == f"{candidate['parameters']:,}"


def test_the_answer_the_command_and_every_finding_are_there():
    results = comparison(3)
    text = comparison_markdown(results)
    assert f"$ {results['command']}" in text
    assert results["answer"].split(" ")[0] in text
    plain = text.replace("\\", "")
    assert all(finding["text"] in plain for finding in results["unmatched"])
    warning = next(finding for finding in results["unmatched"] if finding["kind"] == "warning")
    assert f"* **Warning: {warning['what']}**" in plain


def test_a_candidate_that_failed_says_so_in_its_row():
    results = comparison(3, failed=(1,))
    text = comparison_markdown(results)
    assert "failed: no seed finished" in text


def test_nothing_known_is_a_dash_and_never_none_or_nan():
    text = comparison_markdown(without_values())
    assert not re.search(r"\b(None|nan|inf)\b", text)


def test_names_are_text():
    text = comparison_markdown(hostile())
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<script", outside)
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 10 for line in outside.splitlines() if line.startswith("| 1 |"))


def test_names_and_the_command_hold_no_control_characters():
    results = comparison(2)
    results["candidates"][0]["name"] = "a\x1b[31m\u202eb"
    results["command"] += "\n```\n<script>"
    text = comparison_markdown(results)
    assert not re.search("[\x1b\u202e]", text)
    assert r"a\x1b\[31m\u202eb" in text
    assert text.count("\n```") == 2, "the command cannot end its own block"


def test_the_length_of_trials_and_of_their_warm_up_is_said():
    results = comparison(2)
    results["tuning"]["warmup_steps"] = 50
    assert "A trial took 63 steps (25 % of a full run), 50 of them warm-up." in comparison_markdown(results)


def test_finished_runs_of_one_seed_are_said_to_be_that_with_their_commands_and_rates():
    results = comparison(2, seeds=(1,)) | {"machine": {}, "fit_commands": ["seqkit fit a/config.yaml"]}
    for row in results["candidates"]:
        row |= {"chosen": {}, "trials": [], "cost": None, "config": "optimizer: {type: AdamW, lr: 0.002}\n"}
    text = comparison_markdown(results)
    assert "Values are of one seed each, on 1,000 test examples." in text
    assert f"```console\n$ seqkit fit a/config.yaml\n$ {results['command']}\n```" in text
    assert all(row[7] == "AdamW 0.002" for row in rows_of(text, "candidate"))
    assert "processor" not in text
    assert "thread" not in text


def test_lengths_say_how_many_examples_they_have():
    results = comparison(2)
    for row in results["candidates"]:
        row["by_length"] = [
            {"tokens": 3, "lengths": [3, 3], "examples": 40, "value": 0.9, "interval": None},
            {"tokens": 5.5, "lengths": [4, 7], "examples": 21, "value": 0.8, "interval": None},
        ]
    assert "at | 3 tokens (40 examples) | 4 to 7 tokens (21 examples) |" in comparison_markdown(results)


PUBLISHED = sorted(
    page for page in (Path(__file__).parents[2] / "docs" / "comparisons").glob("*.md") if page.stem != "index"
)


@pytest.mark.parametrize("page", PUBLISHED, ids=lambda page: page.stem)
def test_a_published_comparison_says_how_long_its_trials_were_and_rests_on_whole_ones(page):
    text = page.read_text(encoding="utf-8")
    length = re.search(r"A trial took ([\d,]+) steps \((\d+) % of a full run\), ([\d,]+) of them warm-up", text)
    assert length is not None
    steps, share, warmup = (int(number.replace(",", "")) for number in length.groups())
    assert share == 100 or "**Warning: length of trials**" in text
    assert warmup <= steps / 2


@pytest.mark.slow
def test_an_answer_is_bold_only_where_no_best_setting_lies_at_the_end_of_those_tried():
    results = comparison(2) | {"answer": "A leads.", "answers": ["B follows."]}
    assert "\n**A leads.**\n\nB follows.\n" in comparison_markdown(results)
    open_question = comparison_markdown(results | {"is_settled": False})
    assert "\nA leads.\n\nB follows.\n" in open_question
    assert "**A leads" not in open_question


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["--trainer.max_steps", "400", "--data", "x"], "(trainer.max_steps 400)"),
        (["--trainer.max_epochs=2"], "(trainer.max_epochs 2)"),
        (["--data", "x"], None),
        ([], None),
    ],
)
def test_a_length_of_training_that_the_command_sets_is_said(overrides, said):
    sentence = page.own_length(overrides)
    assert sentence is None if said is None else said in sentence
