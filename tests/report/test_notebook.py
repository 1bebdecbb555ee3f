"""A run in a notebook: its table and its loss curve, in one fragment that needs nothing else."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from seqkit.report.page import run_html
from seqkit.runs.trained_model import load

SUMMARY = {
    "recipe": "image/<b>mine</b>", "backbone": "Transformer", "objective": "Classify",
    "metrics": {"loss": 0.5, "accuracy": 0.75}, "baseline": {"loss": 2.25, "accuracy": 0.125},
    "num_parameters": 1_234_567, "wall_seconds": 101.6, "state": "finished",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,train/loss,valid/loss\n1,2.5,\n2,1.5,\n2,,1.75\n", encoding="utf-8")
    return tmp_path


def rows(fragment):
    table = re.search("<table>.*</table>", fragment, re.DOTALL)[0]
    return [[cell.text for cell in row] for row in ElementTree.fromstring(table).iter("tr")]


def test_a_run_shows_its_metrics_beside_the_baseline(folder):
    fragment = run_html(folder, SUMMARY)
    assert rows(fragment) == [
        ["test metric", "Transformer", "baseline"],
        ["loss", "0.500", "2.250"],
        ["accuracy", "75.00 %", "12.50 %"],
    ]
    assert "1,234,567 parameters · 102 s of training" in fragment
    assert str(folder) not in fragment, "a run folder may be moved"


def test_the_loss_curve_is_inside_the_fragment(folder):
    fragment = run_html(folder, SUMMARY)
    assert fragment.count("<svg") == fragment.count("</svg>") == 1
    assert {"training", "validation", "constant baseline (test)"} <= set(re.findall(r">([^<>]+)</text>", fragment))
    assert not re.search(r"<(script|link|style|iframe|img|html|body)\b", fragment)
    assert not re.search(r"@import|url\((?!#)", fragment)


def test_without_metrics_csv_there_is_a_table_and_no_curve(tmp_path):
    fragment = run_html(tmp_path, SUMMARY)
    assert "<svg" not in fragment
    assert len(rows(fragment)) == 3


def test_a_run_without_a_baseline_shows_dashes(tmp_path):
    others = {key: value for key, value in SUMMARY.items() if key != "baseline"}
    assert [row[2] for row in rows(run_html(tmp_path, others))[1:]] == ["–", "–"]


def test_names_are_text_in_the_fragment(folder):
    fragment = run_html(folder, SUMMARY)
    assert "<b>mine" not in fragment
    assert "image/&lt;b&gt;mine&lt;/b&gt;" in fragment


def test_a_stopped_run_says_so(folder):
    assert "stopped before" not in run_html(folder, SUMMARY)
    assert "trained, not tested" in run_html(folder, SUMMARY | {"state": "trained"})


def test_a_trained_model_shows_itself_in_a_notebook(trained, reported):
    reported("classify")  # writes the fragment, too
    run = load(trained("classify"))
    assert run._repr_html_() == run_html(run.folder, run.summary)
