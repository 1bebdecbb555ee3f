"""The main metric of a run, what to know about it, and the table of runs for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from seqkit.errors import one_line
from seqkit.objectives.classify import BINARY_METRICS
from seqkit.objectives.metric import Metric, find_metric
from seqkit.report.table import rich_table
from seqkit.runs.intervals import told
from seqkit.runs.summary import Summary, reasons_of_trial


class Headline(NamedTuple):
    """The main metric of a run. baseline: its value for the constant that is best in training; None: not measured.

    unit: empty for shares, which are shown in percent. bounds: of its 95 % interval; None: not known.
    strong: its value for a specialist, `strong_name`, which says on how many examples it learned; None: there is none.
    difference: the run's value less the specialist's, and the ends of its 95 % interval; None: not known.
    is_broken: whether the model breaks a law, so that it is compared with nothing.
    """

    metric: Metric
    value: float
    baseline: float | None = None
    unit: str = ""
    bounds: tuple[float, float] | None = None
    strong: float | None = None
    strong_name: str = ""
    difference: tuple[float, float, float] | None = None
    is_broken: bool = False

    @property
    def name(self) -> str:
        """Name of the metric."""
        return self.metric.name

    @property
    def label(self) -> str:
        """The metric in words, and its unit."""
        if self.unit:
            return f"{self.metric.words} ({self.unit})"
        return self.metric.words

    @property
    def interval(self) -> str:
        """The 95 % interval in words; empty: not known."""
        return self._interval(self.bounds) if self.bounds else ""

    @property
    def is_worse_than_constant(self) -> bool:
        """True if the constant that is best in training does as well, or better."""
        return self.value == self.baseline or self.is_worse_than(self.baseline)

    @property
    def is_no_better_than_constant(self) -> bool:
        """True if the constant that is best in training does as well, or better, or the interval of a share holds it.

        The interval of an error is wide because some examples are hard, for a constant as well.
        """
        if self.bounds is None or not self.metric.proportion:
            return self.is_worse_than_constant
        return self._replace(value=self.bounds[0]).is_worse_than_constant

    @property
    def is_as_good(self) -> bool:
        """True if the specialist's value is the same, or the interval of the difference holds 0."""
        if self.difference is None:
            return self.strong in (None, self.value)
        _, low, high = self.difference
        return low <= 0 <= high

    @property
    def is_beaten(self) -> bool:
        """True if the specialist is better, by more than the interval of the difference where that is known."""
        return self.is_worse_than(self.strong) and not self.is_as_good

    @property
    def verdict(self) -> str:
        """How the run compares with the specialist: better or worse only where the interval excludes 0."""
        if self.is_broken:
            return "the run breaks a law, and is not compared"
        if self.doubt:
            return "the run's score is hardly possible"
        return self.compared

    @property
    def outcome(self) -> str:
        """The verdict in a word or three; empty: there is no specialist, or its verdict is in doubt."""
        if self.strong is None or self.is_broken or self.doubt:
            return ""
        if self.is_as_good:
            return "not told apart"
        return "the run is worse" if self.is_beaten else "the run is better"

    @property
    def compared(self) -> str:
        """The verdict on a run whose score nothing puts in doubt."""
        if self.difference is None:
            word = "worse" if self.is_worse_than(self.strong) else "better"
            if self.is_as_good:
                word = "equal"
            return f"with this seed, the run is {word}; no interval of the difference is known"
        middle, *ends = self.difference
        word = "better" if self.metric.is_better(middle, 0.0) else "worse"
        sign = -1 if middle < 0 else 1
        interval = self._interval(sorted(sign * end for end in ends))
        unit = f" {self.metric.difference_unit}".rstrip()
        by = f"{word} by {self._number(abs(middle))}{unit} {interval}"
        if middle == 0:
            by = f"equal in the mean {interval}"
        if self.is_as_good:
            return f"the run, {by}, is not told apart from it"
        return f"the run is {by}"

    @property
    def doubt(self) -> str:
        """Why the value is hardly possible; empty: nothing says so."""
        return self.metric.too_good(self.value, self.strong)

    def is_worse_than(self, other: float | None) -> bool:
        """True if the other value is better."""
        return other is not None and self.metric.is_better(other, self.value)

    def text(self, value: float | None) -> str:
        """A value of the metric, as `Metric.text`."""
        return self.metric.text(value)

    def _interval(self, ends: Sequence[float]) -> str:
        return f"[{', '.join(map(self._number, ends))}]"

    def _number(self, value: float) -> str:
        return self.text(value).removesuffix(" %")


def headline(summary: Summary) -> Headline:
    """The metric by which runs of the objective are compared; of a loss, what the objective has in its place.

    Raises ValueError if the run has no metrics.
    """
    metrics = summary["metrics"]
    main = summary.get("main_metric")
    names = (main, "explained", "sequence_error", "loss", *metrics)
    name = next((name for name in names if name in metrics), None)
    if name is None:
        raise ValueError(f"the run of {summary.get('recipe')} has no metrics; train it again")
    metric = find_metric(name)
    mode = summary.get("main_metric_mode")
    if name == main and mode is not None:
        metric = replace(metric, higher_is_better=mode == "max")
    objective = summary.get("objective", "")
    found = Headline(
        metric,
        metrics[name],
        summary.get("baseline", {}).get(name),
        is_broken=bool(summary.get("broken_laws")),
    )
    if name == "loss" and objective in ("NextToken", "Masked"):
        found = found._replace(unit="nats")
    if name == main:
        found = found._replace(bounds=summary.get("main_interval"))
    strong = summary.get("strong_baseline")
    if not strong:
        return found
    unit = "tokens" if objective == "NextToken" else "examples"
    return found._replace(
        strong=strong["metrics"].get(name),
        strong_name=f"{strong['name']} (fit on {strong['num_train']:,} {unit})",
        difference=strong.get("difference"),
    )


def cautions(summary: Summary, *, specialist: bool = True) -> list[str]:
    """At most three sentences to know of a run.

    Its model breaks a law. It is a trial, of which nothing else is said; or its score is hardly possible; or it is no
    better than a constant prediction, or not shown to be; or worse than a specialist. specialist: whether the last is
    said.
    """
    found = [
        f"{line}. Its results are compared with nothing."
        for line in summary.get("broken_laws", [])[:1]
    ]
    if known := _shortages(summary):
        return [
            *found,
            f"This is a trial run, with {' and '.join(known)}: its figures say little of the model.",
        ]
    main = headline(summary)
    if main.doubt:
        found.append(f"{main.label}: {main.doubt}.")
    own = main.text(main.value)
    if main.is_no_better_than_constant:
        word = "no better" if main.is_worse_than_constant else "not shown to be better"
        both = f"{own} {main.interval}".rstrip() + f" against {main.text(main.baseline)}"
        found.append(
            f"With this seed, the run is {word} than the constant that is best in training ({main.label}: {both}); "
            "seqkit doctor looks for the cause (docs/doctor.md)."
        )
    if specialist and main.is_beaten and not main.is_broken:
        against = f"{main.label}: {own} against {main.text(main.strong)}; {main.verdict}"
        found.append(f"{main.strong_name} is better ({against}).")
    return found


def _shortages(summary: Summary) -> list[str]:
    return reasons_of_trial(*(summary.get(key) for key in ("steps", "limit", "num_train")))


def metric_label(summary: Summary, name: str) -> str:
    """A metric in words, with the class that it is of: average precision of yes."""
    return find_metric(name).words + of_class(summary, name)


def of_class(summary: Summary, name: str) -> str:
    """The class that a metric is of, where a run tells two classes apart: " of yes"; else empty."""
    if name in BINARY_METRICS and "positive" in summary:
        return f" of {one_line(summary['positive'])}"
    return ""


def format_metric(name: str, value: float | None) -> str:
    """A value of the metric of that name, as `Metric.text`."""
    return find_metric(name).text(value)


COLUMNS = ("recipe", "backbone", "metric", "test", "baseline", "parameters", "seconds")


class ResultTable:
    """One row per run, at most 80 columns wide: metric, baseline, parameters, seconds of training; below, what to know.

    On a narrower terminal, cells go on in the next line.
    """

    def __init__(self, summaries: Sequence[Summary]):
        self.summaries = summaries

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        rows = [*map(_row, self.summaries)]
        drawn = rich_table(COLUMNS, rows, left=(0, 1, 2), padding=0, collapse_padding=True)
        is_short = all(len(name) <= 20 for row in rows for name in row[:2])
        for column in drawn.columns[:2]:  # an interval can go on at a blank, a name has none
            column.no_wrap = is_short and options.max_width >= 80
        yield drawn
        note = "baseline: the constant that is best in training, on the same test split"
        if any(summary.get("baseline") for summary in self.summaries):
            yield Text(note, style="dim italic")
        for summary in self.summaries:
            name = f"{one_line(summary['recipe'])}: " if len(self.summaries) > 1 else ""
            yield from (Text(f"{name}{line}") for line in _facts(summary))


def _row(summary: Summary) -> list[str]:
    """Cells of a run in the table."""
    main = headline(summary)
    value = f"{main.text(main.value)}\n{main.interval}".rstrip()
    size = f"{summary['num_parameters']:,}"
    seconds = f"{summary['wall_seconds']:.0f}"
    names = map(one_line, (summary["recipe"], summary["backbone"], main.label))
    return [*names, value, main.text(main.baseline), size, seconds]


def network_alone(summary: Summary) -> Headline | None:
    """The headline of a run that a classical method joins, beside which the network alone stands; None: it is alone."""
    known = summary.get("joined")
    if not known or "metrics" not in known:
        return None
    main = headline(summary)
    return main._replace(strong=known["metrics"].get(main.name), difference=known.get("difference"))


def joined(summary: Summary) -> str:
    """In words, the weights of network and classical method; "": the network predicts alone."""
    known = summary.get("joined")
    if not known:
        return ""
    weights = f"{known['network_weight']:.2f} and {known['classical_weight']:.2f}"
    of = "" if summary.get("objective") == "Regress" else " of their log-probabilities"
    return f"the run predicts with network and classical method (weights {weights}{of})"


def split_sizes(summary: Summary) -> str:
    """In words, how many examples each split has; what the summary of an old run lacks is left out."""
    names = (("num_train", "training"), ("num_valid", "validation"), ("num_test", "test"))
    return ", ".join(f"{summary[key]:,} {name}" for key, name in names if key in summary)


def remarks(summary: Summary) -> list[str]:
    """Members of the prediction, and the widths of their intervals, in words."""
    return [line for line in (joined(summary), told(summary)) if line]


def _facts(summary: Summary) -> Iterator[str]:
    """Lines below the table: the specialist, the metrics that were asked for, intervals, cautions."""
    main = headline(summary)
    is_trial = bool(_shortages(summary))
    if is_trial:
        yield from cautions(summary)
    if main.strong is not None:
        yield f"beside it: {main.text(main.strong)}, {main.strong_name}; {main.verdict}"
    if (alone := network_alone(summary)) is not None:
        yield f"the network alone: {alone.text(alone.strong)}; {alone.compared}"
    strong = summary.get("strong_baseline")
    for name, value in summary["metrics"].items():
        metric = find_metric(name)
        if metric.is_usual or name == main.name:
            continue
        known = f"baseline {metric.text(summary.get('baseline', {}).get(name))}"
        if strong:
            known += f", beside it {metric.text(strong['metrics'].get(name))}"
        yield f"{one_line(metric_label(summary, name))}: {metric.text(value)} ({known})"
    yield from remarks(summary)
    if not is_trial:
        yield from cautions(summary, specialist=False)
