"""HTML of a run folder is shown in a notebook only where it is what our own template makes."""

import json

import pytest

from seqkit.report.page import run_html
from seqkit.runs.fragment import metrics_fragment, read_fragment

SUMMARY = {
    "recipe": "image/<b>mine</b> & 'yours' \x1b[31m", "backbone": "Transformer", "objective": "Classify",
    "metrics": {"loss": 0.5, "accuracy": 0.75}, "baseline": {"loss": 2.25},
    "num_parameters": 1_234_567, "wall_seconds": 101.6, "state": "finished",
}  # fmt: skip


@pytest.fixture
def fragment(tmp_path):
    """Of a run with a learning curve."""
    lines = "".join(f"{step},{3 - step / 400},{'2.5' if step % 99 == 0 else ''}\n" for step in range(1, 300))
    (tmp_path / "metrics.csv").write_text(f"step,train/loss,valid/loss\n{lines}", encoding="utf-8")
    return run_html(tmp_path, SUMMARY)


def test_what_the_report_wrote_is_shown(tmp_path, fragment):
    (tmp_path / "summary.html").write_text(fragment, encoding="utf-8")
    assert "<svg" in fragment
    assert read_fragment(tmp_path / "summary.html") == fragment


@pytest.mark.parametrize(
    "more",
    [
        "<script>alert(1)</script>",
        "<SCRIPT SRC=//x></SCRIPT>",
        "<img src=x onerror=alert(1)>",
        '<p onclick="alert(1)">',
        '<p style="color: red"onclick="alert(1)">',
        '<div style="background: url(http://x/y)">',
        '<div style="position: fixed; top: 0">',
        '<div style="width: expression(1)">',
        '<a href="javascript:alert(1)">x</a>',
        '<use xlink:href="http://x/y.svg#z"/>',
        '<use href="#x"/>',
        '<svg><style>@import "x";</style></svg>',
        "<svg><foreignObject></foreignObject></svg>",
        '<iframe srcdoc="x"></iframe>',
        "<!-- x -->",
        "<![CDATA[x]]>",
        "<?xml x?>",
        "<",
        "&lt",
        "&#x3c;script",
        "<p",
        '<p id="',
        "<svg/onload=alert(1)>",
    ],
)
@pytest.mark.parametrize("place", ["before", "after"])
def test_anything_else_is_not_shown(tmp_path, fragment, more, place):
    text = more + fragment if place == "before" else fragment + more
    (tmp_path / "summary.html").write_text(text, encoding="utf-8")
    assert read_fragment(tmp_path / "summary.html") is None


def test_a_file_that_cannot_be_read_is_none(tmp_path):
    assert read_fragment(tmp_path / "summary.html") is None
    (tmp_path / "summary.html").mkdir()
    assert read_fragment(tmp_path / "summary.html") is None
    (tmp_path / "bytes.html").write_bytes(b"\xff")
    assert read_fragment(tmp_path / "bytes.html") is None


def test_names_of_metrics_are_text():
    shown = metrics_fragment(json.loads('{"<b>loss\\u001b": 0.5}'))
    assert shown == "<table><tr><td>&lt;b&gt;loss\\x1b</td><td>0.5000</td></tr></table>"
