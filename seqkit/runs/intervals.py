"""Prediction intervals of a regression: split conformal prediction, from its errors on the test split.

m examples · k targets
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from seqkit.errors import DataError, one_line
from seqkit.interfaces import Objective
from seqkit.objectives.regress import Regress
from seqkit.runs.summary import Interval, Summary

log = logging.getLogger("seqkit")

COVERAGE = Fraction(9, 10)
"""Share of new examples whose target is meant to lie in the interval of their prediction."""

FEWEST = 20
"""Test examples below which no interval is made: it would be about as wide as the largest error."""

SHOWN = 3
"""Most targets of which a line shows the interval of each; a forecast of many steps has one for each step."""


def errors_by_target(objective: Regress, tested: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Absolute errors [m] of each target, in its unit, without the examples in which it is unknown.

    tested: predictions of the head and targets, by batch.
    """
    each = [objective.absolute_errors(prediction, target) for prediction, target in tested]
    if each:
        return [column[~column.isnan()] for column in torch.cat(each).T]
    return []


def has_intervals(objective: Objective) -> bool:
    """Whether its predictions may get intervals: one number or several for each example.

    Tokens of one example are not independent, so numbers for each token get none.
    """
    return isinstance(objective, Regress) and objective.level == "sequence"


def conformal_quantile(errors: Tensor) -> float:
    """Half width of the interval that holds `COVERAGE` of new examples, if they are like those of `errors` [m].

    It is the ceil((m + 1) · 0.9)-th smallest error (Papadopoulos et al. 2002; Lei et al. 2018, "Distribution-free
    predictive inference for regression", algorithm 2). Raises ValueError if there are fewer than 9 errors.
    """
    place = math.ceil((len(errors) + 1) * COVERAGE)
    if place > len(errors):
        raise ValueError(
            f"{len(errors)} errors are too few for an interval of {100 * COVERAGE} %; give 9 or more"
        )
    return float(errors.kthvalue(place).values)


def intervals(errors: Sequence[Tensor], names: Sequence[str]) -> list[Interval]:
    """Entries of `intervals` in `summary.json`, one for each target; none, with a line in the log, where there are too
    few examples, or a target has predictions that are not finite.

    errors: absolute errors [m] of each target on the test split, which chose nothing: weights and shares are of least
    error on validation, so that its errors are too small. names: of the targets; may be empty.
    """
    if (fewest := min(map(len, errors), default=0)) < FEWEST:
        log.warning(
            "no prediction intervals: the test split has %d examples with a known target, and %d are needed; give more "
            "data", fewest, FEWEST,
        )  # fmt: skip
        return []
    found = []
    for i, one in enumerate(errors):
        target = names[i] if len(names) == len(errors) > 1 else None
        width = conformal_quantile(one)
        found.append(Interval(half_width=width, num_test=len(one), target=target))
    if not all(math.isfinite(one.half_width) for one in found):
        log.warning("no prediction intervals: predictions for the test split are not finite")
        return []
    return found


def told(summary: Summary) -> str | None:
    """The intervals of a run in one line; None: it has none."""
    found = [Interval(**one) for one in summary.get("intervals", [])]
    if not found:
        return None
    made = f"from {found[0].num_test:,} test examples"
    if found[0].num_valid:
        made = f"from {found[0].num_valid:,} validation examples, which chose the weights, too"
    if len(found) <= SHOWN:
        widths = ", ".join(
            f"± {one.half_width:.4g} of {one_line(one.target or 'the target')}" for one in found
        )
    else:
        least, most = (end(one.half_width for one in found) for end in (min, max))
        widths = (
            f"± {least:.4g} (the narrowest of {len(found)} targets) to ± {most:.4g} (the widest)"
        )
    return f"{100 * COVERAGE} % of predictions are within {widths}, {made}"


def half_widths(objective: Objective, intervals: Sequence[Interval]) -> list[float]:
    """Half width of the interval of each target; empty: the run has none. Raises DataError if they do not fit."""
    found = [one.half_width for one in intervals]
    if found and not (has_intervals(objective) and len(found) == len(objective.state()["mean"])):
        raise DataError(
            "summary.json is damaged: it has intervals of other targets than the run; copy the run again"
        )
    return found


def bounds(prediction: Any, widths: Sequence[float]) -> tuple[Any, Any]:
    """Lower and upper end of the interval of a prediction: numbers, or lists of one for each target."""
    if isinstance(prediction, list):
        pairs = list(zip(prediction, widths, strict=True))
        return [x - width for x, width in pairs], [x + width for x, width in pairs]
    return prediction - widths[0], prediction + widths[0]
