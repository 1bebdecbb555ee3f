"""Results as a table for the terminal, and which metric is a run's headline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from seqkit.errors import one_line

_UNITS = {
    ("NextToken", "loss"): "nats",
    ("Masked", "loss"): "nats",
}
_BY_OBJECTIVE = {
    "Classify": ("accuracy",),
    "Regress": ("rmse",),
    "NextToken": ("loss",),
    "Masked": ("explained", "loss"),
    "Seq2Seq": ("sequence_error", "loss"),
}
_ANY = ("rmse", "explained", "accuracy", "loss")


class Headline(NamedTuple):
    """The main metric of a run. baseline: that of the best constant prediction; None: not measured.

    unit: empty for shares, which are shown in percent.
    """

    name: str
    value: float
    baseline: float | None
    unit: str

    @property
    def label(self) -> str:
        """Name and unit."""
        name = "variance explained" if self.name == "explained" else self.name
        return f"{name} ({self.unit})" if self.unit else name


def headline(summary: dict[str, Any]) -> Headline:
    """Accuracy of classification, RMSE of regression, nats per token of ids, explained variance of vectors.

    summary: what `summary.json` says; its key `objective` decides, or without it the metrics that there are.
    Raises ValueError if the run has no metrics.
    """
    metrics = summary["metrics"]
    objective = summary.get("objective", "")
    for name in (*_BY_OBJECTIVE.get(objective, ()), *_ANY, *metrics):
        if name in metrics:
            return Headline(
                name, metrics[name], summary.get("baseline", {}).get(name), _UNITS.get((objective, name), "")
            )
    raise ValueError(f"the run of {summary.get('recipe')} has no metrics; train it again")


def format_metric(name: str, value: float | None) -> str:
    """A metric as text: shares in percent, others with three decimals; a dash for none."""
    if value is None:
        return "–"
    if name in ("accuracy", "explained", "token_error", "sequence_error"):
        return f"{100 * value:.2f} %"
    return f"{value:.3f}"


def result_table(summaries: Sequence[dict[str, Any]]) -> Table:
    """One row per run, 80 columns wide: metric, baseline, parameters, seconds of training."""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=0,
        collapse_padding=True,
        pad_edge=False,
        caption="baseline: the best constant prediction, on the same test split",
        caption_justify="left",
    )
    for name in ("recipe", "backbone", "metric"):
        table.add_column(name, no_wrap=True)
    for name in ("test", "baseline", "parameters", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for summary in summaries:
        metric = headline(summary)
        table.add_row(
            *(Text(one_line(name)) for name in (summary["recipe"], summary["backbone"], metric.label)),
            format_metric(metric.name, metric.value),
            format_metric(metric.name, metric.baseline),
            f"{summary['num_parameters']:,}",
            f"{summary['wall_seconds']:.0f}",
        )
    return table
