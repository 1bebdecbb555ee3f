"""Axes: which are logarithmic, and what stands at their ticks."""

from itertools import product

import pytest
from matplotlib import rc_context

from seqkit.report.figures import MAX_TICKS, STYLE, log_ticks, new_figure, scale_axis


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


def test_ticks_are_few_and_within_the_values():
    for low, factor in product([1.03e-12, 0.0043, 1.2, 7.0, 130.0], [1.0, 1.01, 1.4, 3.7, 13.0, 1e4, 1e13]):
        ticks = log_ticks(low, low * factor)
        assert 1 <= len(ticks) <= MAX_TICKS + 1, (low, factor)
        assert all(0.99 * low <= tick <= 1.01 * low * factor for tick in ticks), (low, factor)
        assert ticks == sorted(set(ticks)), (low, factor)
        assert factor < 1.4 or len(ticks) >= 2, (low, factor)


def test_ticks_are_plain_text_and_not_mathematics(axes):
    scale_axis(axes, "x", [100, 2_000_000])
    written = [axes.xaxis.get_major_formatter()(tick) for tick in axes.xaxis.get_major_locator()()]
    assert written == ["100", "1k", "10k", "100k", "1M"]
