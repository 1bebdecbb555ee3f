"""Learning curves: the columns of metrics.csv, where they have values."""

import re

import pytest

from seqkit.errors import DataError
from seqkit.report import learning_curves as room
from seqkit.report.learning_curves import BESIDE, CONSTANT, learning_curves
from seqkit.runs.summary import read_summary

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
    monkeypatch.setattr(room, "curves", lambda series, **others: seen.append((series, others)))
    monkeypatch.setattr(room, "svg", lambda _: "<svg>")
    return seen


def test_losses_are_those_of_metrics_csv_and_the_headline_metric_stands_beside_them(folder, drawn):
    assert learning_curves(folder, SUMMARY) == ["<svg>", "<svg>"]
    (losses, of_losses), (metric, of_metric) = drawn
    assert [(list(s.x), list(s.y), s.label) for s in losses] == [
        ([2.0, 3.0], [2.5, 1.5], "training"),
        ([2.0], [2.0], "validation"),
    ]
    levels = {CONSTANT: 2.25, BESIDE: None}
    assert of_losses == {"unit": "loss", "levels": levels, "kept": 2, "log": None}
    assert [(list(s.x), list(s.y)) for s in metric] == [([2.0], [25.0])]
    levels = {CONSTANT: 12.5, BESIDE: 50.0}
    assert of_metric == {"unit": "accuracy, %", "levels": levels, "kept": 2, "log": False}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"main_metric": "loss"}, id="its headline is the loss"),
        pytest.param({"objective": "Yours", "metrics": {"f1": 0.5}}, id="not measured"),
    ],
)
def test_a_metric_without_values_of_its_own_is_not_drawn(folder, drawn, other):
    assert len(learning_curves(folder, SUMMARY | other)) == 1


def test_without_metrics_csv_there_is_no_curve(tmp_path):
    assert learning_curves(tmp_path, SUMMARY) == []


def test_a_curve_is_an_svg_element(folder):
    assert all(re.match("<svg", one) for one in learning_curves(folder, SUMMARY))


def test_a_last_line_that_was_cut_short_is_left_out_and_another_is_refused(folder, drawn):
    (folder / "metrics.csv").write_text(f"{CSV}3,1.2e-", encoding="utf-8")
    assert learning_curves(folder, SUMMARY)[0] == "<svg>"
    assert list(drawn[0][0][0].x) == [2.0, 3.0]
    (folder / "metrics.csv").write_text(f"{CSV}3,<b>,,\n4,1.0,,\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"metrics\.csv is damaged"):
        learning_curves(folder, SUMMARY)


@pytest.mark.parametrize(
    "content", [b"step,train/loss\n1," + b"1" * 200_000 + b"\n", b"step\n\xff\n"]
)
def test_a_table_that_is_no_text_is_refused(folder, content):
    (folder / "metrics.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"metrics\.csv is damaged"):
        learning_curves(folder, SUMMARY)


def test_points_are_at_the_steps_that_sentences_name(trained, monkeypatch):
    figures = []
    draw = room.curves

    def seen(*given, **others):
        figures.append(draw(*given, **others))
        return figures[-1]

    monkeypatch.setattr(room, "curves", seen)
    summary = read_summary(trained("classify"))
    learning_curves(trained("classify"), summary)
    training, validation, dot, *_ = figures[0].axes[0].lines
    assert training.get_xdata().tolist() == validation.get_xdata().tolist() == [1, 2]
    assert summary["steps"] == 2
    assert summary["weights"] == f"best, of step {dot.get_xdata()[0]:g}"
    assert dot.get_ydata()[0] == min(validation.get_ydata())
