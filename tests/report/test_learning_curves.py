"""Learning curves: the columns of metrics.csv, where they have values."""

import re

import pytest

from seqkit.errors import DataError
from seqkit.report import learning_curves
from seqkit.report.learning_curves import BESIDE, CONSTANT, loss_curve, metric_curve

SUMMARY = {
    "objective": "Classify",
    "main_metric": "accuracy",
    "metrics": {"loss": 0.5, "accuracy": 0.75},
    "baseline": {"loss": 2.25, "accuracy": 0.125},
    "strong_baseline": {"name": "a forest", "num_train": 9, "metrics": {"accuracy": 0.5}},
    "weights": "best, of step 2",
}
CSV = "step,train/loss,valid/loss,valid/accuracy\n1,2.5,,\n1,,2.0,0.25\n2,1.5,,\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "metrics.csv").write_text(CSV, encoding="utf-8")
    return tmp_path


@pytest.fixture
def drawn(monkeypatch):
    """What was drawn: series, unit, levels and kept step of each figure."""
    seen = []
    monkeypatch.setattr(
        learning_curves, "curves", lambda series, **others: seen.append((series, others))
    )
    monkeypatch.setattr(learning_curves, "svg", lambda _: "<svg>")
    return seen


def test_losses_are_those_of_metrics_csv(folder, drawn):
    assert loss_curve(folder, SUMMARY) == "<svg>"
    ((series, others),) = drawn
    assert [(list(s.x), list(s.y), s.label) for s in series] == [
        ([1.0, 2.0], [2.5, 1.5], "training"),
        ([1.0], [2.0], "validation"),
    ]
    assert others == {"unit": "loss", "levels": {CONSTANT: 2.25, BESIDE: None}, "kept": 2}


def test_the_headline_metric_is_drawn_where_validation_measured_it(folder, drawn):
    assert metric_curve(folder, SUMMARY) == "<svg>"
    ((series, others),) = drawn
    assert [(list(s.x), list(s.y)) for s in series] == [([1.0], [25.0])]
    assert others == {"unit": "accuracy, %", "levels": {CONSTANT: 12.5, BESIDE: 50.0}, "kept": 2}
    assert metric_curve(folder, SUMMARY | {"main_metric": "loss"}) is None, (
        "its headline is the loss"
    )
    assert metric_curve(folder, SUMMARY | {"objective": "Yours", "metrics": {"f1": 0.5}}) is None, (
        "not measured"
    )


def test_without_metrics_csv_there_is_no_curve(tmp_path):
    assert loss_curve(tmp_path, SUMMARY) is None
    assert metric_curve(tmp_path, SUMMARY) is None


def test_a_curve_is_an_svg_element(folder):
    assert re.match("<svg", loss_curve(folder, SUMMARY))


def test_a_last_line_that_was_cut_short_is_left_out_and_another_is_refused(folder, drawn):
    (folder / "metrics.csv").write_text(f"{CSV}3,1.2e-", encoding="utf-8")
    assert loss_curve(folder, SUMMARY) == "<svg>"
    assert list(drawn[0][0][0].x) == [1.0, 2.0]
    (folder / "metrics.csv").write_text(f"{CSV}3,<b>,,\n4,1.0,,\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"metrics\.csv is damaged"):
        loss_curve(folder, SUMMARY)


@pytest.mark.parametrize(
    "content", [b"step,train/loss\n1," + b"1" * 200_000 + b"\n", b"step\n\xff\n"]
)
def test_a_table_that_is_no_text_is_refused(folder, content):
    (folder / "metrics.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"metrics\.csv is damaged"):
        loss_curve(folder, SUMMARY)
