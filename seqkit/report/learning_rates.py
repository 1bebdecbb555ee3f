"""Trials by which settings were chosen, and choices that lie on the edge of what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import mul
from statistics import fmean
from typing import Any, NamedTuple

from seqkit.report.candidate_figures import Line
from seqkit.report.numbers import DASH, count, listed, plain, plural, significant
from seqkit.report.ranking import Row


class Trial(NamedTuple):
    """A cell: the validation loss, or "failed" with its error, or empty where this candidate did not try it.

    shade: 0 for the lowest loss of the table to 1 for the highest, by rank; None: no loss.
    """

    text: str
    error: str | None = None
    is_chosen: bool = False
    shade: float | None = None


class TrialTable(NamedTuple):
    """Candidates and seeds down, tried values across. keys: what was tried. columns: their values, as text."""

    keys: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[tuple[Row, int | None, Sequence[Trial]]]


def trial_table(rows: Sequence[Row]) -> TrialTable | None:
    """Every trial of every candidate by its seed; None where nothing was tried."""
    keys = _keys(rows)
    found: dict[tuple[int, int | None], dict[tuple[Any, ...], Mapping[str, Any]]] = {}
    for i, row in enumerate(rows):
        for trial in row.result.get("trials") or [{"values": {}}]:
            place = tuple(trial["values"].get(key) for key in keys)
            found.setdefault((i, trial.get("seed")), {})[place] = trial
    tried = {place for own in found.values() for place in own if any(value is not None for value in place)}
    columns = sorted(tried, key=lambda values: list(map(_order, values)))
    if not columns:
        return None
    losses = {t["loss"] for own in found.values() for t in own.values() if t.get("loss") is not None}
    shades = {loss: i / max(len(losses) - 1, 1) for i, loss in enumerate(sorted(losses))}
    table = [
        (rows[i], seed, [_trial(rows[i], own.get(place), shades) for place in columns])
        for (i, seed), own in found.items()
    ]
    return TrialTable(keys, [", ".join(map(plain, place)) for place in columns], table)


def tuning_sentence(results: Mapping[str, Any]) -> str:
    """Sentence on how the settings of each candidate were chosen."""
    tuning = results.get("tuning") or {}
    rates, dropouts = tuning.get("lr_trials") or 0, tuning.get("dropout_trials") or 0
    if not rates and not dropouts:
        return "Nothing was tuned. Each candidate has the learning rate of its configuration."
    tried = [plural(n, what) for n, what in ((rates, "learning rate"), (dropouts, "dropout rate")) if n]
    if rates and len(optimizers := tuning.get("optimizers") or []) > 1:
        tried[0] += f" each of {listed(optimizers)}"
    length, split = trial_length(results), tuning.get("split")
    found = [f"Each candidate was tuned with {listed(tried)}"]
    found[0] += f", chosen by the loss on the {split} split." if split else "."
    found += [f"A trial took {length}."] if length else []
    if len(seeds := tuning.get("seeds") or []) > 1:
        found.append(
            "The two best rates ran again with a second seed, and the best mean over both seeds was chosen. No "
            f"reported run has these seeds ({listed(list(map(str, seeds)))}). While the best rate was at an end of "
            "the grid, the grid was extended."
        )
    if tuning.get("depths"):
        found.append(
            "Half and double the depth were tried with both seeds, at the same budget and at the best rate for the "
            "recipe's depth."
        )
    return " ".join(found)


def trial_length(results: Mapping[str, Any]) -> str:
    """Optimizer steps of a trial, their share of a full run, and how many of them are warm-up; empty if not known."""
    tuning = results["tuning"]
    share, warmup = tuning.get("fraction_of_steps"), tuning.get("warmup_steps")
    whole = [run["steps"] for row in results["candidates"] for run in row["runs"] if run.get("steps") is not None]
    if share is None or not whole:
        return ""
    fewest, most = (max(1, round(steps * share)) for steps in (min(whole), max(whole)))
    steps = count(most) if fewest == most else f"{count(fewest)} to {count(most)}"
    warm = "" if warmup is None else f", {count(warmup)} of them warm-up"
    return f"{steps} steps ({100 * share:.0f} % of a full run){warm}"


def edge_remarks(candidate: Mapping[str, Any]) -> list[str]:
    """Sentences on chosen values that are the smallest or largest tried, so that a better one may lie beyond.

    Values whose trial failed count as tried. Zero is no edge, nor is one layer: nothing is below. Values that change
    together, such as the rates of two optimizers, get one sentence.
    """
    remarks, orders = [], set()
    name, chosen = candidate["name"], candidate.get("chosen") or {}
    kind = {key: value for key, value in chosen.items() if not _is_number(value)}
    # rates of another optimizer are on another scale
    trials = [t for t in _trials(candidate) if all(t["values"].get(key) == value for key, value in kind.items())]
    for key, value in chosen.items():
        tried = sorted({t["values"][key] for t in trials if _is_number(t["values"].get(key))})
        order = tuple(tried.index(v) if (v := t["values"].get(key)) in tried else -1 for t in trials)
        if value not in tried or value == 0 or order in orders:
            continue
        orders.add(order)
        if len(tried) == 1:
            remarks.append(f"{name} tried only one value of {key}, {plain(value)}.")
        elif value in (tried[0], tried[-1]):
            side = "smallest" if value == tried[0] else "largest"
            remarks.append(
                f"{name} chose {key} {plain(value)}, the {side} of {len(tried)} values tried ({plain(tried[0])} to "
                f"{plain(tried[-1])}). A better one may lie beyond."
            )
    depths = sorted(trial["depth"] for trial in candidate.get("depth_trials") or [])
    if depths and (depth := candidate["depth"]) in (depths[0], depths[-1]) and depth > 1:
        side = "smallest" if depth == depths[0] else "largest"
        text = f"{name} has {plural(depth, 'layer')}, the {side} number that was tried"
        remarks.append(f"{text}. A better one may lie beyond.")
    return remarks


def depth_lines(rows: Sequence[Row]) -> list[str]:
    """For each candidate, the validation loss at each depth that was tried, with the width of the same budget."""
    found = []
    for row in rows:
        tried = []
        for trial in row.result.get("depth_trials") or []:
            loss = "failed" if trial["loss"] is None else significant(trial["loss"])
            chosen = " (chosen)" if trial["is_chosen"] else ""
            tried.append(f"{loss} with {plural(trial['depth'], 'layer')} of width {trial['width']}{chosen}")
        found += [f"{row.label}: {', '.join(tried)}."] if tried else []
    return found


def rate_lines(rows: Sequence[Row]) -> list[Line]:
    """The lowest loss of each learning rate, a line for each candidate and optimizer, with its chosen rate ringed.

    Lines of the second optimizer are dotted: its rates are on another scale.
    """
    key = next((key for key in _keys(rows) if key.rpartition(".")[2] == "lr"), None)
    found = []
    for row in rows:
        best: dict[str, dict[float, float]] = {}
        for trial in _trials(row.result):
            rate, loss = trial["values"].get(key), trial.get("loss")
            if _is_number(rate) and loss is not None:
                own = best.setdefault(_kind(trial["values"]), {})
                own[rate] = min(loss, own.get(rate, loss))
        chosen = row.result.get("chosen") or {}
        for i, (kind, losses) in enumerate(best.items()):
            ringed = (chosen[key], losses[chosen[key]]) if kind == _kind(chosen) and chosen.get(key) in losses else None
            mark = row.mark if i == 0 else replace(row.mark, line=":")
            found.append(Line(mark, sorted(losses), [losses[rate] for rate in sorted(losses)], ringed=ringed))
    return found


def _kind(values: Mapping[str, Any]) -> str:
    """The values that are no numbers, such as the optimizer's type."""
    return repr(sorted((key, value) for key, value in values.items() if not _is_number(value)))


def expected_lines(rows: Sequence[Row]) -> list[Line]:
    """Expected lowest loss of k trials, drawn with replacement from those that each candidate had (Dodge et al. 2019,
    equation 2), with k on the x axis. A trial that failed counts as the worst that ended."""
    found = []
    for row in rows:
        known = [trial["loss"] for trial in row.result.get("trials") or [] if trial.get("loss") is not None]
        if len(known) < 2:
            continue
        number = len(row.result["trials"])
        losses = sorted(known + [max(known)] * (number - len(known)))
        ks = range(1, number + 1)
        # the i-th lowest is the lowest of k draws if none is lower and not all are higher
        chance = [[((number - i) / number) ** k - ((number - i - 1) / number) ** k for i in range(number)] for k in ks]
        found.append(Line(row.mark, list(ks), [sum(map(mul, own, losses)) for own in chance]))
    return found


def _trials(candidate: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Trials of a candidate; those of the same values with several seeds are one, with their mean loss."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for trial in candidate.get("trials") or []:
        found.setdefault(repr(sorted(trial["values"].items())), []).append(trial)
    merged = []
    for same in found.values():
        losses = [trial.get("loss") for trial in same]
        failed = next((trial for trial in same if trial.get("loss") is None), None)
        merged.append(failed or {**same[0], "loss": fmean(loss for loss in losses if loss is not None)})
    return merged


def _keys(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for trial in _trials(row.result) for key in trial["values"]))


def _trial(row: Row, trial: Mapping[str, Any] | None, shades: Mapping[float, float]) -> Trial:
    if trial is None:
        return Trial("")
    chosen = row.result.get("chosen") or {}
    is_chosen = bool(chosen) and all(trial["values"].get(key) == value for key, value in chosen.items())
    if trial.get("loss") is not None:
        return Trial(significant(trial["loss"]), trial.get("error"), is_chosen, shades[trial["loss"]])
    return Trial("failed" if trial.get("error") else DASH, trial.get("error"), is_chosen)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _order(value: Any) -> tuple[bool, float, str]:
    return (True, 0.0, plain(value)) if not _is_number(value) else (False, value, "")
