"""A sentence on a result that is no better than the best constant prediction, with what to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from seqkit.interfaces import IGNORE

UNBALANCED = 0.8
"""Share of the most frequent class in training from which on a constant prediction has a high accuracy."""


class Compared(Protocol):
    """A metric with its value for the best constant prediction, such as `seqkit.report.headline.Headline`."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> float: ...
    @property
    def baseline(self) -> float | None: ...
    @property
    def is_worse_than_constant(self) -> bool: ...


def most_frequent(names: Sequence[str], labels: Sequence[Any]) -> dict[str, Any] | None:
    """The class that most labels are of, and its share; None if no label is known.

    labels: numbers of classes, or tensors of them, in which IGNORE counts as unknown.
    """
    counts = Counter[int]()
    for label in labels:
        counts.update(label[label != IGNORE].tolist() if isinstance(label, Tensor) else [int(label)])
    if not counts:
        return None
    place, number = counts.most_common(1)[0]
    return {"name": names[place], "share": number / counts.total()}


def verdict(summary: dict[str, Any], metric: Compared) -> str | None:
    """A sentence on a result that is not better than the best constant; None if it is, or none is known.

    summary: content of the run's `summary.json`. metric: its main metric.
    """
    if metric.baseline is None or not (metric.is_worse_than_constant or metric.value == metric.baseline):
        return None
    common = summary.get("most_frequent")
    if metric.name == "accuracy" and common is not None and common["share"] >= UNBALANCED:
        balanced, constant = (known.get("macro_f1") for known in (summary["metrics"], summary["baseline"]))
        is_better = None not in (balanced, constant) and balanced > constant
        more = (
            f"By macro_f1, the model is better than that ({balanced:.3f} against {constant:.3f})"
            if is_better
            else "Weigh rare classes with --model.objective.class_weights balanced"
        )
        return (
            f"{100 * common['share']:.0f} % of the training labels are {common['name']}, so always answering "
            f"{common['name']} has a high accuracy. {more}; metrics that a constant prediction does not raise: "
            '--model.objective.metrics "[MacroF1, BalancedAccuracy, AUROC]".'
        )
    if metric.is_worse_than_constant:  # which the result says
        return None
    loss, constant = summary["metrics"].get("loss"), summary["baseline"].get("loss")
    has_learned = metric.name != "loss" and None not in (loss, constant) and loss < 0.99 * constant
    what = (
        f"By {metric.name}, the model is as good as the best constant prediction, and its loss is better ({loss:.3f} "
        f"against {constant:.3f})"
        if has_learned
        else f"The model has learned nothing beyond the best constant prediction: both have the same {metric.name}"
    )
    return (
        f"{what}; try more epochs (--trainer.max_epochs), another learning rate (seqkit tune), or look for the cause "
        "with seqkit doctor RUN."
    )
