"""What was tried to choose a candidate's settings, and whether the best lies on the edge of what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqkit.report.candidate_figures import Line
from seqkit.report.numbers import DASH, plain, significant
from seqkit.report.ranking import Row


@dataclass(frozen=True)
class Trial:
    """A cell: the validation loss, or "failed" with its error, or empty where this candidate did not try it."""

    text: str
    error: str | None = None
    is_chosen: bool = False


@dataclass(frozen=True)
class TrialTable:
    """Candidates down, tried values across. keys: what was tried. columns: their values, as text."""

    keys: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[tuple[Row, Sequence[Trial]]]


def trial_table(rows: Sequence[Row]) -> TrialTable | None:
    """Every trial of every candidate; None where nothing was tried."""
    keys = list(dict.fromkeys(key for row in rows for trial in _trials(row) for key in trial["values"]))
    tried = {_place(trial, keys) for row in rows for trial in _trials(row)}
    if not tried:
        return None
    columns = sorted(tried, key=lambda values: [_order(value) for value in values])
    table = []
    for row in rows:
        by_place = {_place(trial, keys): trial for trial in _trials(row)}
        table.append((row, [_trial(row, by_place.get(place)) for place in columns]))
    return TrialTable(keys, [", ".join(plain(value) for value in place) for place in columns], table)


def edge_remarks(rows: Sequence[Row]) -> list[str]:
    """A sentence for every chosen number that lies on the edge of the tried ones, where a better one may lie beyond.

    Values whose trial failed count as tried. Zero is no edge: no rate is below it. Of numbers that were changed
    together, as the rates of two optimizers are, the first speaks for all.
    """
    remarks = []
    for row in rows:
        orders = set()
        chosen = row.result.get("chosen") or {}
        kind = {key: value for key, value in chosen.items() if not _is_number(value)}
        # rates of another optimizer are on another scale
        trials = [t for t in _trials(row) if all(t["values"].get(key) == value for key, value in kind.items())]
        for key, value in chosen.items():
            tried = sorted({t["values"][key] for t in trials if _is_number(t["values"].get(key))})
            order = tuple(tried.index(v) if (v := t["values"].get(key)) in tried else -1 for t in trials)
            if value not in tried or value == 0 or order in orders:
                continue
            orders.add(order)
            if len(tried) == 1:
                remarks.append(f"{row.label}: {key} {plain(value)} is the only value that was tried.")
            elif value in (tried[0], tried[-1]):
                side = "smallest" if value == tried[0] else "largest"
                remarks.append(
                    f"{row.label}: the chosen {key} {plain(value)} is the {side} of the {len(tried)} that were tried "
                    f"({plain(tried[0])} to {plain(tried[-1])}); a better one may lie beyond."
                )
    return remarks


def rate_lines(rows: Sequence[Row]) -> list[Line]:
    """The lowest loss of each learning rate, a line for each candidate, with its chosen rate ringed."""
    keys = list(dict.fromkeys(key for row in rows for trial in _trials(row) for key in trial["values"]))
    key = next((key for key in keys if key.rpartition(".")[2] == "lr"), None)
    found = []
    for row in rows:
        best: dict[float, float] = {}
        for trial in _trials(row):
            rate, loss = trial["values"].get(key), trial.get("loss")
            if _is_number(rate) and loss is not None:
                best[rate] = min(loss, best.get(rate, loss))
        chosen = (row.result.get("chosen") or {}).get(key)
        ringed = (chosen, best[chosen]) if chosen in best else None
        if best:
            found.append(Line(row.mark, sorted(best), [best[rate] for rate in sorted(best)], ringed=ringed))
    return found


def _trials(row: Row) -> Sequence[Mapping[str, Any]]:
    return row.result.get("trials") or []


def _place(trial: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(trial["values"].get(key) for key in keys)


def _trial(row: Row, trial: Mapping[str, Any] | None) -> Trial:
    if trial is None:
        return Trial("")
    chosen = row.result.get("chosen") or {}
    is_chosen = bool(chosen) and all(trial["values"].get(key) == value for key, value in chosen.items())
    if trial.get("loss") is not None:
        return Trial(significant(trial["loss"]), trial.get("error"), is_chosen)
    return Trial("failed" if trial.get("error") else DASH, trial.get("error"), is_chosen)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _order(value: Any) -> tuple[bool, float, str]:
    return (True, 0.0, plain(value)) if not _is_number(value) else (False, value, "")
