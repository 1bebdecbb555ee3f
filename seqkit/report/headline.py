"""The main metric of a run, what to know about it, and the table of runs for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from seqkit.errors import one_line
from seqkit.objectives.classify import BINARY_METRICS
from seqkit.report.numbers import scaled
from seqkit.runs.intervals import told
from seqkit.runs.summary import FEW_STEPS

_UNITS = {
    ("NextToken", "loss"): "nats",
    ("Masked", "loss"): "nats",
}
_BY_OBJECTIVE = {
    "Classify": ("accuracy",),
    "MultiLabel": ("auroc",),
    "Regress": ("rmse",),
    "NextToken": ("sequence_error", "loss"),
    "Masked": ("explained", "loss"),
    "Seq2Seq": ("sequence_error", "loss"),
    "Contrastive": ("recall@1",),
}
_ANY = ("rmse", "explained", "accuracy", "loss")

SHARES = {
    "accuracy", "balanced_accuracy", "macro_f1", "precision", "recall", "explained", "token_error", "sequence_error",
    "calibration_error",
}  # fmt: skip
"""Metrics that are shown in percent, as are recalls (`a_to_b@1`)."""

LOWER_IS_BETTER = {
    "loss", "rmse", "mae", "perplexity", "bits_per_byte", "token_error", "sequence_error", "calibration_error", "brier",
}  # fmt: skip
"""Metrics of which less is better; of all others more is."""

COMPARED = {
    "loss", "rmse", "mae", "r2", "spearman", "pearson", "accuracy", "balanced_accuracy", "macro_f1", "precision",
    "recall", "matthews", "auroc", "average_precision", "calibration_error", "brier", "token_error", "chrf",
}  # fmt: skip
"""Metrics, beside the main one, by which a run may be called worse. Perplexity follows from the loss."""

USUAL = {"loss", "accuracy", "macro_f1", "mae", "r2", "perplexity", "bits_per_byte", "token_error", "explained"}
"""Metrics that a run has without being asked for them, as are recalls (`a_to_b@1`); the terminal shows the others."""

FEW_EXAMPLES = 1000
"""A run whose splits are limited to fewer examples is a trial, as one of fewer than `FEW_STEPS`."""

NARROW = 70
"""Columns of a terminal below which a run is a list of facts instead of a row, so that no number is cut."""


class Headline(NamedTuple):
    """The main metric of a run. baseline: its value for the best constant prediction; None: not measured.

    strong, strong_name: its value for a specialist, and what that is; None: there is none.
    unit: empty for shares, which are shown in percent. is_higher_better: whether more of it is better.
    """

    name: str
    value: float
    baseline: float | None
    unit: str
    strong: float | None = None
    strong_name: str = ""
    is_higher_better: bool = False

    @property
    def label(self) -> str:
        """Name and unit."""
        name = "variance explained" if self.name == "explained" else self.name
        return f"{name} ({self.unit})" if self.unit else name

    @property
    def is_no_better_than_constant(self) -> bool:
        """True if the best constant prediction does as well, or better."""
        return self.value == self.baseline or self._is_worse_than(self.baseline)

    @property
    def is_worse_than_specialist(self) -> bool:
        """True if the strong baseline does better."""
        return self._is_worse_than(self.strong)

    def _is_worse_than(self, other: float | None) -> bool:
        return other is not None and (self.value < other if self.is_higher_better else self.value > other)


def _is_worse(name: str, value: float, other: float | None) -> bool:
    if other is None:
        return False
    return value < other if is_higher_better(name) else value > other


def is_higher_better(name: str) -> bool:
    """True if a higher value of the metric is better."""
    return name not in LOWER_IS_BETTER


def headline(summary: dict[str, Any]) -> Headline:
    """Accuracy of classification, RMSE of regression, nats per token of ids, explained variance of vectors.

    summary: content of `summary.json`; its key `objective` decides, or without it the metrics that there are.
    Raises ValueError if the run has no metrics.
    """
    metrics = summary["metrics"]
    objective = summary.get("objective", "")
    for name in (summary.get("main_metric"), *_BY_OBJECTIVE.get(objective, ()), *_ANY, *metrics):
        if name in metrics:
            strong = summary.get("strong_baseline") or {"metrics": {}, "name": ""}
            return Headline(
                name,
                metrics[name],
                summary.get("baseline", {}).get(name),
                _UNITS.get((objective, name), ""),
                strong["metrics"].get(name),
                strong["name"],
                _is_main_higher_better(summary, name),
            )
    raise ValueError(f"the run of {summary.get('recipe')} has no metrics; train it again")


def is_trial(summary: dict[str, Any]) -> bool:
    """True if a run took so few steps, or so few examples, that its figures say nothing of the model."""
    steps, limit = summary.get("steps"), summary.get("limit")
    return (steps is not None and steps < FEW_STEPS) or (limit is not None and limit < FEW_EXAMPLES)


def cautions(summary: dict[str, Any]) -> list[str]:
    """Sentences that a reader of the result should know: by a metric it is no better than a baseline, or a trial."""
    found = []
    metric = headline(summary)
    strong = (summary.get("strong_baseline") or {"metrics": {}})["metrics"]
    constant = _worse_by(summary, summary.get("baseline", {}))
    if metric.is_no_better_than_constant:
        own, baseline = (format_metric(metric.name, value) for value in (metric.value, metric.baseline))
        compared = "; ".join([f"{metric.label}: {own} against {baseline}", *constant])
        found.append(
            f"This is no better than the best constant prediction ({compared}); train longer (--trainer.max_epochs), "
            "change the learning rate (seqkit tune), or look for the cause with seqkit doctor."
        )
        constant = []
    if constant:
        found.append(f"By other metrics, this is worse than the best constant prediction ({'; '.join(constant)}).")
    worse = _worse_by(summary, strong)
    if metric.is_worse_than_specialist:
        own, better = (format_metric(metric.name, value) for value in (metric.value, metric.strong))
        compared = "; ".join([f"{metric.label}: {own} against {better}", *worse])
        found.append(f"This is worse than {metric.strong_name} ({compared}), which takes seconds.")
    elif worse:
        found.append(f"By other metrics, this is worse than {metric.strong_name} ({'; '.join(worse)}).")
    steps, limit = summary.get("steps"), summary.get("limit")
    if is_trial(summary):
        known = [] if steps is None else ["1 optimizer step" if steps == 1 else f"{steps:,} optimizer steps"]
        known += [] if limit is None else [f"at most {limit:,} examples of each split (data.limit)"]
        found.append(f"This is a trial run, with {' and '.join(known)}: its figures say nothing of the model.")
    return found


def _worse_by(summary: dict[str, Any], others: dict[str, float]) -> list[str]:
    """The metrics, beside the main one, by which a run is worse than a baseline, each with both values."""
    main, found = headline(summary).name, []
    for name, value in summary["metrics"].items():
        if name != main and name in COMPARED and _is_worse(name, value, others.get(name)):
            own, other = (format_metric(name, one) for one in (value, others[name]))
            found += [f"{metric_label(summary, name)}: {own} against {other}"] if own != other else []
    return found


def metric_label(summary: Mapping[str, Any], name: str) -> str:
    """A metric with the class that it is of, where a run tells two classes apart: average_precision of yes."""
    return f"{name} of {one_line(summary['positive'])}" if name in BINARY_METRICS and "positive" in summary else name


def format_metric(name: str, value: float | None) -> str:
    """A metric as text: shares in percent, others as `scaled`; a dash for none, and where it is undefined."""
    if value is None or math.isnan(value):
        return "–"
    if name in SHARES or "@" in name:
        return f"{100 * value:.2f} %"
    return scaled(value)


def _is_main_higher_better(summary: Mapping[str, Any], name: str) -> bool:
    """Whether more of the main metric is better: as the run's own metric says, else by the metric's name."""
    own = summary.get("main_metric_mode") if name == summary.get("main_metric") else None
    return is_higher_better(name) if own is None else own == "max"


class ResultTable:
    """One row per run, 80 columns wide: metric, baseline, parameters, seconds of training; below it what to know.

    On a narrower terminal each run is a list of facts.
    """

    def __init__(self, summaries: Sequence[dict[str, Any]]):
        self.summaries = summaries

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        rows = [_cells(summary) for summary in self.summaries]
        if options.max_width < NARROW:
            for row in rows:
                facts = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
                facts.add_column(no_wrap=True)
                facts.add_column(overflow="fold")
                for name, text in row.items():
                    facts.add_row(name, text)
                yield facts
        else:
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, collapse_padding=True, pad_edge=False)
            for name in COLUMNS:
                table.add_column(name, justify="left" if name in COLUMNS[:3] else "right", no_wrap=True)
            for row in rows:
                table.add_row(*row.values())
            yield table
        yield Text("baseline: the constant that is best in training, on the same test split", style="dim italic")
        for summary in self.summaries:
            name = f"{one_line(summary['recipe'])}: " if len(self.summaries) > 1 else ""
            metric = headline(summary)
            if metric.strong is not None:
                yield Text(f"{name}beside it: {format_metric(metric.name, metric.strong)}, {metric.strong_name}")
            strong = summary.get("strong_baseline")
            for other, value in summary["metrics"].items():
                if other not in USUAL | {metric.name} and "@" not in other:
                    known = [f"baseline {format_metric(other, summary.get('baseline', {}).get(other))}"]
                    known += [f"beside it {format_metric(other, strong['metrics'].get(other))}"] if strong else []
                    label = metric_label(summary, other)
                    yield Text(f"{name}{one_line(label)}: {format_metric(other, value)} ({', '.join(known)})")
            if (line := told(summary)) is not None:
                yield Text(f"{name}{line}")
            for caution in cautions(summary):
                yield Text(f"{name}{caution}")


COLUMNS = ("recipe", "backbone", "metric", "test", "baseline", "parameters", "seconds")


def _cells(summary: dict[str, Any]) -> dict[str, Text]:
    metric = headline(summary)
    test, baseline = (format_metric(metric.name, value) for value in (metric.value, metric.baseline))
    known = (summary["recipe"], summary["backbone"], metric.label, test, baseline)
    texts = (*known, f"{summary['num_parameters']:,}", f"{summary['wall_seconds']:.0f}")
    return dict(zip(COLUMNS, map(Text, map(one_line, texts))))
