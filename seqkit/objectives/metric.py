"""Name of a metric, which way is better, and how its values are written. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from seqkit.errors import UsageError

if TYPE_CHECKING:
    from seqkit.interfaces import Objective, TokenSpec

DASH = "–"
MINUS = "−"


def fixed(value: float | None, digits: int, *, signed: bool = False) -> str:
    """A number with that many decimals: 98.10, −0.3; signed: +0.80. None is a dash, and no zero has a sign."""
    if value is None:
        return DASH
    text = f"{value:z.{digits}f}"
    if signed and float(text) > 0:
        return f"+{text}"
    return text.replace("-", MINUS)


@dataclass(frozen=True)
class Metric:
    """A metric. In a comparison a value is shown times `scale`, with that many digits.

    label: its name in sentences. unit: "%" for a share. root: True: a split's value is the root of a mean over its
    examples (RMSE); False: the mean.

    >>> accuracy = Metric("accuracy", "test accuracy", "%", 100, 2, True)
    >>> accuracy.mean(0.981, 0.002), accuracy.text(0.981)
    ('98.10 ± 0.20', '98.10 %')
    """

    name: str
    label: str
    unit: str = ""
    scale: float = 1.0
    digits: int = 3
    higher_is_better: bool = False
    root: bool = False

    @property
    def title(self) -> str:
        """Label and unit: test accuracy (%)."""
        if self.unit:
            return f"{self.label} ({self.unit})"
        return self.label

    @property
    def words(self) -> str:
        """The label, without underscores and the split that it is of."""
        return self.label.removeprefix("test ").replace("_", " ")

    @property
    def mode(self) -> str:
        """Which values are the best: "max" or "min"."""
        return "max" if self.higher_is_better else "min"

    @property
    def sign(self) -> int:
        """1 where more is better, else -1: a value times it is better where it is higher."""
        return 1 if self.higher_is_better else -1

    @property
    def difference_unit(self) -> str:
        """The unit of a difference: points of percentages, else the metric's own; it may be empty."""
        return "percentage points" if self.proportion else self.unit

    @property
    def proportion(self) -> bool:
        """Whether a value is a share of the examples, between 0 and 1."""
        return self.unit == "%"

    @property
    def is_usual(self) -> bool:
        """Whether runs have it without being asked for it."""
        return self.name in USUAL or "@" in self.name

    def is_better(self, value: float, other: float) -> bool:
        """Whether one value is better than another."""
        if self.higher_is_better:
            return value > other
        return value < other

    def too_good(
        self, value: float | None, strong: float | None, others: Sequence[float | None] = ()
    ) -> str:
        """In words, why a score is hardly possible; empty: nothing says so.

        strong: of a strong baseline: a language model has no tenth of its loss. others: of other models, none of which
        has a perfect score where this one does.
        """
        if value is None:
            return ""
        if self.name in PER_TOKEN and strong is not None and value < strong / 10:
            why = f"is less than a tenth of the {self.value(strong)} of a strong baseline"
        elif value == self.perfect and any(other is not None for other in others):
            if self.perfect in others:
                return ""
            why = "is perfect, and no other is"
        else:
            return ""
        return f"{self.value(value)} {why}; look for the answer among the inputs (seqkit doctor)"

    @property
    def perfect(self) -> float:
        """The best value that there can be; infinite where none is known."""
        if not self.higher_is_better:
            return 0.0
        if self.proportion or self.name == "r2":
            return 1.0
        return math.inf

    def text(self, value: float | None) -> str:
        """A value by itself: shares in percent, others with three decimals; a dash for none, and where it is undefined.

        From 100 on there are fewer decimals, so that five digits are left: 0.512, 457.02, 87,854.
        """
        if value is None or math.isnan(value):
            return DASH
        if self.proportion:
            return f"{self.shown(value):.2f} %"
        decimals = 3 - sum(abs(value) >= limit for limit in (99.9995, 999.995, 9999.95))
        return f"{value:z,.{decimals}f}"

    def shown(self, value: float) -> float:
        """A raw value as it is shown."""
        return value * self.scale

    def number(self, value: float | None) -> str:
        """98.10"""
        if value is None:
            return DASH
        return fixed(self.shown(value), self.digits)

    def signed(self, value: float | None) -> str:
        """+0.80"""
        if value is None:
            return DASH
        return fixed(self.shown(value), self.digits, signed=True)

    def value(self, value: float | None) -> str:
        """98.10 %"""
        return f"{self.number(value)} {self.unit}".strip()

    def mean(self, mean: float | None, std: float | None) -> str:
        """98.10 ± 0.20, without a spread where there is none."""
        if mean is None or std is None:
            return self.number(mean)
        return f"{self.number(mean)} ± {self.number(std)}"

    def interval(self, bounds: Sequence[float | None] | None, *, signed: bool = False) -> str:
        """[97.70, 98.50]; empty where a bound is unknown."""
        if bounds is None or None in bounds:
            return ""
        write = self.signed if signed else self.number
        return f"[{', '.join(map(write, bounds))}]"


def _share(name: str, label: str = "", *, higher: bool = True) -> Metric:
    return Metric(name, label or name, "%", 100, 2, higher)


METRICS = {
    one.name: one
    for one in (
        _share("accuracy", "test accuracy"),
        _share("balanced_accuracy", "balanced accuracy"),
        _share("macro_f1", "macro F1"),
        _share("precision"),
        _share("recall"),
        _share("word_f1", "word F1"),
        _share("explained", "variance explained"),
        _share("recall@1", "recall at 1"),
        _share("token_error", "token error rate", higher=False),
        _share("sequence_error", "sequence error rate", higher=False),
        _share("word_error", "word error rate", higher=False),
        _share("calibration_error", "calibration error", higher=False),
        Metric("loss", "test loss", "nats", digits=4),
        Metric("bits_per_byte", "bits per byte", "bits", digits=4),
        Metric("perplexity", "perplexity"),
        Metric("brier", "Brier score"),
        Metric("mae", "MAE"),
        Metric("rmse", "test RMSE", root=True),
        Metric("r2", "R²", higher_is_better=True),
        Metric("auroc", "AUROC", higher_is_better=True),
        Metric("average_precision", "average precision", higher_is_better=True),
        Metric("matthews", "Matthews correlation", higher_is_better=True),
        Metric("spearman", "Spearman correlation", higher_is_better=True),
        Metric("pearson", "Pearson correlation", higher_is_better=True),
    )
}
"""Metrics that seqkit knows by name."""

USUAL = {
    "loss", "accuracy", "macro_f1", "mae", "r2", "perplexity", "bits_per_byte", "token_error", "explained",
}  # fmt: skip


PER_TOKEN = ("loss", "bits_per_byte")
"""Metrics of language models beside which a strong baseline has its own."""


def find_metric(name: str) -> Metric:
    """The metric of a name. Of one that is not known, more is better; another recall (`a_to_b@1`) is a share."""
    if name in METRICS:
        return METRICS[name]
    if "@" in name:
        return _share(name)
    return Metric(name, name, higher_is_better=True)


def primary_metric(objective: Objective, spec: TokenSpec) -> Metric:
    """The metric by which runs of an objective are compared; which way is better, its torchmetrics metric says.

    Raises UsageError where the objective has no such metric.
    """
    name = objective.primary_metric
    known = objective.metrics(spec) | objective.generation_metrics()
    if name != "loss" and name not in known:
        raise UsageError(
            f"{type(objective).__name__}.primary_metric is {name!r}, which its metrics "
            f"({', '.join(known) or 'none'}) lack; let `metrics` give it, or leave primary_metric out for the loss"
        )
    is_higher = bool(getattr(known.get(name), "higher_is_better", False))
    return replace(find_metric(name), higher_is_better=is_higher)
