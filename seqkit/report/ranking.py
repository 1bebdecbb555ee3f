"""Candidates of a comparison, ranked: what the page and the terminal show of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from seqkit.comparison.types import Metric
from seqkit.errors import one_line, printable
from seqkit.report.candidate_figures import Mark
from seqkit.report.numbers import DASH, count, listed, plural, times

TOLERANCE = 0.02
"""Two budgets are equal up to this share of the reference's."""


class Row(NamedTuple):
    """A candidate with its rank and its difference to the reference. result: the candidate's entry in results.json.

    label: name, which no other candidate has. own_name: the name without the group. rank: 1 is best, within
    the group; None: it failed. difference, interval: to the reference, raw; None where they are not known. speed:
    tokens/s over the reference's. error: why it has no value; None where it has one.
    """

    result: Mapping[str, Any]
    label: str
    own_name: str
    mark: Mark
    rank: int | None
    is_reference: bool
    difference: float | None
    interval: Sequence[float | None] | None
    speed: float | None
    error: str | None


class Group(NamedTuple):
    """Candidates that are ranked among each other, best first. title: how they were trained."""

    title: str
    rows: Sequence[Row]

    @property
    def order(self) -> list[str]:
        """Names, without the group's, of the candidates that have a rank."""
        return [row.own_name for row in self.rows if row.rank]


def ranked(results: Mapping[str, Any]) -> list[Group]:
    """Groups of candidates, the one without pretraining first; in each the best first, and failed ones last."""
    candidates = results["candidates"]
    names = list(dict.fromkeys(_own_name(candidate) for candidate in candidates))
    groups = list(dict.fromkeys(sorted((c.get("group") for c in candidates), key=lambda group: group or "")))
    sign = -1 if results["metric"]["higher_is_better"] else 1
    found = []
    for index, group in enumerate(groups):
        members = [candidate for candidate in candidates if candidate.get("group") == group]
        members.sort(key=lambda c: (not _has_value(c), sign * c["mean"] if _has_value(c) else 0))
        rows = []
        for place, member in enumerate(members, start=1):
            mark = Mark.number(names.index(_own_name(member)), index if len(groups) > 1 else 0)
            rows.append(_row(results, member, mark, place if _has_value(member) else None))
        found.append(Group(group or "without pretraining", rows))
    return found


def is_told_apart(results: Mapping[str, Any], group: Group) -> bool:
    """Whether the first of a group is better than every other."""
    first, *others = [row.label for row in group.rows if row.rank]
    found = [difference_of(results, first, other) for other in others]
    return bool(found) and all(entry is not None and entry.get("better") == first for entry in found)


def ranking_sentences(groups: Sequence[Group]) -> list[str]:
    """Sentences on whether pretraining changes the ranking of the candidates that two groups share."""
    sentences = []
    for group in groups[1:]:
        first = groups[0]
        shared = [name for name in first.order if name in group.order]
        now = [name for name in group.order if name in shared]
        if len(shared) < 2:
            continue
        before, after = ", ".join(shared), ", ".join(now)
        if shared == now:
            sentences.append(f"The ranking by means is the same {first.title} and with {group.title}: {after}.")
        else:
            sentences.append(f"The ranking by means changes with {group.title}: {after}; {first.title} it is {before}.")
    return sentences


def comparison_table(results: Mapping[str, Any]) -> Table:
    """The ranked candidates for the terminal; a candidate that failed says so in its row, and why below the table."""
    metric, groups = Metric.from_json(results["metric"]), ranked(results)
    rows = [row for group in groups for row in group.rows]
    failures = [f"{row.label} failed: {row.error}" for row in rows if row.error]
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        caption=Text(printable("\n".join([*map(one_line, failures), *ranking_sentences(groups)]))),
        caption_justify="left",
    )
    unit = f" ({metric.difference_unit})" if metric.difference_unit else ""
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("candidate", overflow="fold")
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column(Text(f"{one_line(metric.title)}\nmean ± std, interval"), justify="right")
    table.add_column(Text(one_line(f"to {results.get('reference') or DASH}{unit}")), justify="right", overflow="fold")
    table.add_column("tokens/s", justify="right", no_wrap=True)
    for group in groups:
        for row in group.rows:
            value, difference = ("\n".join(lines(row, metric)) for lines in (value_lines, difference_lines))
            texts = (
                Text(text) for text in (one_line(row.label), count(row.result.get("parameters")), value, difference)
            )
            table.add_row(str(row.rank or DASH), *texts, times(row.speed))
        table.add_section()
    return table


def value_lines(row: Row, metric: Metric) -> list[str]:
    """Mean ± spread, and the interval where there is one; "failed" for a candidate without a value."""
    if row.rank is None:
        return ["failed"]
    result = row.result
    lines = [metric.mean(result["mean"], result.get("std")), metric.interval(result.get("interval"))]
    return [line for line in lines if line]


def values_are(results: Mapping[str, Any]) -> str:
    """The words for the values of a table, after "Values are": a mean over seeds with its spread, or of one seed."""
    seeds = max(
        (sum(run.get("value") is not None for run in row.get("runs") or []) for row in results["candidates"]), default=0
    )
    return "of one seed each" if seeds == 1 else f"mean ± standard deviation over {plural(seeds, 'seed')}"


def difference_lines(row: Row, metric: Metric) -> list[str]:
    """The difference to the reference, and its interval where there is one."""
    if row.is_reference:
        return ["reference"]
    lines = [metric.signed(row.difference), metric.interval(row.interval, signed=True)]
    return [line for line in lines if line]


def difference_of(results: Mapping[str, Any], a: str, b: str) -> Mapping[str, Any] | None:
    """The difference a − b of two candidates, turned round where the results have b − a; None if they have neither."""
    for entry in results["differences"]:
        if (entry["a"], entry["b"]) == (a, b):
            return entry
        if (entry["a"], entry["b"]) == (b, a):
            value, interval = entry.get("difference"), entry.get("interval")
            turned = None if interval is None or None in interval else [-interval[1], -interval[0]]
            return {**entry, "difference": None if value is None else -value, "interval": turned}
    return None


def _row(results: Mapping[str, Any], candidate: Mapping[str, Any], mark: Mark, rank: int | None) -> Row:
    name, reference = candidate["name"], results.get("reference")
    entry = (difference_of(results, name, reference) if reference else None) or {}
    base: Mapping[str, Any] = next((c for c in results["candidates"] if c["name"] == reference), {})
    own, other = ((c.get("cost") or {}).get("tokens_per_second") for c in (candidate, base))
    return Row(
        candidate,
        name,
        _own_name(candidate),
        mark,
        rank,
        name == reference,
        entry.get("difference"),
        entry.get("interval"),
        own / other if own is not None and other else None,
        candidate.get("error") or (None if rank else "no value"),
    )


def _has_value(candidate: Mapping[str, Any]) -> bool:
    return candidate.get("mean") is not None


def _own_name(candidate: Mapping[str, Any]) -> str:
    """The name without the group's: `LSTM + masked pretraining` is LSTM."""
    return str(candidate["name"]).removesuffix(f" + {candidate.get('group')}")


def budget_remarks(candidates: Sequence[Mapping[str, Any]]) -> list[str]:
    """Remarks on how far a budget is off, of each row of results.json whose budget is not the reference's."""
    gaps = {row["name"]: row.get("budget_gap") or 0.0 for row in candidates}
    return [
        f"{name} is {100 * abs(gap):.1f} % {'above' if gap > 0 else 'below'} the budget"
        for name, gap in gaps.items()
        if abs(gap) > TOLERANCE
    ]


def constant_sentence(candidates: Sequence[Mapping[str, Any]], metric: Metric) -> str | None:
    """A sentence on the constant prediction that is best in training; None: it is not known.

    candidates: rows of results.json.
    """
    values = [one["constant"] for one in candidates if one.get("constant") is not None]
    if not values:
        return None
    shown = dict.fromkeys(f"{metric.number(value)} {metric.unit}".strip() for value in values)
    return f"The best constant prediction has {listed(list(shown))}."
