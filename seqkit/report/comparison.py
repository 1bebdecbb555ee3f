"""The page of `seqkit compare` and of `seqkit scale`, from results.json alone: nothing is trained or loaded again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup
from yaml import YAMLError

from seqkit.comparison.types import Metric
from seqkit.config.recipe import load_yaml
from seqkit.errors import DataError, one_line
from seqkit.files import read_mapping, write_atomic
from seqkit.report.candidate_figures import Line, Mark, lines, mean_line, pair_line, spreads
from seqkit.report.figures import svg
from seqkit.report.learning_rates import (
    depth_lines,
    expected_lines,
    rate_lines,
    trial_table,
    tuning_sentence,
)
from seqkit.report.numbers import DASH, compact, count, finite, listed, p_value, percent, plain, plural, times
from seqkit.report.ranking import (
    Group,
    Row,
    comparison_table,
    constant_sentence,
    difference_lines,
    difference_of,
    is_told_apart,
    ranked,
    ranking_sentences,
    value_lines,
    values_are,
)
from seqkit.report.scaling import scaling_sections
from seqkit.report.templates import fill, write_page

__all__ = ["comparison_table", "write_comparison"]

KEYS = {
    "comparison": ("title", "answer", "metric", "candidates", "differences"),
    "scaling": ("title", "answer", "fits"),
}


FEWEST_DISTANCES = 8
"""Tokens below which it means little how far a gradient reaches."""


class Figure(NamedTuple):
    """A figure as the page shows it. alt: what it shows, in words."""

    svg: str
    alt: str


class Cell(NamedTuple):
    """A cell of the matrix of differences. lines: difference, interval, p-value. better: "row", "column" or ""."""

    lines: Sequence[str]
    better: str = ""


def write_comparison(folder: Path) -> Path:
    """Write `report.html` beside `results.json` of a comparison or of a scaling study, and a comparison's `results.md`.

    Returns the path of the page. Raises DataError where results.json is missing, damaged or of another kind.
    """
    path = folder / "results.json"
    results = finite(read_mapping(path, "kind"))
    kind = results["kind"]
    if kind not in KEYS:
        raise DataError(f"{path} has the kind {plain(kind)!r}; give a folder of `seqkit compare` or `seqkit scale`")
    read_mapping(path, *KEYS[kind])
    sections = comparison_sections(results) if kind == "comparison" else scaling_sections(results)
    if kind == "comparison":
        write_atomic(folder / "results.md", comparison_markdown(results, sections).encode())
    return write_page(
        f"{kind}.html",
        folder / "report.html",
        title=results["title"],
        subtitle=_subtitle(results),
        results=results,
        warnings=[entry for entry in results.get("unmatched") or [] if entry["kind"] == "warning"],
        notes=[entry for entry in results.get("unmatched") or [] if entry["kind"] != "warning"],
        overrides=" ".join(results.get("overrides") or []),
        **sections,
    )


def comparison_markdown(results: Mapping[str, Any], sections: Mapping[str, Any]) -> str:
    """A comparison as Markdown: for a page of documentation, a pull request, a notebook."""
    command, machine = Markup(one_line(results["command"])), results.get("machine") or {}  # noqa: S704 - in a code block
    fits = [Markup(one_line(fit)) for fit in results.get("fit_commands") or []]  # noqa: S704 - there, too
    text = fill("comparison.md", results=results, command=command, fits=fits, machine=machine, **sections)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def own_length(overrides: Sequence[str]) -> str | None:
    """A sentence on a length of training that the command sets, in place of the recipe's; None if it sets none."""
    words = " ".join(f" {word}" for word in overrides)
    found = [f"{key} {value}" for key, value in re.findall(r" --(trainer\.max_(?:steps|epochs|time))[ =]+(\S+)", words)]
    if not found:
        return None
    return (
        f"The length of training is the command's, not the recipe's ({listed(found)}): a longer training may rank the "
        "candidates otherwise."
    )


def comparison_sections(results: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a comparison's template, beside the results themselves."""
    metric, groups = Metric.from_json(results["metric"]), ranked(results)
    rows = [row for group in groups for row in group.rows]
    return {
        "metric": metric,
        "length": own_length(results.get("overrides") or []),
        "groups": groups,
        "rows": rows,
        "sound": [row for row in rows if not row.error],
        "constant": constant_sentence(results["candidates"], metric),
        "rankings": ranking_sentences(groups),
        "chosen_keys": _titles(key for row in rows for key in _chosen(row)),
        "values": _values(groups, metric),
        "curves": _curves(rows),
        "by_steps": _by_steps(rows, metric),
        "by_steps_pairs": _pairs_by_steps(results, metric),
        "is_told_apart": lambda group: is_told_apart(results, group),
        "costs": _costs(rows),
        "gradients": _gradients(rows),
        "lengths": _lengths(rows, metric),
        "differences": _differences(results, rows, metric),
        "matched": _matched(results, rows),
        "tuning": tuning_sentence(results),
        "inference": _inference(results, rows),
        "p_value": p_value,
        "values_are": values_are(results),
        "chosen": _chosen,
        "length_of": _length_of,
        "trials": trial_table(rows),
        "depths": depth_lines(rows),
        "rates": _rates(rows),
        "expected": _expected(rows),
        "difference_lines": lambda row: difference_lines(row, metric),
        "value_lines": lambda row: value_lines(row, metric),
        "count": count,
        "compact": compact,
        "percent": percent,
        "plain": plain,
        "times": times,
    }


def _chosen(row: Row) -> dict[str, Any]:
    """Settings that were chosen for a candidate; where nothing was tuned, the learning rate of its configuration."""
    if chosen := row.result.get("chosen"):
        return dict(chosen)
    try:
        optimizer = load_yaml(row.result.get("config") or "")["optimizer"]
        return {f"optimizer.{key}": optimizer[key] for key in ("type", "lr") if optimizer[key] is not None}
    except (DataError, KeyError, TypeError, YAMLError):
        return {}  # it is not known


def _length_of(point: Mapping[str, Any]) -> str:
    """The number of tokens of a point, and of how many test examples it is, where that is known."""
    low, high = point.get("lengths") or [point["tokens"]] * 2
    tokens = f"{count(low)} tokens" if low == high else f"{count(low)} to {count(high)} tokens"
    return tokens + (f" ({plural(point['examples'], 'example')})" if point.get("examples") else "")


def _titles(keys: Iterable[str]) -> dict[str, str]:
    """Chosen keys with the titles of their columns: the last word of a key, after what tells it from others."""
    known = [key.split(".") for key in dict.fromkeys(keys)]
    last = [words[-1] for words in known]
    titles = {}
    for words in known:
        own = {"lr": "learning rate", "type": words[-2]}.get(words[-1], words[-1])
        titles[".".join(words)] = " ".join([*words[1:-1], own] if last.count(words[-1]) > 1 else [own])
    return titles


def _subtitle(results: Mapping[str, Any]) -> str:
    """Version, preset, seeds, data and date in one line."""
    seeds, minutes = results.get("seeds") or [], results.get("run_minutes")
    longest = max((row.get("longest") or 0 for row in results.get("candidates") or []), default=0)
    parts = [
        f"seqkit {(results.get('versions') or {}).get('seqkit', '')}".strip(),
        f"preset {results['preset']}" if results.get("preset") else None,
        plural(len(seeds), "seed") if seeds else None,
        f"{count(results['train_tokens'])} training tokens" if results.get("train_tokens") else None,
        f"{count(results['num_test'])} test examples" if results.get("num_test") else None,
        f"up to {plural(longest, 'token')} each" if longest else None,
        _moment(results.get("started")),
        None if minutes is None else f"total run time {_long(minutes)}",
        "planned in advance (plan.md)" if results.get("planned") else None,
    ]
    return " · ".join(part for part in parts if part)


def _long(minutes: float) -> str:
    return f"{minutes:.1f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


def _moment(started: str | None) -> str | None:
    try:
        return datetime.fromisoformat(started).strftime("%Y-%m-%d %H:%M") if started else None
    except ValueError:
        return started


def _values(groups: Sequence[Group], metric: Metric) -> Figure | None:
    """Every seed of every candidate, with mean and interval."""
    shown: list[tuple[str, Mark | None, Mapping[str, Any]]] = []
    for group in groups:
        shown += [(group.title, None, {})] if len(groups) > 1 else []
        shown += [(row.own_name, row.mark, row.result) for row in group.rows]
    ranks = (row for group in groups for row in group.rows if row.rank)
    means = ", ".join(f"{row.label} {metric.number(row.result.get('mean'))}" for row in ranks) or "no values"
    alt = f"{metric.title} of each candidate, seed by seed, with mean and interval: {means}"
    return Figure(svg(spreads(shown, metric)), alt) if shown else None


def _curves(rows: Sequence[Row]) -> list[Figure]:
    """Training and validation loss against tokens, time and FLOPs, where they are known."""
    figures = []
    for y, ylabel in (("train_loss", "training loss"), ("valid_loss", "validation loss")):
        for x, xlabel in (
            ("tokens", "training tokens"),
            ("seconds", "seconds of training"),
            ("flops", "training FLOPs"),
        ):
            drawn = [mean_line(row.mark, row.result.get("runs") or [], x, y) for row in rows]
            alt = f"{ylabel} against {xlabel}, mean over seeds, one line a candidate"
            is_curve = any(line is not None and len(line.x) > 1 for line in drawn)
            figures.append(_figure(drawn, xlabel, ylabel, alt) if is_curve else None)
    return [figure for figure in figures if figure]


def _by_steps(rows: Sequence[Row], metric: Metric) -> list[Figure]:
    """The metric after trainings of several lengths, against their steps, FLOPs and seconds."""
    figures = []
    for x, xlabel in (("steps", "training steps"), ("flops", "training FLOPs"), ("seconds", "seconds of training")):
        drawn: list[Line] = []
        for row in rows:
            points = [p for p in row.result.get("by_steps") or [] if p.get(x) is not None and p["mean"] is not None]
            low = high = None
            if all(p.get("interval") and None not in p["interval"] for p in points):
                low, high = ([metric.shown(p["interval"][side]) for p in points] for side in (0, 1))
            means = [metric.shown(p["mean"]) for p in points]
            drawn += [Line(row.mark, [p[x] for p in points], means, low, high)] if len(points) > 1 else []
        alt = f"{metric.title} against {xlabel}, each point a training of its own, one line a candidate"
        log_y = False if metric.proportion else None  # the interval of a share may end next to 0
        figures.append(_figure(drawn, xlabel, metric.title, alt, log_x=True, log_y=log_y, bars=True))
    return [figure for figure in figures if figure]


def _pairs_by_steps(results: Mapping[str, Any], metric: Metric) -> list[str]:
    """Which candidate is better than which after each shorter training, and for how many pairs p is corrected."""
    entries = results.get("differences_by_steps") or []
    found = []
    for steps in dict.fromkeys(entry["steps"] for entry in entries):
        here = [entry for entry in entries if entry["steps"] == steps]
        told = []
        for entry in here:
            if winner := entry.get("better"):
                loser = entry["b"] if winner == entry["a"] else entry["a"]
                amount = metric.number(abs(entry["difference"]))
                told.append(f"{winner} is better than {loser} by {amount} {metric.spoken_unit}".strip())
        rest = len(here) - len(told)
        if rest:
            told.append(f"there is no significant difference in {plural(rest, 'other pair' if told else 'pair')}")
        found.append(f"After {count(steps)} steps, {'; '.join(told)}.")
    return [*found, f"These p-values are corrected for {len(entries)} pairs (Holm 1979)."] if found else []


def _costs(rows: Sequence[Row]) -> list[Figure]:
    """Step time and memory against length, latency against context."""
    figures = []
    for key, scale, xlabel, ylabel in (
        ("seconds_by_length", 1e3, "tokens in an example", "training step (ms)"),
        ("latency_by_context", 1e3, "tokens of context", "latency per token (ms)"),
        ("memory_by_length", 1.0, "tokens in an example", "peak memory (bytes)"),
    ):
        drawn = [pair_line(row.mark, (row.result.get("cost") or {}).get(key), scale) for row in rows]
        figures.append(_figure(drawn, xlabel, ylabel, f"{ylabel} against {xlabel}, one line a candidate"))
    return [figure for figure in figures if figure]


def _gradients(rows: Sequence[Row]) -> Figure | None:
    """Gradient of the last hidden state against distance."""
    known = [row for row in rows if len(row.result.get("gradient_flow") or []) >= FEWEST_DISTANCES]
    drawn = [pair_line(row.mark, row.result.get("gradient_flow")) for row in known]
    alt = "norm of the gradient of the last hidden state against the distance to an earlier one, one line a candidate"
    return _figure(drawn, "distance T − t (tokens)", "norm of the gradient", alt, log_x=False, log_y=True, width=4.6)


def _lengths(rows: Sequence[Row], metric: Metric) -> Figure | None:
    """The metric against the number of tokens of a test example."""
    drawn: list[Line] = []
    for row in rows:
        known = [point for point in row.result.get("by_length") or [] if point["value"] is not None]
        points = sorted(known, key=lambda point: point["tokens"])
        low = high = None
        if all(p.get("interval") is not None and None not in p["interval"] for p in points):
            low, high = ([metric.shown(p["interval"][side]) for p in points] for side in (0, 1))
        values = [metric.shown(point["value"]) for point in points]
        drawn += [Line(row.mark, [point["tokens"] for point in points], values, low, high)] if points else []
    alt = f"{metric.title} against the number of tokens of a test example, one line a candidate"
    return _figure(drawn, "tokens in a test example", metric.title, alt, log_y=False, bars=True, width=4.6)


def _rates(rows: Sequence[Row]) -> Figure | None:
    """Validation loss against the learning rates that were tried."""
    alt = "validation loss against the learning rate that was tried, one line a candidate, the chosen one ringed"
    return _figure(rate_lines(rows), "learning rate", "validation loss of the trial", alt, width=4.6)


def _expected(rows: Sequence[Row]) -> Figure | None:
    """The lowest validation loss that so many trials are expected to give."""
    alt = "expected validation loss of the best of k trials against k, one line a candidate"
    return _figure(expected_lines(rows), "trials", "expected lowest validation loss", alt, log_x=False, width=4.6)


def _figure(drawn: Sequence[Line | None], xlabel: str, ylabel: str, alt: str, **options: Any) -> Figure | None:
    """One figure of the lines that there are; None where there are no lines."""
    known = [line for line in drawn if line is not None]
    return Figure(svg(lines(known, xlabel=xlabel, ylabel=ylabel, **options)), alt) if known else None


def _differences(results: Mapping[str, Any], rows: Sequence[Row], metric: Metric) -> dict[str, Any] | None:
    """Row minus column for all pairs, of the candidates that have a difference to any other; None below two pairs."""
    if len(results["differences"]) < 2:
        return None
    paired = {entry[side] for entry in results["differences"] for side in ("a", "b")}
    chosen = [row for row in rows if row.label in paired]
    return {"rows": chosen, "cells": [[_cell(results, a, b, metric) for b in chosen] for a in chosen]}


def _cell(results: Mapping[str, Any], a: Row, b: Row, metric: Metric) -> Cell:
    entry = None if a is b else difference_of(results, a.label, b.label)
    if entry is None:
        return Cell([] if a is b else [DASH])
    written = [metric.signed(entry["difference"]), metric.interval(entry["interval"], signed=True)]
    p = p_value(entry)
    written += [f"p {p}" if p.startswith("<") else f"p = {p}"] if p != DASH else []
    better = {a.label: "row", b.label: "column"}.get(entry.get("better") or "", "")
    return Cell([line for line in written if line], better)


def _inference(results: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Explanation of what intervals and p-values cover, and how they are computed."""
    number = sum(entry.get("p") is not None for entry in results["differences"])
    if not number:
        return ""
    seeds = min((len(row.result["runs"]) for row in rows if row.rank), default=0)
    covers = "the choice of seeds and of test examples"
    if results["num_test"] == 1:
        covers = "the choice of seeds alone, as there is one test example"
    elif seeds < 2:
        covers = "the choice of test examples alone, as there is one seed"
    found = [
        f"Numbers in brackets are 95 % confidence intervals. They cover {covers}, not the data split or the tuning.",
        "Seeds and test examples are crossed random effects, with Satterthwaite's degrees of freedom for t.",
    ]
    if Metric.from_json(results["metric"]).proportion:
        found.append("The interval of a single candidate follows Korn and Graubard (1998).")
    corrected = f"p-values and intervals of differences are corrected for {number} pairs by Holm's method (1979)."
    found += [corrected] if number > 1 else []
    pairs = list(dict.fromkeys(entry["pairs"] for entry in results["differences"] if entry.get("pairs")))
    found += [f"Differences are paired by test examples ({'; '.join(pairs)}), not by seeds."] if pairs else []
    return " ".join([*found, "scores.npz has every score, to compute all of this again."])


def _matched(results: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """The budget that is equal between candidates, and how far they are from it."""
    match = results.get("match")
    if not match or match == "none":
        return "No budget was matched: each candidate has the size that its configuration gives."
    what = {"parameters": "number of parameters", "flops": "FLOPs per training step", "time": "training time"}
    number = f" ({count(results['budget'])})" if results.get("budget") else ""
    of = f" of {results['reference']}" if results.get("reference") else ""
    gaps = [gap for row in rows if (gap := row.result.get("budget_gap")) is not None]
    widest = f" The largest deviation is {percent(max(gaps, key=abs))}." if any(gaps) else ""
    return f"Each candidate was matched to the {what.get(match, match)}{of}{number}.{widest}"
