"""Axes: which are logarithmic, and what stands at their ticks."""

import pytest
from matplotlib import rc_context

from seqkit.report.figures import MAX_TICKS, STYLE, new_figure, scale_axis


@pytest.fixture
def axes():
    with rc_context(STYLE):
        yield new_figure(3, 2)[1][0]


@pytest.mark.parametrize(
    ("values", "log", "expected"),
    [
        ([1, 7, 53], None, True),
        ([10, 11, 13], None, False),
        ([0, 7, 53], None, False),
        ([0, 7, 53], True, True),
        ([0, 0], True, False),
        ([], None, False),
    ],
)
def test_an_axis_is_logarithmic_where_positive_values_span_enough(axes, values, log, expected):
    assert scale_axis(axes, "y", values, log=log) is expected
    assert axes.get_yscale() == ("log" if expected else "linear")


@pytest.mark.parametrize("low", [1.03e-12, 0.0043, 7.0, 130.0])
@pytest.mark.parametrize("factor", [5.3, 13.0, 400.0, 1e4, 1e13])
def test_ticks_of_a_logarithmic_axis_are_few(axes, low, factor):
    axes.plot([low, low * factor], [0, 1])
    scale_axis(axes, "x", [low, low * factor])
    left, right = axes.get_xlim()
    assert (
        2
        <= sum(left <= tick <= right for tick in axes.xaxis.get_major_locator()())
        <= MAX_TICKS + 1
    )


def test_ticks_are_plain_text_and_not_mathematics(axes):
    axes.plot([100, 2_000_000], [0, 1])
    scale_axis(axes, "x", [100, 2_000_000])
    written = [axes.xaxis.get_major_formatter()(tick) for tick in axes.xaxis.get_major_locator()()]
    assert " ".join(["100", "1k", "10k", "100k", "1M"]) in " ".join(written)


@pytest.mark.parametrize(("low", "high", "expected"), [
    (2.2866, 2.2976, ["2.2875", "2.2900", "2.2925", "2.2950", "2.2975"]),
    (-0.00025, 0.00006, ["−0.0002", "−0.0001", "0.0000"]),
    (0, 900, ["0", "200", "400", "600", "800"]),
    (9_000, 52_000, ["10k", "20k", "30k", "40k", "50k"]),
    (1_000_000, 2_900_000, ["1.0M", "1.5M", "2.0M", "2.5M"]),
    (1e-12, 3.1e-12, ["1e-12", "1.5e-12", "2e-12", "2.5e-12", "3e-12"]),
])  # fmt: skip
def test_ticks_of_a_linear_axis_are_the_numbers_at_which_they_stand(axes, low, high, expected):
    scale_axis(axes, "y", [low, high], log=False)
    axes.set_ylim(low, high)
    axes.figure.draw_without_rendering()
    ticks = zip(axes.get_yticks(), axes.get_yticklabels())
    assert [text.get_text() for tick, text in ticks if low <= tick <= high] == expected
