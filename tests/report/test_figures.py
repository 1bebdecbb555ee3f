"""Figures: what they draw and how they go into a page."""

import re
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from seqkit.report.figures import (
    INK,
    MAX_NAMED,
    Series,
    confusion,
    curves,
    png,
    scatter,
    shortened,
    svg,
)


def texts(figure):
    """All words of a figure, from its SVG."""
    return [
        "".join(t.itertext()).strip()
        for t in ElementTree.fromstring(svg(figure)).iter()
        if t.tag.endswith("text")
    ]


@pytest.fixture
def loss_curves():
    return drawn()


def drawn():
    return curves(
        [Series(range(7), range(7), "training")],
        unit="loss (nats)",
        levels={"constant baseline (test)": 3.0, "none": None},
    )


def test_curves_name_their_axes_and_lines(loss_curves):
    written = texts(loss_curves)
    assert {"optimizer steps", "loss (nats)", "training", "constant baseline (test)"} <= set(
        written
    )


def test_curves_draw_the_points_given(loss_curves):
    line, flat = loss_curves.axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), np.arange(7))
    assert set(flat.get_ydata()) == {3.0}


def test_a_long_noisy_curve_gets_its_running_mean():
    figure = curves([Series(range(500), [0.0, 2.0] * 250, "training")], unit="loss")
    noisy, smooth = figure.axes[0].lines
    assert np.ptp(noisy.get_ydata()) == 2
    np.testing.assert_allclose(smooth.get_ydata(), 1)


def test_rows_of_the_confusion_matrix_are_target_classes():
    counts = np.array([[5, 2, 0], [0, 11, 0], [3, 0, 7]])
    figure = confusion(counts, ["a", "b", "c"])
    written = {
        (t.get_position()[1], t.get_position()[0]): t.get_text() for t in figure.axes[0].texts
    }
    assert written == {(0, 0): "5", (0, 1): "2", (1, 1): "11", (2, 0): "3", (2, 2): "7"}
    assert figure.axes[0].get_ylabel() == "target class"


def test_the_confusion_matrix_of_a_class_without_examples_is_drawn():
    figure = confusion(np.array([[2, 1], [0, 0]]), ["seen", "unseen"])
    assert np.isfinite(figure.axes[0].images[0].get_array()).all()


LONG = "Lepidoptera papilionidae "


@pytest.mark.parametrize(("names", "expected"), [
    (["short", "fourteen chars"], ["short", "fourteen chars"]),
    (["fifteen letters", "b"], ["fifteen lette…", "b"]),
    ([f"{LONG}red", f"{LONG}blue", "b"], ["Lepidoptera… 1", "Lepidoptera… 2", "b"]),
    (["same", "same"], ["same… 1", "same… 2"]),
])  # fmt: skip
def test_shortened_names_are_as_different_as_the_names(names, expected):
    assert shortened(names) == expected


def test_classes_with_long_names_stay_different_in_the_confusion_matrix():
    names = [f"{LONG}{kind}{LONG if kind < 'c' else ''}" for kind in "abcdefgh"]
    figure = confusion(np.eye(8, dtype=int), names)
    written = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(set(written)) == 8
    assert all(len(text) <= 14 for text in written)


def test_few_classes_have_their_names_whole_and_level():
    axes = confusion(np.eye(2, dtype=int), ["food", "public transport in town"]).axes[0]
    last = axes.get_xticklabels()[-1]
    assert (last.get_text(), last.get_rotation()) == ("public transport in town", 0)


def test_the_confusion_matrix_lets_the_page_shine_through_where_nothing_is():
    figure = confusion(np.array([[3, 0], [0, 2]]), ["a", "b"])
    (image,) = figure.axes[0].images
    assert image.to_rgba(image.get_array())[..., 3].round(2).tolist() == [[0.75, 0], [0, 0.75]]
    assert {text.get_color() for text in figure.axes[0].texts} == {INK}


@pytest.mark.slow
def test_many_classes_are_drawn_without_numbers_and_very_many_without_names():
    figure = confusion(np.eye(53, dtype=int), [f"class {i}" for i in range(53)])
    assert not figure.axes[0].texts
    assert "class 1" in texts(figure)
    figure = confusion(
        np.eye(MAX_NAMED + 1, dtype=int), [f"class {i}" for i in range(MAX_NAMED + 1)]
    )
    assert "class 1" not in texts(figure)


def test_class_names_are_text_and_neither_markup_nor_mathematics():
    names = ["<script>x</script>", "$\\frac$", "cost: 5$ & 7$"]
    page = svg(confusion(np.eye(3, dtype=int), names))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "cost: 5$ &amp;" in page


def test_scatter_holds_every_point_and_the_diagonal():
    target, preds = np.array([-3.0, 2.0, 5.0]), np.array([-1.0, 2.0, 7.0])
    axes = scatter(target, preds, rmse=1.63).axes[0]
    np.testing.assert_allclose(axes.collections[0].get_offsets(), np.stack([target, preds], axis=1))
    np.testing.assert_array_equal(*axes.lines[0].get_data())


@pytest.mark.parametrize(("title", "expected"), [
    ("", "loss (nats) over optimizer steps"),
    ('<b> & "c"', "&lt;b&gt; &amp; &quot;c&quot;"),
])  # fmt: skip
def test_svg_has_words_for_those_who_cannot_see_it(loss_curves, title, expected):
    tag = svg(loss_curves, title).partition(">")[0]
    assert 'role="img"' in tag
    assert f'aria-label="{expected}"' in tag


def test_the_words_of_a_figure_are_not_those_of_its_colour_bar():
    page = svg(confusion(np.eye(2, dtype=int), ["a", "b"]))
    assert 'aria-label="target class over predicted class"' in page


def test_svg_takes_the_pages_colour_and_refers_only_to_its_own_ids(loss_curves):
    page = svg(loss_curves)
    assert INK not in page
    assert "currentColor" in page
    ids = re.findall(r'\sid="([^"]+)"', page)
    used = re.findall(r'(?:url\(|href=")#([^)"]+)', page)
    assert used
    assert set(used) <= set(ids)


def test_a_picture_that_is_drawn_twice_has_no_id_twice():
    figure = Figure()
    for axes in figure.subplots(1, 2):
        axes.imshow(np.eye(3))
    ids = re.findall(r'\sid="([^"]+)"', svg(figure))
    assert len(ids) == len(set(ids)) > 0


def test_svg_brings_no_style_sheet_which_would_be_the_whole_pages(loss_curves):
    page = svg(loss_curves)
    assert "<style" not in page
    assert "stroke-linejoin: round; stroke-linecap: butt" in page.partition(">")[0]


def test_a_figure_is_the_same_svg_every_time():
    assert svg(drawn()) == svg(drawn())


@pytest.mark.parametrize("level", [24.0, -5.0, 0.001])
def test_a_level_that_would_flatten_the_curves_is_a_number_in_the_legend(level):
    falling = [2.0, 0.6, 0.3, 0.2]
    far = curves([Series(range(4), falling, "training")], unit="loss", levels={"constant": level})
    near = curves([Series(range(4), falling, "training")], unit="loss", levels={"constant": 3.0})
    side = "above" if level > 2 else "below"
    assert any(text.startswith("constant: ") and text.endswith(side) for text in texts(far))
    assert "constant" in texts(near)
    low, high = far.axes[0].get_ylim()
    assert 0.1 < low < high < 4
    assert near.axes[0].get_ylim()[1] >= 3.0


def test_a_level_in_the_legend_of_percentages_is_one_too():
    figure = curves([Series([1, 2], [90, 93], "validation")], unit="accuracy, %", levels={"a": 50})
    assert "a: 50 %, below" in texts(figure)


@pytest.mark.parametrize("label", ["constant", "constant baseline (test)"])
def test_axes_are_as_large_with_a_legend_of_many_or_long_lines_as_of_few(label):
    known = Series([1, 2], [90, 93], "validation")
    levels = {label: 50, label.replace("constant", "classical"): 20}
    few, many = (
        curves([known], unit="accuracy, %", levels=levels if has_levels else {})
        for has_levels in (False, True)
    )
    for figure in (few, many):
        figure.draw_without_rendering()
    np.testing.assert_allclose(few.axes[0].bbox.size, many.axes[0].bbox.size, rtol=0.02)


@pytest.mark.parametrize(
    ("steps", "expected"), [([4], ["validation"]), ([2, 4], ["validation", "kept weights"])]
)
def test_a_single_validation_is_not_marked_as_the_kept_one(steps, expected):
    figure = curves([Series(steps, steps, "validation")], unit="loss", kept=4)
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == expected


def test_two_figures_share_no_id(loss_curves):
    other = confusion(np.eye(2, dtype=int), ["a", "b"])
    first, second = (set(re.findall(r'\sid="([^"]+)"', svg(f))) for f in (loss_curves, other))
    assert first
    assert not first & second


def test_drawing_leaves_matplotlibs_settings_alone(loss_curves, tmp_path):
    before = dict(matplotlib.rcParams)
    svg(loss_curves)
    assert png(loss_curves, tmp_path / "deep" / "x.png").read_bytes().startswith(b"\x89PNG")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", ["\x1b[31m", "a\x00b", "a\u202eb"])
def test_a_name_in_a_figure_is_escaped(name):
    for figure in (
        curves([Series([1, 2], [1, 2], name)], unit=name),
        confusion(np.eye(2, dtype=int), [name, "b"]),
    ):
        written = svg(figure)
        assert name not in written
        assert name.encode("unicode_escape").decode() in written


def test_a_class_name_that_is_no_utf_8_is_drawn_escaped():
    assert r"a\udc80" in texts(confusion(np.eye(2, dtype=int), ["a\udc80", "b"]))
