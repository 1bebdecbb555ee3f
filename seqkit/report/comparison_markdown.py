"""A comparison as Markdown: for a page of documentation, a pull request, a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqkit.errors import one_line, printable
from seqkit.report.learning_rates import trial_table, tuning_sentence
from seqkit.report.numbers import DASH, Metric, compact, count, percent, plain, times
from seqkit.report.ranking import Row, difference_lines, ranked, ranking_sentences, value_lines


def comparison_markdown(results: Mapping[str, Any]) -> str:
    """The content of results.json as Markdown: the answer, the table, what was not matched, how to repeat it."""
    metric, groups = Metric.of(results), ranked(results)
    rows = [row for group in groups for row in group.rows]
    machine = results.get("machine") or {}
    parts = [
        f"# {_text(results['title'])}",
        f"**{_text(results['answer'])}**",
        *(_text(sentence) for sentence in results["answers"]),
        f"```console\n$ {one_line(results['command'])}\n```",
        _text(
            f"{results['started'][:10]}, {results['run_minutes']:.0f} minutes of runs on "
            f"{machine.get('cpu', 'an unknown processor')}, {machine.get('threads', DASH)} thread(s) a run; "
            f"torch {results['versions'].get('torch', DASH)}. "
            f"{len(results['seeds'])} seeds, {count(results['num_test'])} test examples."
        ),
        _table(_columns(results, metric), [_cells(row, metric) for row in rows]),
        *map(_text, ranking_sentences(groups)),
        _text(tuning_sentence(results)),
        "Intervals hold 95 % of paired bootstrap resamples of seeds and test examples; tokens/s are of training, "
        "measured side by side in processor time.",
        *_differences(results, metric),
        *_lengths(rows, metric),
        "## What was not matched",
        "\n".join(f"* {_finding(finding)}" for finding in results["unmatched"]),
        *_trials(rows),
        *_failures(results),
    ]
    return printable("\n\n".join(parts)) + "\n"


def _columns(results: Mapping[str, Any], metric: Metric) -> list[str]:
    unit = f" ({metric.difference_unit})" if metric.difference_unit else ""
    compared = [_text(metric.title), f"to {_text(results['reference'])}{unit}"]
    return ["", "candidate", "parameters", "budget", "FLOPs a step", *compared, "learning rate", "tokens/s"]


def _cells(row: Row, metric: Metric) -> list[str]:
    result, chosen, cost = row.result, row.result.get("chosen") or {}, row.result.get("cost")
    rates = [_text(plain(chosen[key])) for key in ("optimizer.type", "optimizer.lr") if key in chosen]
    return [
        str(row.rank or DASH),
        _text(row.label),
        count(result.get("parameters")),
        percent(result.get("budget_gap")),
        compact(result.get("training_flops")),
        f"failed: {_text(row.error)}" if row.error else " ".join(value_lines(row, metric)),
        " ".join(difference_lines(row, metric)) or DASH,
        " ".join(rates) or DASH,
        f"{compact(cost['tokens_per_second'])} ({times(row.speed)})" if cost else DASH,
    ]


def _differences(results: Mapping[str, Any], metric: Metric) -> Iterator[str]:
    lines = []
    for entry in results["differences"]:
        shown = f"{metric.signed(entry['difference'])} {metric.interval(entry['interval'], signed=True)}"
        lines.append([_text(entry["a"]), _text(entry["b"]), shown, _text(entry["better"] or "not told apart")])
    if len(lines) > 1:
        yield "## Every pair"
        yield _table(["a", "b", f"a − b ({_text(metric.difference_unit or metric.label)})", "better"], lines)


def _lengths(rows: Sequence[Row], metric: Metric) -> Iterator[str]:
    known = [row for row in rows if row.result.get("by_length")]
    if not known:
        return
    yield "## By number of tokens"
    lengths = [point["tokens"] for point in known[0].result["by_length"]]
    table = [[_text(row.label), *(metric.number(point["value"]) for point in row.result["by_length"])] for row in known]
    yield _table([f"{_text(metric.title)} at", *map(count, lengths)], table)


def _trials(rows: Sequence[Row]) -> Iterator[str]:
    table = trial_table(rows)
    if table is None:
        return
    yield "## What was tried"
    yield f"Validation loss by {_text(', '.join(table.keys))}; the chosen one is bold."
    yield _table(
        ["", *map(_text, table.columns)],
        [
            [_text(row.label), *(f"**{trial.text}**" if trial.is_chosen else trial.text for trial in trials)]
            for row, trials in table.rows
        ],
    )


def _failures(results: Mapping[str, Any]) -> Iterator[str]:
    if results["failures"]:
        yield "## Failures"
        yield "\n".join(f"* {_text(failure['what'])}: {_text(failure['error'])}" for failure in results["failures"])


def _finding(finding: Mapping[str, str]) -> str:
    what = f"**{_text(finding['what'])}**" if finding["kind"] == "warning" else _text(finding["what"])
    return f"{what}: {_text(finding['text'])}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _text(words: str) -> str:
    """Words with all marks of Markdown escaped."""
    for mark in "\\`*_[]<>|#":
        words = words.replace(mark, f"\\{mark}")
    return " ".join(words.split())
