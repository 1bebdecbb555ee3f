"""A forecast: the error by step ahead, and windows with the band of their intervals. b batch · k steps ahead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from seqkit.objectives.regress import Regress
from seqkit.report.figures import svg
from seqkit.report.modality.series import error_by_step, forecast, steps_of
from seqkit.report.numbers import format_number
from seqkit.report.samples.picker import NUM_SHOWN, Picker
from seqkit.report.samples.section import Section, Shown
from seqkit.runs.intervals import COVERAGE, half_widths
from seqkit.runs.summary import Interval

StepErrors = tuple[Tensor, Tensor]
"""Absolute errors [b k] by step ahead, of a forecast and of another."""


def step_errors(
    objective: Regress,
    picker: Picker,
    places: Sequence[int],
    label: Tensor,
    prediction: Tensor,
) -> StepErrors:
    """Absolute errors [b k] of the model, and of the last value that it reads."""
    column, *_ = objective.learned["column"]
    last = torch.tensor([steps_of(raw)[-1, column] for raw in picker.raws(places)])
    target = objective.in_unit(label).reshape(len(label), -1)
    return objective.absolute_errors(prediction, label).cpu(), (target - last[:, None]).abs()


def by_step(errors: Sequence[StepErrors]) -> Section:
    """The root mean square error of each step ahead."""
    squares = [torch.cat(one).square() for one in zip(*errors, strict=True)]
    model, repeated = (format_number(float(one.nanmean().sqrt())) for one in squares)
    ours, last = (one.nanmean(dim=0).sqrt().numpy() for one in squares)
    note = (
        "The error over all test windows, by how far ahead a step is; dashed, that of repeating the last value. "
        f"Over all steps, repeating it has an RMSE of {repeated}, the run {model}."
    )
    title = "Error by step ahead"
    return Section(title, note, [svg(error_by_step(ours, last), title)])


def forecasts(objective: Regress, picker: Picker) -> Section:
    """Windows that are evenly spread over the test split, with what followed and what was predicted."""
    column, *_ = objective.learned["column"]
    known = [Interval(**one) for one in picker.trained.summary.get("intervals", [])]
    widths = np.array(half_widths(objective, known))
    last = len(picker.examples) - 1
    places = np.unique(np.linspace(0, last, NUM_SHOWN).round().astype(int)).tolist()
    batch, label = picker.examples[0, places]
    target = objective.in_unit(label).numpy()
    output = picker.trained.step((batch, label), picker.raws(places))
    assert output.prediction is not None
    predicted = np.array(objective.decode(output.prediction))
    examples = []
    for place, right, guess in zip(places, target, predicted.reshape(target.shape)):
        shown = max(2 * len(right), 24)
        past = steps_of(picker.data.splits().test[place].raw)[-shown:, column]
        caption = f"RMSE {format_number(float(np.sqrt(np.nanmean((guess - right) ** 2))))}"
        figure = svg(forecast(past, right, guess, widths), "Forecast")
        examples.append(Shown(caption, picker.origin(place), [figure]))
    note = "The last steps of some test windows. Left of the dotted line the model reads, in colour is its forecast."
    if len(widths):
        note += f" {100 * COVERAGE} % of values were within the band around it."
    return Section("Forecasts", note, examples=examples, points=72 * 2.8)
