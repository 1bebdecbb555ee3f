"""A number: predictions beside their targets, and the largest errors."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from seqkit.objectives.regress import Regress
from seqkit.report.figures import scatter, svg
from seqkit.report.numbers import format_number
from seqkit.report.samples.forecasts import StepErrors, by_step, forecasts, step_errors
from seqkit.report.samples.picker import Error, Picker
from seqkit.report.samples.section import Section

MAX_DOTS = 2000
"""Targets that are drawn; of more, the dots would hide each other, and the page be large."""


def of_number(objective: Regress, picker: Picker) -> list[Section]:
    targets = list[Tensor]()
    predicted = list[Tensor]()
    errors = list[Error]()
    ahead = list[StepErrors]()
    has_one_target = objective.level == "sequence" and len(objective.mean) == 1
    for places, label, output in picker.outputs():
        assert output.prediction is not None
        assert output.target is not None
        assert output.preds is not None
        targets.append(output.target)
        predicted.append(output.preds)
        if objective.forecast:
            ahead.append(step_errors(objective, picker, places, label, output.prediction))
        rights = objective.in_unit(label).reshape(-1).tolist() if has_one_target else ()
        for place, found, right in zip(places, objective.decode(output.prediction), rights):
            if not math.isnan(right):
                caption = f"{format_number(found)}, not {format_number(right)}"
                errors.append(Error(abs(found - right), caption, place))
    center = objective.center[0] if has_one_target else 0.0
    target, preds = (torch.cat(part).double().numpy() + center for part in (targets, predicted))
    rmse = float(np.sqrt(np.mean((target - preds) ** 2)))
    total = f"{len(target):,} test targets"
    counted = f"Each dot is one of {total}"
    if len(target) > MAX_DOTS:
        drawn = np.random.default_rng(0).permutation(len(target))[:MAX_DOTS]
        target = target[drawn]
        preds = preds[drawn]
        counted = f"The dots are {MAX_DOTS:,} of {total}, drawn by lot"
    title = "Predictions and targets"
    note = f"{counted}. On the dashed line the prediction is right."
    sections = [Section(title, note, [svg(scatter(target, preds, rmse=rmse), title)])]
    if objective.forecast:
        return [*sections, by_step(ahead), forecasts(objective, picker)]
    note = "These predictions are furthest from their targets, which follow."
    return sections + picker.largest("Largest errors", note, errors)
