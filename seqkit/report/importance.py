"""How much a run needs each part or column of its examples: permutation importance (Breiman 2001, section 10).

m examples · p permutations
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from torch.nn.functional import cross_entropy

from seqkit.data.tables.schema import CELLS
from seqkit.interfaces import IGNORE, TokenBatch
from seqkit.objectives.classify import Classify
from seqkit.objectives.regress import Regress
from seqkit.report.figures import BLUE, INK, STYLE, new_figure, scale_axis, shortened, svg
from seqkit.report.samples.picker import Picker
from seqkit.report.samples.section import Section

NUM_EXAMPLES = 200
NUM_PERMUTATIONS = 5
MAX_PASSES = 60
"""Predictions for all these examples at most, so that a page of a wide table takes seconds."""

NUM_DRAWN = 15
BATCH_SIZE = 100
NUM_DRAWS = 1000

Slot = tuple[str, ...]
"""Path of a value in a raw example: its part, or `CELLS` and a column."""


def importance(picker: Picker) -> list[Section]:
    """A section with the rise of the error where the values of one column or part are permuted among test examples.

    None for objectives without one class or number for an example, and for examples that have a single part.
    """
    objective = picker.trained.objective
    is_known = isinstance(objective, Classify) or (
        isinstance(objective, Regress) and len(objective.mean) == 1
    )
    if not is_known or getattr(objective, "level", "") != "sequence":
        return []
    places, labels = _labelled(picker)
    raws = picker.raws(places)
    slots = list(dict.fromkeys(slot for raw in raws for slot in _slots(raw)))
    if len(slots) < 2 or len(slots) > MAX_PASSES or len(raws) < 2:
        return []
    right = _errors(picker, raws, labels)
    times = min(NUM_PERMUTATIONS, MAX_PASSES // len(slots))
    draws = np.random.default_rng(0).integers(len(raws), size=(NUM_DRAWS, len(raws)))
    is_root = isinstance(objective, Regress)
    found = []
    for slot in slots:
        changed = [_errors(picker, _permuted(raws, slot, seed), labels) for seed in range(times)]
        errors = np.mean(changed, axis=0)
        rises = _mean(errors[draws], is_root) - _mean(right[draws], is_root)
        low, high = np.quantile(rises, (0.025, 0.975))
        rise = float(_mean(errors, is_root) - _mean(right, is_root))
        found.append((slot[-1], rise, float(low), float(high)))
    found.sort(key=lambda one: -one[1])
    unit = "RMSE, in the target's unit" if is_root else "loss, in nats"
    counted = f"{times} permutation{'s' * (times > 1)} of {len(raws):,} test examples"
    note = (
        f"How much larger the {unit.partition(',')[0]} is if the values of one column or part are permuted among the "
        f"examples ({counted}; bars are 95 % intervals over examples). Columns that tell the same stand in for each "
        "other, and both look small. One that the run needs, and that you will not have when you predict, is a leak."
    )
    more = len(found) - NUM_DRAWN
    if more > 0:
        note += f" {more:,} more columns have less."
    figure = _bars(found[:NUM_DRAWN], f"rise of the {unit}")
    title = "Columns and parts that the run needs"
    return [Section(title, note, [svg(figure, title)])]


def _labelled(picker: Picker) -> tuple[list[int], torch.Tensor]:
    """Places of the first test examples that have a target, and their targets."""
    places = list(range(min(NUM_EXAMPLES, len(picker.examples))))
    _, labels = picker.examples[0, places]
    if labels is None:
        return [], torch.empty(0)
    if labels.is_floating_point():
        known = labels.reshape(len(places), -1).isfinite().all(dim=1)
    else:
        known = labels != IGNORE
    return [place for place, is_known in zip(places, known.tolist()) if is_known], labels[known]


def _slots(raw: Any) -> Iterator[Slot]:
    if not isinstance(raw, Mapping):
        return
    for part, value in raw.items():
        if part == CELLS and isinstance(value, Mapping):
            yield from ((part, column) for column in value)
        else:
            yield (part,)


def _permuted(raws: Sequence[Any], slot: Slot, seed: int) -> list[Any]:
    """Examples with another's value, or gap, in one place; one that would be left without any value keeps its own."""
    order = np.random.default_rng(seed).permutation(len(raws)).tolist()
    *above, last = slot
    found = []
    for raw, other in zip(raws, order):
        given: Any = raws[other]
        changed = dict(raw)
        inner = changed
        for name in above:
            given = given.get(name, {})
            changed[name] = inner = dict(changed.get(name, {}))
        inner.pop(last, None)
        if last in given:
            inner[last] = given[last]
        changed = {name: value for name, value in changed.items() if name != CELLS or value}
        found.append(changed or raw)
    return found


def _errors(picker: Picker, raws: Sequence[Any], labels: torch.Tensor) -> np.ndarray:
    """Cross-entropy in nats, or squared error in the target's unit, of each example [m]."""
    trained = picker.trained
    objective: Any = trained.objective
    found = []
    for start in range(0, len(raws), BATCH_SIZE):
        some = raws[start : start + BATCH_SIZE]
        label = labels[start : start + BATCH_SIZE]
        batch = TokenBatch.collate([trained.encode(raw) for raw in some])
        prediction = trained.step((batch, label), some).prediction
        assert prediction is not None
        if isinstance(objective, Regress):
            told = torch.tensor(objective.decode(prediction), dtype=torch.float64).reshape(-1)
            found.append((told - objective.in_unit(label).reshape(-1)).square())
        else:
            found.append(cross_entropy(prediction.double(), label, reduction="none"))
    return torch.cat(found).numpy()


def _mean(errors: np.ndarray, is_root: bool) -> Any:
    """Mean error over the last dimension, or its root."""
    mean = errors.mean(axis=-1)
    return np.sqrt(mean) if is_root else mean


@rc_context(STYLE)
def _bars(found: Sequence[tuple[str, float, float, float]], label: str) -> Figure:
    """A row for each column: its rise, and the interval as a line."""
    figure, (axes,) = new_figure(3.8, 0.22 * len(found) + 0.7)
    names, rises, low, high = zip(*found)
    rows = np.arange(len(found))
    axes.barh(rows, rises, color=BLUE, alpha=0.45, height=0.7)
    axes.hlines(rows, low, high, color=INK, linewidth=1.2)
    axes.axvline(0, color=INK, linewidth=0.6)
    axes.set_yticks(rows, shortened(names, 24))
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    scale_axis(axes, "x", rises, log=False)
    return figure
