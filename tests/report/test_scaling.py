"""The page and the table of a scaling study."""

import json

import pytest
from pages import Page
from rich.console import Console
from synthetic_results import scaling

from seqkit.report.comparison import write_comparison
from seqkit.report.scaling import scaling_table


@pytest.fixture
def written(tmp_path):
    def write(results):
        (tmp_path / "results.json").write_text(json.dumps(results), encoding="utf-8")
        return Page(write_comparison(tmp_path).read_text(encoding="utf-8"))

    return write


def test_the_page_shows_each_fit_with_its_numbers_and_runs(written):
    page = written(scaling())
    assert {"Loss by number of parameters", "Loss by number of training examples"} <= set(page.headings)
    rows = [page.cells[i : i + 3] for i in range(len(page.cells))]
    assert ["α", "0.3100", "[0.2600, 0.3600]"] in rows
    assert ["size=12000", "1", "12,000"] in rows
    assert "With 3 sizes the three coefficients are fitted exactly." in page.text
    assert page.labels == [
        "loss by number of parameters: 12 runs and the fitted power law",
        "loss by number of training examples: 9 runs and the fitted power law",
    ]
    assert {"What was not matched", "Reproduce"} <= set(page.headings)
    assert "seqkit scale text/char-lm --sizes 4" in page.text


def test_a_fit_that_could_not_be_made_shows_its_runs(written):
    results = scaling()
    results["fits"] = [
        {**results["fits"][0], "a": None, "alpha": None, "c": None, "intervals": {}, "curve": [], "note": "too few"}
    ]
    page = written(results)
    rows = [page.cells[i : i + 3] for i in range(len(page.cells))]
    assert ["α", "–", "–"] in rows
    assert "too few" in page.text
    assert "svg" in page.tags


def test_no_fits_are_still_a_page(written):
    page = written({**scaling(), "fits": [], "answer": "", "unmatched": []})
    assert "There are no fits." in page.text
    assert "What was not matched" in page.headings


def test_the_terminal_shows_the_coefficients():
    console = Console(width=80, record=True)
    with console.capture() as captured:
        console.print(scaling_table(scaling()))
    for part in ("parameters", "training examples", "12.10", "[11.10, 13.10]", "0.3100", "a · x^−α + c"):
        assert part in captured.get()
