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
from seqkit.report.numbers import DASH
from seqkit.runs.intervals import told
from seqkit.runs.summary import reasons_of_trial

SHARES = {
    "accuracy", "balanced_accuracy", "macro_f1", "precision", "recall", "explained", "token_error", "sequence_error",
    "word_error", "word_f1", "calibration_error",
}  # fmt: skip
"""Metrics that are shown in percent, as are recalls (`a_to_b@1`)."""

LOWER_IS_BETTER = {
    "loss", "rmse", "mae", "perplexity", "bits_per_byte", "token_error", "sequence_error", "word_error",
    "calibration_error", "brier",
}  # fmt: skip
"""Metrics of which less is better; of all others more is."""

USUAL = {
    "loss",
    "accuracy",
    "macro_f1",
    "mae",
    "r2",
    "perplexity",
    "bits_per_byte",
    "token_error",
    "explained",
}
"""Metrics that a run has without being asked for them, as are recalls (`a_to_b@1`); the terminal shows the others."""


class Headline(NamedTuple):
    """The main metric of a run. baseline: its value for the best constant prediction; None: not measured.

    strong: its value for a specialist, `strong_name`, which says on how many examples it learned; None: there is none.
    unit: empty for shares, which are shown in percent. is_higher_better: whether more of it is better.
    interval: 95 %, in words; empty: not known. verdict: how the run compares with the specialist, in words.
    low: the lower end of the interval; None: not known.
    """

    name: str
    value: float
    baseline: float | None
    unit: str
    strong: float | None = None
    strong_name: str = ""
    is_higher_better: bool = False
    interval: str = ""
    verdict: str = ""
    low: float | None = None

    @property
    def label(self) -> str:
        """Name and unit."""
        name = "variance explained" if self.name == "explained" else self.name
        return f"{name} ({self.unit})" if self.unit else name

    @property
    def is_no_better_than_constant(self) -> bool:
        """True if the best constant prediction does as well, or better, or the test interval holds it."""
        lowest = self.value if self.low is None else self.low
        return lowest == self.baseline or self._replace(value=lowest).is_worse_than(self.baseline)

    @property
    def is_beaten(self) -> bool:
        """True if the specialist is better, by more than the interval of the difference where that is known."""
        return self.is_worse_than(self.strong) and "as good" not in self.verdict

    def is_worse_than(self, other: float | None) -> bool:
        """True if the other value is better."""
        return other is not None and (
            self.value < other if self.is_higher_better else self.value > other
        )


def headline(summary: dict[str, Any]) -> Headline:
    """The metric by which runs of the objective are compared; of a loss, what the objective has in its place.

    summary: content of `summary.json`. Raises ValueError if the run has no metrics.
    """
    metrics = summary["metrics"]
    objective = summary.get("objective", "")
    names = (summary.get("main_metric"), "explained", "sequence_error", "loss", *metrics)
    name = next((name for name in names if name in metrics), None)
    if name is None:
        raise ValueError(f"the run of {summary.get('recipe')} has no metrics; train it again")
    strong = summary.get("strong_baseline") or {"metrics": {}, "name": "", "num_train": 0}
    unit = "tokens" if objective == "NextToken" else "examples"
    mode = summary.get("main_metric_mode") if name == summary.get("main_metric") else None
    is_higher_better = name not in LOWER_IS_BETTER if mode is None else mode == "max"
    interval = summary.get("accuracy_interval") if name == "accuracy" else None
    return Headline(
        name,
        metrics[name],
        summary.get("baseline", {}).get(name),
        "nats" if name == "loss" and objective in ("NextToken", "Masked") else "",
        strong["metrics"].get(name),
        f"{strong['name']} ({strong['num_train']:,} training {unit})",
        is_higher_better,
        ""
        if interval is None
        else f"[{', '.join(format_metric(name, x).removesuffix(' %') for x in interval)}]",
        _verdict(name, metrics[name], strong, is_higher_better=is_higher_better),
        None if interval is None else interval[0],
    )


def _verdict(name: str, value: float, strong: Mapping[str, Any], *, is_higher_better: bool) -> str:
    """How a run compares with a specialist: better or worse only where the interval of the difference excludes 0."""
    difference = strong.get("difference")
    other = strong["metrics"].get(name)
    if difference is None:
        if other in (None, value):
            word = "as good"
        else:
            word = ["worse", "better"][(value > other) == is_higher_better]
        return f"with this seed, the run is {word}; no interval of the difference is known"
    low, high = difference[1:]
    if low <= 0 <= high:
        word = "as good, within the interval"
    else:
        word = ["worse", "better"][(low > 0) == is_higher_better]
    middle, *ends = (
        "+-"[x < 0] + format_metric(name, abs(x)).removesuffix(" %") for x in difference
    )
    return f"the run is {word}: {middle} [{', '.join(ends)}]"


def is_trial(summary: dict[str, Any]) -> bool:
    """True if a run took so few steps, or so few examples, that its figures say nothing of the model."""
    return bool(_reasons(summary))


def _reasons(summary: dict[str, Any]) -> list[str]:
    return reasons_of_trial(*(summary.get(key) for key in ("steps", "limit", "num_train")))


def cautions(summary: dict[str, Any], *, specialist: bool = True) -> list[str]:
    """At most two sentences to know of a run.

    It is a trial, of which nothing else is said; or no better than a constant prediction, or not shown to be; or worse
    than a specialist. specialist: whether the last is said.
    """
    found = list[str]()
    metric = headline(summary)
    own, baseline, strong = (
        format_metric(metric.name, x) for x in (metric.value, metric.baseline, metric.strong)
    )
    if is_trial(summary):
        known = " and ".join(_reasons(summary))
        return [f"This is a trial run, with {known}: its figures say little of the model."]
    if metric.is_no_better_than_constant:
        is_as_bad = metric.value == metric.baseline or metric.is_worse_than(metric.baseline)
        word = "no better" if is_as_bad else "not shown to be better"
        own = f"{own} {metric.interval}".rstrip()
        found.append(
            f"With this seed, the run is {word} than the best constant prediction ({metric.label}: {own} against "
            f"{baseline}); train longer (--trainer.min_steps 1000), change the learning rate (seqkit tune), or look "
            "for the cause with seqkit doctor."
        )
    if specialist and metric.is_beaten:
        against = f"{metric.label}: {own} against {strong}; {metric.verdict}"
        found.append(
            f"{metric.strong_name} is better ({against}). {_better_setting(summary)}".rstrip()
        )
    return found


def _better_setting(summary: Mapping[str, Any]) -> str:
    """Words of a setting that did better on such data than the recipe; empty: none is known."""
    setting = summary["strong_baseline"].get("setting", "")
    if setting and summary["backbone"].lower() not in setting:
        return f"On such data, {setting}."
    return ""


def metric_label(summary: Mapping[str, Any], name: str) -> str:
    """A metric with the class that it is of, where a run tells two classes apart: average_precision of yes."""
    if name in BINARY_METRICS and "positive" in summary:
        return f"{name} of {one_line(summary['positive'])}"
    return name


def format_metric(name: str, value: float | None) -> str:
    """A metric as text: shares in percent, others with three decimals; a dash for none, and where it is undefined.

    From 100 on there are fewer decimals, so that five digits are left: 0.512, 457.02, 87,854.
    """
    if value is None or math.isnan(value):
        return DASH
    if name in SHARES or "@" in name:
        return f"{100 * value:.2f} %"
    return f"{value:,.{3 - sum(abs(value) >= limit for limit in (99.9995, 999.995, 9999.95))}f}"


COLUMNS = ("recipe", "backbone", "metric", "test", "baseline", "parameters", "seconds")


class ResultTable:
    """One row per run, at most 80 columns wide: metric, baseline, parameters, seconds of training; below, what to know.

    On a narrower terminal, cells go on in the next line.
    """

    def __init__(self, summaries: Sequence[dict[str, Any]]):
        self.summaries = summaries

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        table = Table(
            box=box.SIMPLE_HEAD, show_edge=False, padding=0, collapse_padding=True, pad_edge=False
        )
        for name in COLUMNS:
            table.add_column(
                name, justify="left" if name in COLUMNS[:3] else "right", overflow="fold"
            )
        for summary in self.summaries:
            metric = headline(summary)
            numbers = (
                format_metric(metric.name, value) for value in (metric.value, metric.baseline)
            )
            size = f"{summary['num_parameters']:,}"
            seconds = f"{summary['wall_seconds']:.0f}"
            cells = [summary["recipe"], summary["backbone"], metric.label, *numbers, size, seconds]
            cells = list(map(one_line, cells))
            cells[3] = f"{cells[3]}\n{metric.interval}".rstrip()
            table.add_row(*map(Text, cells))
        yield table
        yield Text(
            "baseline: the constant that is best in training, on the same test split",
            style="dim italic",
        )
        for summary in self.summaries:
            name = f"{one_line(summary['recipe'])}: " if len(self.summaries) > 1 else ""
            yield from (Text(f"{name}{line}") for line in _facts(summary))


def averaged(summary: Mapping[str, Any]) -> str:
    """In words, the share of a linear model in the predictions of a table; "": they are the network's alone."""
    share = summary.get("network_share")
    if share is None:
        return ""
    return f"a prediction is {100 * share:.0f} % the network's, the rest that of a linear model of the table's cells"


def _facts(summary: dict[str, Any]) -> Iterator[str]:
    """Lines below the table: the specialist, the metrics that were asked for, intervals, cautions."""
    metric = headline(summary)
    strong = summary.get("strong_baseline")
    if is_trial(summary):
        yield from cautions(summary)
    if metric.strong is not None:
        beside = f"beside it: {format_metric(metric.name, metric.strong)}, {metric.strong_name}; {metric.verdict}"
        yield f"{beside}. {_better_setting(summary)}".rstrip() if metric.is_beaten else beside
    for other, value in summary["metrics"].items():
        if other not in USUAL | {metric.name} and "@" not in other:
            known = f"baseline {format_metric(other, summary.get('baseline', {}).get(other))}"
            known += (
                f", beside it {format_metric(other, strong['metrics'].get(other))}"
                if strong
                else ""
            )
            yield f"{one_line(metric_label(summary, other))}: {format_metric(other, value)} ({known})"
    yield from filter(None, (averaged(summary), told(summary)))
    if not is_trial(summary):
        yield from cautions(summary, specialist=False)
