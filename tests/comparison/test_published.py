"""Published comparisons: every interval can be computed again, a stale one says so, and a small run repeats."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from published_scores import differences, interval, interval_of_share, units

from seqkit.comparison.results import completed, read_results
from seqkit.config import complete
from seqkit.config.recipe import load_yaml

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "comparisons.py"
SPEC = importlib.util.spec_from_file_location("comparisons", SCRIPT)
comparisons = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(comparisons)
PAGES = [
    pytest.param(
        path.parent.name,
        marks=[]
        if path.parent.name in ("screen-associative-recall", "screen-parity")
        else pytest.mark.slow,
    )
    for path in sorted(comparisons.PUBLISHED.glob("*/results.json"))
]
"""A page of an accuracy and one of an error stand for all, where numbers of all are computed again."""


def results_of(page):
    return read_results(comparisons.PUBLISHED / page / "results.json")


@pytest.mark.parametrize("page", PAGES)
def test_every_interval_of_a_page_follows_from_its_scores(page):
    results = results_of(page)
    metric = results.metric
    scores = dict(np.load(comparisons.PUBLISHED / page / "scores.npz", allow_pickle=False))
    tables = {row.name: units(scores, row.name, root=metric.root) for row in results.candidates}
    for row in results.candidates:
        table = tables[row.name]
        answers = scores[f"{row.name}/denominator"].sum()
        expected = interval_of_share(table, answers) if metric.proportion else interval(table)
        assert table.mean() == pytest.approx(row.mean)
        assert row.interval == pytest.approx(expected)
    expected = differences(tables, proportion=metric.proportion)
    for pair in results.differences:
        p, corrected, bounds = expected[pair.a, pair.b]
        assert (pair.p, pair.p_holm) == pytest.approx((p, corrected), abs=1e-9)
        assert pair.interval == pytest.approx(bounds)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_differences_that_seqkit_computes_today(page):
    """After a change of statistics: python tests/benchmarks/comparisons.py --index."""
    scores = comparisons.read_scores(comparisons.PUBLISHED / page / "scores.npz")
    assert completed(results_of(page), scores) == results_of(page)


@pytest.mark.slow
def test_the_index_has_the_answers_and_says_which_pages_are_stale():
    """After a change of words, of a recipe or of a default: python tests/benchmarks/comparisons.py --index."""
    assert (comparisons.PUBLISHED / "index.md").read_text(encoding="utf-8") == comparisons.index()


@pytest.mark.slow
def test_a_page_turns_stale_when_a_key_of_its_recipe_changes():
    results = results_of("screen-associative-recall")
    before, rows = comparisons.changes(results), list(results.candidates)
    for i, (old, new) in enumerate([("batch_size: 32", "batch_size: 31"), ("dim: ", "dim: 1")]):
        assert old in rows[i].untuned
        rows[i] = replace(rows[i], untuned=rows[i].untuned.replace(old, new, 1))
    changed = comparisons.changes(replace(results, candidates=rows))
    assert changed == sorted({*before, "data.batch_size"})  # a width was searched for


@pytest.mark.slow
def test_one_run_of_a_page_gives_what_was_published(tmp_path):
    """On another processor a run is not the same to the last bit, so within what seeds differ by."""
    from seqkit.runs.run import run

    results = results_of("screen-parity")
    row = results.by_name["LSTM"]
    written, known = load_yaml(row.config), complete(results.recipe)["trainer"]
    # some have left
    written["trainer"] = {key: value for key, value in written["trainer"].items() if key in known}
    summary = run(complete(written).changed({"seed": row.runs[0].seed}), tmp_path / "run")
    assert summary["metrics"]["accuracy"] == pytest.approx(
        row.runs[0].value, abs=max(4 * row.std, 0.01)
    )
    assert summary["data_sha256"] == row.runs[0].data_sha256
