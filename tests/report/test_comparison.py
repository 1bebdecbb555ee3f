"""The page of a comparison, and its table in a terminal, in Markdown and CSV."""

import csv
import re
from dataclasses import replace

import pytest
from browser_checks import VIEWS, faults
from pages import Page
from synthetic_results import HOSTILE, NAMES, RESULTS, comparison, hostile, without_values

from seqkit.errors import DataError
from seqkit.files import write_json
from seqkit.report.comparison import (
    BRIEF,
    comparison_markdown,
    ranking,
    runs_table,
    write_comparison,
)
from seqkit.report.sentences import answers, own_length
from seqkit.report.table import Cell, Table, print_table, to_csv

SECTIONS = [
    "Candidates", "Every seed", "All pairs", "What was not matched", "Failures", "Learning curves", "Cost by length",
    "Tuning", "Configurations", "Reproduce",
]  # fmt: skip


@pytest.fixture
def written(tmp_path, undrawn):
    def write(results):
        return Page(write_comparison(tmp_path, results).read_text(encoding="utf-8"))

    return write


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """kind → the path of the page of these synthetic results, written once."""
    paths = {}

    def path(kind):
        if kind not in paths:
            folder = tmp_path_factory.mktemp(kind)
            write_json(folder / "results.json", RESULTS[kind]())
            paths[kind] = write_comparison(folder)
        return paths[kind]

    return path


QUICK = ("null", "hostile")


@pytest.mark.parametrize(
    "kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in RESULTS]
)
def test_a_page_is_one_well_formed_file_that_fetches_nothing(page_of, kind):
    page = Page(page_of(kind).read_text(encoding="utf-8"))
    assert not page.open
    assert all(address.startswith("#") for address in page.addresses)
    assert not {"script", "link", "iframe", "object", "embed", "img", "image"} & set(page.tags)
    assert not re.search(r"@import|url\((?!#)", page.source)
    assert "prefers-color-scheme: dark" in page.source
    ids = re.findall(r'\sid="([^"]+)"', page.source)
    assert {address[1:] for address in page.addresses} <= set(ids)
    text = page.text.replace("loss is NaN", "").replace("limit: null", "")
    assert not re.findall(r"\b(?:nan|inf|none|null|undefined)\b", text, re.IGNORECASE)


def test_the_sections_come_in_their_order_after_the_answer(written):
    results = comparison(4, failed=(3,))
    page = written(results)
    assert [heading for heading in page.headings if heading in SECTIONS] == SECTIONS
    assert 0 < page.text.index(answers(results).text) < page.text.index("Candidates")
    assert page.text.index("Warning: trials") < page.text.index("Each has its own.")
    assert "2026-11-22 00:30" in page.text
    assert results.commands[0] in page.text[page.text.index("Reproduce") :]
    assert {"#failures", "#unmatched"} <= set(page.addresses)
    assert "Beside them stands an RBF-SVM, fit on 1,257 examples, 98.00 %. " in page.text


def test_the_table_has_the_numbers(written):
    table = ranking(comparison(3, failed=(1,)))
    assert [str(cell) for cell in table.rows[0]] == [
        "1", "Transformer width 128, depth 3", "99.00 ± 0.30 [98.40, 99.60]", "reference", "81.23k 1 ×", "203,914",
        "0.0 %", "1G", "0.003",
    ]  # fmt: skip
    gru, lstm = table.rows[1:]
    assert [str(cell) for cell in gru[2:4]] == [
        "97.78 ± 0.30 [97.18, 98.38]",
        "−1.22 [−1.82, −0.62]",
    ]
    assert [str(cell) for cell in lstm[:4]] == ["–", "LSTM width 128, depth 3",
                                                "failed no seed finished: loss is NaN at step 12", "–"]  # fmt: skip
    page = written(comparison(3, failed=(1,)))
    assert page.cells[2] == "99.00 ± 0.30[98.40, 99.60]"


def test_the_first_is_bold_only_where_it_is_better_than_every_other():
    results = comparison(3)
    assert [row[1].style for row in ranking(results).rows] == ["best", "", ""]
    even = [replace(entry, better=None) for entry in results.differences]
    assert ranking(replace(results, differences=even)).rows[0][1].style == ""


def test_one_table_is_printed_to_the_terminal_and_as_csv(capsys):
    results = hostile()
    table = ranking(results).first(BRIEF)
    print_table(table)
    shown = capsys.readouterr().out
    assert "98.40" in shown
    assert "<script>" in shown
    rows = list(csv.DictReader(to_csv(runs_table(results)).splitlines()))
    assert [row["seed"] for row in rows if row["candidate"] == "GRU"] == ["1", "2", "3"]
    assert [row["steps"] for row in rows if row["candidate"] == "LSTM"] == ["252"] * 3
    assert (
        to_csv(Table(["a", "b"], [[Cell("1, 2"), Cell("x", "[y]")]])) == 'a,b\r\n"1, 2",x [y]\r\n'
    )


def test_a_table_that_is_too_wide_is_broken_between_words_and_in_none(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = ["associative-recall", "3GatedDeltaNet+MultiHeadAttention", "25,992", "[−4.75, +5.80]"]
    head = ["task", "candidate", "parameters", "difference (percentage points)", "FLOPs per step"]
    table = Table(head, [[Cell(text) for text in (*names, "46.87M")]], name=1)
    print_table(table)
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= 80
    for word in (
        "associative-",
        "recall",
        "3GatedDeltaNet+",
        "MultiHeadAttention",
        "[−4.75, +5.80]",
    ):
        assert word in narrow
    monkeypatch.setenv("COLUMNS", "140")
    print_table(table)
    assert "associative-recall   3GatedDeltaNet+MultiHeadAttention" in capsys.readouterr().out


@pytest.mark.slow
def test_markdown_has_the_numbers_of_the_page_and_no_markup_of_its_names():
    text = comparison_markdown(comparison(4, failed=(3,)))
    for fact in (
        "99.00 ± 0.30 \\[98.40, 99.60\\]", "−1.22", "## Failures", "loss is NaN",
        "$ seqkit compare image/digits", "torch 2.11.0", "AMD EPYC 9654",
    ):  # fmt: skip
        assert fact in text, fact
    assert "\n\n\n" not in text
    assert "<script>" not in comparison_markdown(hostile()).partition("## Reproduce")[0]
    assert "Half" in comparison_markdown(without_values())


def test_every_figure_says_in_words_what_it_shows_and_goes_where_there_is_nothing(written):
    page = written(comparison(3))
    assert len(page.labels) == page.tags.count("figure") == 7
    assert page.labels[0].endswith(
        "with mean and interval: Transformer 99.00, LSTM 98.29, GRU 97.78"
    )
    bare = [replace(row, cost=None, trials=[], runs=[]) for row in comparison(2).candidates]
    page = written(replace(comparison(2), candidates=bare))
    assert [heading for heading in page.headings if heading in SECTIONS] == [
        "Candidates", "Every seed", "What was not matched", "Tuning", "Configurations", "Reproduce",
    ]  # fmt: skip


def test_a_candidate_has_the_same_colour_and_marker_all_over_the_page(written):
    page = written(comparison(3))
    marks = re.findall(r'(<svg class="mark".*?</svg>) <span>(.*?)</span>', page.source)
    looks = {name: {mark for mark, other in marks if other == name} for _, name in marks}
    assert set(looks) == set(NAMES[:3])
    assert all(len(found) == 1 for found in looks.values())
    assert len(set.union(*looks.values())) == 3


def test_the_title_names_candidates_and_task_and_the_command_stands_below_it(written):
    page = written(comparison(3))
    command = "seqkit compare image/digits --backbones Transformer,LSTM,GRU,Mamba"
    title = "Transformer, LSTM and GRU on image/digits, preset debug"
    assert (
        0 < page.text.index(f"{title}\n") < page.text.index(command) < page.text.index("Candidates")
    )
    assert page.text.count(command) == 2
    assert "Transformer and 11 others on image/digits" in written(comparison(12)).text


def test_a_length_of_the_command_is_said():
    assert "(trainer.max_epochs 8)" in own_length(["--trainer.max_epochs", "8"])
    assert "(trainer.max_steps 9)" in own_length(["--seed=1", "--trainer.max_steps=9"])
    assert own_length(["--data.limit=3"]) is None


def test_names_are_text_and_never_markup(page_of):
    page = Page(page_of("hostile").read_text(encoding="utf-8"))
    assert page.text.count(HOSTILE) > 10
    assert "<img src=x>" in page.text
    assert not {"script", "img"} & set(page.tags)


def test_other_files_are_refused_in_one_line(tmp_path):
    with pytest.raises(DataError, match=r"results\.json is missing"):
        write_comparison(tmp_path)
    for text, message in (
        ("{", "damaged"),
        ('{"kind": "summary"}', "'summary'"),
        ('{"kind": "comparison"}', "recipe: field required"),
    ):
        (tmp_path / "results.json").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=message) as caught:
            write_comparison(tmp_path)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()


# ── in a browser ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "width", "scheme"),
    [("hostile", 360, "light"), ("twelve", *VIEWS[1]), ("four", *VIEWS[0]), ("null", *VIEWS[1])],
)
def test_a_browser_finds_no_fault(browser, page_of, kind, width, scheme):
    assert faults(browser, page_of(kind), width, scheme) == []


@pytest.mark.slow
def test_a_phone_shows_value_difference_and_verdict_of_every_candidate(browser, page_of):
    browser.show(page_of("twelve"), *VIEWS[1])
    for section, columns in (("candidates", (2, 3, 4)), ("differences", (1, 2, 3))):
        cells = ", ".join(f"#{section} tr > :nth-child({column})" for column in columns)
        ends = browser.evaluate(
            f"[...document.querySelectorAll('{cells}')].map(cell => cell.getBoundingClientRect().right)"
        )
        assert 0 < max(ends) <= VIEWS[1][0]


@pytest.mark.slow
def test_text_and_figures_follow_the_colour_scheme(browser, page_of):
    path = page_of("four")
    seen = {}
    for scheme in ("light", "dark"):
        browser.show(path, 700, scheme)
        seen[scheme] = browser.evaluate(
            "[getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('figure svg text')).fill]"
        )
    assert seen["light"] == ["rgb(255, 255, 255)", "rgb(27, 39, 51)"]
    assert seen["dark"] == ["rgb(18, 23, 29)", "rgb(228, 233, 238)"]
