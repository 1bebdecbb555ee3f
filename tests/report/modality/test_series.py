"""A series is drawn as lines of its raw numbers, and a forecast goes on where the series ends."""

import numpy as np

from seqkit.report.figures import svg
from seqkit.report.modality import attended, find_renderer, picture
from seqkit.report.modality.series import error_by_step, forecast
from seqkit.tokenizers import Series

RAW = [[3.0, 31.0], [5.0, 29.0], [2.0, 37.0], [7.0, 23.0], [11.0, 19.0]]


def series():
    made = Series(num_features=2, patch=3, normalize="series")
    made.fit([RAW])
    return made


def test_each_feature_is_a_line_of_the_raw_numbers():
    made = series()
    figure = picture(find_renderer(made), RAW, made.encode(RAW))
    (part,) = figure.subfigs
    lines = part.axes[0].lines
    assert [line.get_ydata().tolist() for line in lines] == [list(column) for column in zip(*RAW)]
    assert lines[0].get_color() != lines[1].get_color()


def test_without_the_raw_series_its_tokens_are_drawn():
    made = series()
    assert "<image" in find_renderer(made).small_svg(None, made.encode(RAW))
    assert "<image" not in find_renderer(made).small_svg(RAW, made.encode(RAW))


def test_attention_on_a_series_is_bars(attention_to):
    made = series()
    tokens = made.encode(RAW)
    figure = attended(find_renderer(made), RAW, tokens, attention_to(len(tokens), 0))
    assert len(figure.axes[0].patches) == len(tokens)


def test_a_forecast_begins_where_the_series_ends():
    past, target, predicted = (np.array(x) for x in ([1.0, 2.0, 3.0], [5.0, 7.0], [4.0, 8.0]))
    figure = forecast(past, target, predicted, np.array([]))
    _, known, predicted = figure.axes[0].lines
    assert list(zip(known.get_xdata(), known.get_ydata())) == [
        (-2, 1),
        (-1, 2),
        (0, 3),
        (1, 5),
        (2, 7),
    ]
    assert list(zip(predicted.get_xdata(), predicted.get_ydata())) == [(1, 4), (2, 8)]
    assert svg(figure).startswith("<svg")


def test_a_forecast_has_a_band_where_it_has_intervals():
    past, target, predicted = (np.array(x) for x in ([1.0, 2.0], [5.0, 7.0], [4.0, 8.0]))
    figure = forecast(past, target, predicted, np.array([1.0, 2.0]))
    (band,) = figure.axes[0].collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
    assert {(1, 3), (1, 5), (2, 6), (2, 10)} <= corners


def test_errors_by_step_ahead_begin_at_zero():
    figure = error_by_step(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    ours, last = figure.axes[0].lines
    assert (list(ours.get_ydata()), list(last.get_ydata())) == ([1, 2], [3, 4])
    assert list(ours.get_xdata()) == [1, 2]
    assert figure.axes[0].get_ylim()[0] == 0
