"""The page of `seqkit compare`, from its results alone: nothing is trained or loaded again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from seqkit.comparison.results import read_results
from seqkit.comparison.stages import Plan
from seqkit.comparison.statistics import LEVEL
from seqkit.comparison.types import Difference, Results, Row
from seqkit.comparison.verdicts import doubts, untrained
from seqkit.errors import one_line
from seqkit.files import write_atomic
from seqkit.objectives.metric import DASH, fixed
from seqkit.report import sentences, sequential
from seqkit.report.candidate_figures import Line, Mark, lines, mean_line, rate_lines, spreads
from seqkit.report.figures import svg
from seqkit.report.numbers import format_number, plural
from seqkit.report.table import Cell, Table, to_csv
from seqkit.report.templates import fill, tidied, write_page

BRIEF = 5
"""Columns of the ranking in a terminal; the page has all."""


class Drawing(NamedTuple):
    """A figure as the page shows it. alt: what it shows, in words."""

    svg: str
    alt: str


class Chapter(NamedTuple):
    """A section of the page. has_legend: whether the candidates' marks stand above the figures."""

    id: str
    title: str
    text: Sequence[str] = ()
    table: Table | None = None
    figures: Sequence[Drawing] = ()
    notes: Sequence[str] = ()
    has_legend: bool = True


def write_comparison(folder: Path, results: Results | None = None) -> Path:
    """Write `report.html`, `results.md` and `results.csv` beside `results.json`; return the page.

    results: None: read from results.json. Raises DataError where it is missing or damaged.
    """
    if results is None:
        results = read_results(folder / "results.json")
    values = _values(results)
    write_atomic(folder / "results.md", comparison_markdown(results, values).encode())
    write_atomic(folder / "results.csv", to_csv(runs_table(results)).encode())
    return write_page("comparison.html", folder / "report.html", **values)


def comparison_markdown(results: Results, values: dict[str, Any] | None = None) -> str:
    """A comparison as Markdown: for a page of documentation, a pull request, a notebook."""
    commands = [Markup(one_line(command)) for command in results.commands]  # noqa: S704 - in a code block
    return tidied(fill("comparison.md", commands=commands, **(values or _values(results))))


def _values(results: Results) -> dict[str, Any]:
    """Values of both templates."""
    answer = sentences.answers(results)
    marks = _marks(results)
    own_length = sentences.own_length(results.overrides)
    page = {
        "command": "\n".join(results.commands),
        "versions": results.versions,
        "machine": results.machine,
    }
    return {
        "title": sentences.title(results),
        "subtitle": _subtitle(results),
        "answer": answer,
        "matched": [text for text in (own_length, sentences.matched(results)) if text],
        "sections": _sections(results),
        "warnings": [one for one in results.unmatched if one.kind == "warning"],
        "notes": [one for one in results.unmatched if one.kind == "note"],
        "failures": [asdict(failure) for failure in results.failures],
        "legend": [(marks[row.name], row.name) for row in results.candidates],
        "configurations": [(row.name, row.config) for row in results.candidates],
        "results": page,
        "made": made(results),
        "overrides": " ".join(results.overrides),
    }


def made(results: Results) -> str:
    """When, with what and how long."""
    machine = results.machine
    parts = [f"Run on {results.started[:10]} with torch {results.versions.get('torch', DASH)}"]
    if machine.get("cpu"):
        parts.append(f"on {machine['cpu']}")
    if machine.get("threads"):
        parts.append(f"with {plural(machine['threads'], 'thread')} per run")
    return f"{', '.join(parts)}. The runs took {plural(round(results.run_minutes), 'minute')} in total."


def _subtitle(results: Results) -> str:
    """Version, preset, seeds, data and date in one line."""
    parts = [
        f"seqkit {results.versions.get('seqkit', '')}".strip(),
        plural(len(results.seeds), "seed"),
        plural(results.num_test, "test example"),
        results.started.replace("T", " ")[:16],
    ]
    return " · ".join(filter(None, parts))


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def ranked(results: Results) -> list[Row]:
    """Candidates, the best first; those that break a law, and then failed ones, last."""
    sign = results.metric.sign

    def order(row: Row) -> tuple[bool, bool, float]:
        return row.mean is None, bool(row.broken), -sign * (row.mean or 0.0)

    return sorted(results.candidates, key=order)


def _marks(results: Results) -> dict[str, Mark]:
    """The look of each candidate in figures."""
    return {row.name: Mark.number(i) for i, row in enumerate(results.candidates)}


def ranking(results: Results) -> Table:
    """The ranked candidates. The first one is in bold if it is better than every other."""
    metric = results.metric
    unit = f" ({metric.difference_unit})" if metric.difference_unit else ""
    head = [
        "", "candidate", metric.title, f"difference from {results.reference}{unit}", "tokens/s", "parameters",
        "budget gap", "FLOPs per step", "learning rate",
    ]  # fmt: skip
    rows = [_ranked_row(results, row, rank) for rank, row in enumerate(ranked(results), start=1)]
    return Table(head, rows, name=1)


def _ranked_row(results: Results, row: Row, rank: int) -> list[Cell]:
    metric = results.metric
    reference = results.candidates[0]
    small = f"width {row.width}, depth {row.depth or DASH}" if row.width else ""
    style = "best" if rank == 1 and is_best(results, row) else ""
    place = Cell(DASH if row.broken else str(rank))
    for is_so, word in ((untrained(row, metric), "near chance"), (row.broken, "breaks a law")):
        if is_so:
            small = f"{word}, {small}".removesuffix(", ")
    value = Cell(metric.mean(row.mean, row.std), metric.interval(row.interval))
    if row.mean is None:
        place = Cell(DASH)
        value = Cell("failed", row.error or "", "", "error")
    change = Cell("reference" if row is reference else DASH)
    entry = results.difference(row.name, results.reference)
    if entry is not None and not (row.broken or reference.broken):
        interval = metric.interval(entry.interval, signed=True)
        change = Cell(metric.signed(entry.difference), interval)
    speed = Cell(DASH)
    if row.cost is not None:
        own = row.cost.tokens_per_second
        other = reference.cost.tokens_per_second if reference.cost else 0.0
        ratio = own / other if other else None
        speed = Cell(format_number(own, prefix=True), format_number(ratio, "×", digits=3))
    keys = ("optimizer.type", "optimizer.lr")
    chosen = ", ".join(_setting(value) for key, value in row.chosen.items() if key in keys)
    return [
        place, Cell(row.name, small, _marks(results)[row.name].html, style), value, change, speed,
        Cell(f"{row.parameters:,}"), Cell(_percent(row.budget_gap)),
        Cell(format_number(row.training_flops, prefix=True)), Cell(chosen or DASH),
    ]  # fmt: skip


def is_best(results: Results, row: Row) -> bool:
    others = [
        one.name
        for one in results.candidates
        if one is not row and one.mean is not None and not one.broken
    ]
    found = [results.difference(row.name, other) for other in others]
    return bool(found) and all(entry is not None and entry.better == row.name for entry in found)


def values_are(results: Results) -> str:
    """A sentence on the values of a table: a mean over seeds with its spread, or the value of one seed."""
    seeds = [len(row.sound) for row in results.candidates if row.sound] or [0]
    weights = {run.weights for row in results.candidates for run in row.sound}
    least = f"{min(seeds)} to " if min(seeds) < max(seeds) else ""
    found = f"mean ± standard deviation over {least}{plural(max(seeds), 'seed')}"
    if max(seeds) == 1:
        found = "values of one seed"
    if weights == {"best"}:
        found += ", each run with its best weights on validation data"
    return found


def number_of_runs(plans: Collection[Plan]) -> str:
    """How many runs they are, in words."""
    number = sum(plan.num_cells for plan in plans)
    if any(plan.settings.until_sure is not None for plan in plans):
        return f"up to {number} runs, as seeds end where they decide (tuning may add some)"
    return f"{number} runs or more"


def plan_table(plan: Plan) -> Table:
    """The candidates with their sizes, before anything runs."""
    rows = []
    for one in plan.candidates:
        size = one.size
        rows.append([Cell(text) for text in (
            one.name, f"{size.parameters:,}", _percent(size.budget_gap), format_number(size.flops, prefix=True),
            format_number(size.width), format_number(size.depth), f"{one.num_steps:,}",
        )])  # fmt: skip
    head = ["candidate", "parameters", "budget gap", "FLOPs per step", "width", "depth", "steps"]
    return Table(head, rows)


def pairs_table(results: Results) -> Table:
    """All pairs of candidates."""
    metric = results.metric
    rows = []
    for entry in results.differences:
        pair = " − ".join(sentences.named(results, name) for name in (entry.a, entry.b))
        interval = metric.interval(entry.interval, signed=True)
        p = "" if entry.p_holm is None else f"p {sentences.p_value(entry, '= ')}"
        rows.append([
            Cell(pair), Cell(metric.signed(entry.difference), interval), Cell(_verdict(results, entry), p, "", "words"),
        ])  # fmt: skip
    unit = metric.difference_unit or metric.label
    return Table(["pair", f"difference ({unit})", "better"], rows)


def _verdict(results: Results, entry: Difference) -> str:
    """The better candidate of a pair, or why there is none."""
    rows = [results.by_name[name] for name in (entry.a, entry.b)]
    if any(row.broken for row in rows):
        return "not compared"
    if entry.better:
        return entry.better
    if min(len(row.sound) for row in rows) < 2:
        return "one seed"
    if entry.p_holm is not None and entry.p_holm < 1 - LEVEL:
        return "not settled" if doubts(entry, results) else "too small"
    return "not significant"


def runs_table(results: Results) -> Table:
    """A line for every run, with raw numbers."""
    rows = []
    for row in results.candidates:
        chosen = "; ".join(f"{key}={value}" for key, value in row.chosen.items())
        own = [row.name, row.parameters, row.training_flops, row.width, row.depth, chosen]
        for run in row.runs:
            values = (*own, run.seed, run.value, run.steps, run.seconds, run.error)
            rows.append([Cell("" if value is None else str(value)) for value in values])
    head = ["candidate", "parameters", "training_flops", "width", "depth", "chosen"]
    return Table([*head, "seed", results.metric.name, "steps", "seconds", "error"], rows)


def _setting(value: float | str) -> str:
    """A value that trials chose."""
    if isinstance(value, str):
        return value
    return format_number(value)


def _percent(share: float | None) -> str:
    """A signed share in percent: +0.4 %."""
    if share is None:
        return DASH
    return f"{fixed(100 * share, 1, signed=True)} %"


def trials_table(results: Results) -> Table:
    """Every trial, as the page shows it; those of the chosen setting are in bold."""
    rows = []
    for row in ranked(results):
        for one in row.trials:
            is_chosen = one.values == row.chosen and one.depth in (None, row.depth)
            values = ", ".join(map(_setting, one.values.values()))
            result = "failed" if one.score is None else f"{one.score:.4g}"
            style = "best" if is_chosen else ""
            cells = [row.name, values, format_number(one.depth), str(one.seed), result]
            rows.append([Cell(text, style=style) for text in cells])
    return Table(["candidate", "setting", "other depth", "seed", _tuned_by(results)], rows)


def _tuned_by(results: Results) -> str:
    """The metric on validation data by which trials are ranked."""
    if results.tuning is None:
        return "loss"
    return results.tuning.by


# ── sections ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sections(results: Results) -> list[Chapter]:
    """The sections that have something to show."""
    metric = results.metric
    marks = _marks(results)
    rows = ranked(results)
    rank = (
        "Sorted by mean: of candidates that are not told apart, the order says nothing. "
        f"Values are {values_are(results)}, on {plural(results.num_test, 'test example')}."
    )
    shown = [(row.name, marks[row.name], row) for row in rows]
    means = [f"{row.name} {metric.number(row.mean)}" for row in rows if row.mean is not None]
    dots = "Each small dot is a seed, the large marker their mean, the bar its 95 % confidence interval."
    drawn = "mean and interval"
    if results.until_sure is not None:
        dots = "Each small dot is a seed, the large marker their mean."
        drawn = "mean"
    known = ", ".join(means) or "no values"
    alt = f"{metric.title} of each candidate, seed by seed, with {drawn}: {known}"
    seeds = [Drawing(svg(spreads(shown, metric)), alt)] if shown else []
    found = [
        Chapter("candidates", "Candidates", [rank, sentences.inference(results)], ranking(results)),
        Chapter("values", "Every seed", [dots], figures=seeds, has_legend=False),
    ]
    if results.until_sure is not None:
        found.append(Chapter("differences", "Verdicts", table=sequential.verdicts(results)))
    elif len(results.differences) > 1:
        pairs = (
            "The difference of two candidates with its 95 % interval, and which is better, or why neither is, with the "
            "p-value."
        )
        found.append(Chapter("differences", "All pairs", [pairs], pairs_table(results)))
    curves = "Lines are means over seeds. A band spans from the lowest seed to the highest."
    found.append(Chapter("curves", "Learning curves", [curves], figures=_curves(rows, marks)))
    cost = "Lower is better. Both axes are logarithmic where the values span enough."
    found.append(Chapter("cost", "Cost by length", [cost], figures=_costs(rows, marks)))
    scores = f"validation {_tuned_by(results)}"
    figure = _figure(rate_lines(rows, marks), "learning rate", scores, width=3.7)
    trials = trials_table(results) if any(row.trials for row in rows) else None
    found.append(Chapter("tuning", "Tuning", [sentences.tuning_sentence(results)], trials, figure))
    kept = [
        section for section in found if section.table or section.figures or section.id == "tuning"
    ]
    return [section._replace(text=[text for text in section.text if text]) for section in kept]


def _figure(
    drawn: Sequence[Line | None], xlabel: str, ylabel: str, **options: Any
) -> list[Drawing]:
    """One figure of the lines that there are; none where there are no lines."""
    known = [line for line in drawn if line is not None and line.x]
    if not known:
        return []
    alt = f"{ylabel} against {xlabel}, one line a candidate"
    return [Drawing(svg(lines(known, xlabel=xlabel, ylabel=ylabel, **options)), alt)]


def _curves(rows: Sequence[Row], marks: dict[str, Mark]) -> list[Drawing]:
    """Training and validation loss against steps."""
    found = []
    for key, ylabel in (("train_loss", "training loss"), ("valid_loss", "validation loss")):
        drawn = [mean_line(marks[row.name], row, key) for row in rows]
        if any(line is not None and len(line.x) > 1 for line in drawn):
            found += _figure(drawn, "training steps", ylabel)
    return found


def _costs(rows: Sequence[Row], marks: dict[str, Mark]) -> list[Drawing]:
    """Step time and memory against length, latency against context."""
    found = []
    for key, scale, xlabel, ylabel in (
        ("seconds_by_length", 1e3, "tokens in an example", "training step (ms)"),
        ("latency_by_context", 1e3, "tokens of context", "latency per token (ms)"),
        ("memory_by_length", 1.0, "tokens in an example", "peak memory (bytes)"),
    ):
        drawn = []
        for row in rows:
            pairs = sorted(getattr(row.cost, key, None) or ())
            drawn.append(
                Line(marks[row.name], [x for x, _ in pairs], [y * scale for _, y in pairs])
            )
        found += _figure(drawn, xlabel, ylabel)
    return found
