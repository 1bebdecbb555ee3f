"""Sentences that answer a comparison: which candidate is better, by how much, how certainly, and at what cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqkit.comparison.statistics import LEVEL
from seqkit.comparison.types import Metric
from seqkit.config.recipe import load_yaml
from seqkit.report.headline import is_trial
from seqkit.report.learning_rates import edge_remarks
from seqkit.report.numbers import count, listed, p_value, plural, times
from seqkit.report.ranking import TOLERANCE, budget_remarks

Row = Mapping[str, Any]

BUDGETS = {
    "parameters": " at an equal number of parameters",
    "flops": " at equal FLOPs per training step",
    "time": " in equal training time",
    "none": " (budgets were not matched)",
}


def answers(results: Mapping[str, Any], metric: Metric) -> tuple[str, list[str], bool]:
    """The answer; sentences on its reliability, the other candidates, and failures; and whether the answer is settled.

    It is if there are no trial runs, and nothing could overturn it (`_doubts`).
    """
    rows = {row["name"]: row for row in results["candidates"] if row["mean"] is not None}
    failed = [row["name"] for row in results["candidates"] if row["mean"] is None]
    if not rows:
        return "No candidate has a result. The failures below say why.", [], True
    order = sorted(rows, key=lambda name: rows[name]["mean"], reverse=metric.higher_is_better)
    best, rival = order[0], _rival(order, results["reference"])
    trial = trial_sentence(results["candidates"])
    sentences, doubts = [] if trial is None else [trial], list[str]()
    if rival is None:
        value = f"{metric.number(rows[best]['mean'])} {metric.unit}".strip()
        first = f"Only {best} has a result: {metric.label} {value}."
    else:
        first = _answer(results, rows, best, rival, metric)
        doubts = _doubts(_pair(results, best, rival), rows)
        sentences += [f"This is not settled: {why}" for why in doubts]
        others = [name for name in order[1:] if name != rival]
        sentences += filter(None, [_others(results, best, rival, others)])
        sentences += [f"{remark}." for remark in budget_remarks([rows[name] for name in others])]
    sentences += no_better_than_constant(rows, metric)
    if failed:
        sentences.append(f"{listed(failed)} {'has' if len(failed) == 1 else 'have'} no result (see the failures).")
    return first, sentences, trial is None and not doubts


def better(entry: Mapping[str, Any], results: Mapping[str, Any], metric: Metric) -> str | None:
    """The better candidate of a pair; None if the two are not told apart, or if something could overturn the verdict.

    A candidate is better if the corrected p-value is below 5 %, both have several seeds (one seed says nothing about
    others), the difference is larger than `--least` (by default, more than one in the last digit that is shown), and
    nothing could overturn the verdict (`_doubts`).
    """
    rows = {row["name"]: row for row in results["candidates"]}
    least = (results.get("settings") or {}).get("least")
    size = round(metric.shown(abs(entry["difference"])), metric.digits)
    is_large = size > 10**-metric.digits if least is None else metric.shown(abs(entry["difference"])) > least
    if entry["p_holm"] is None or entry["p_holm"] >= 1 - LEVEL or not is_large:
        return None
    if min(_num_seeds(rows[entry[side]], entry.get("steps")) for side in "ab") < 2:
        return None
    winner = entry["a"] if (entry["difference"] > 0) == metric.higher_is_better else entry["b"]
    return None if _doubts({**entry, "better": winner}, rows) else winner


def _num_seeds(row: Row, steps: int | None) -> int:
    """Number of seeds that finished. steps: steps of a shorter training; None: the whole training."""
    if steps is not None:
        return next(len(point["values"]) for point in row["by_steps"] if point["steps"] == steps)
    return sum(run["value"] is not None for run in row["runs"])


def _doubts(pair: Mapping[str, Any], rows: Mapping[str, Row]) -> list[str]:
    """Sentences on what could overturn a verdict.

    The worse candidate's best setting may be the last one tried, so that a better one may lie beyond. Seeds of the
    better candidate may have failed, so that its mean leaves out its worst runs. Without a verdict, both apply to both.
    """
    known = [rows[pair[side]] for side in "ab"]
    tuned = [row for row in known if row["name"] != pair.get("better")]
    ran = known if pair.get("better") is None else [rows[pair["better"]]]
    found = [remark for row in tuned for remark in edge_remarks(row)]
    for row in ran:
        failed = sum(run["error"] is not None for run in row["runs"])
        if failed:
            number = plural(len(row["runs"]), "seed")
            found.append(f"{failed} of {number} of {row['name']} failed, so its mean leaves out its worst runs.")
    return found


def _rival(order: Sequence[str], reference: str) -> str | None:
    """The candidate that the best is compared with: the reference, or if that is the best, the second; None: none."""
    if len(order) < 2:
        return None
    return reference if reference in order[1:] else order[1]


def trial_sentence(candidates: Sequence[Row]) -> str | None:
    """A sentence if runs are so short, or on so few examples, that their numbers say nothing; None if they are not.

    candidates: rows of results.json.
    """
    trials = []
    for row in candidates:
        limit = load_yaml(row["config"])["data"].get("limit")
        steps = [run["steps"] for run in row["runs"] if run["value"] is not None]
        trials += [(max(steps), limit)] if steps and is_trial({"steps": max(steps), "limit": limit}) else []
    if not trials:
        return None
    steps, limit = trials[0]
    known = plural(steps, "optimizer step") + (f" and at most {limit:,} examples of each split" if limit else "")
    return f"These are trial runs, with {known}: their figures say nothing about the models."


def no_better_than_constant(rows: Mapping[str, Row], metric: Metric) -> list[str]:
    """A sentence on the candidates that are no better than the best constant prediction, if that is known."""
    found, values = [], set()
    for name, row in rows.items():
        constant, sign = row.get("constant"), 1 if metric.higher_is_better else -1
        if constant is not None and sign * row["mean"] <= sign * constant:
            found.append(name)
            values.add(f"{metric.number(constant)} {metric.unit}".strip())
    if not found:
        return []
    verb = "is" if len(found) == 1 else "are"
    return [f"{listed(found)} {verb} no better than the best constant prediction ({listed(sorted(values))})."]


def _answer(results: Mapping[str, Any], rows: Mapping[str, Row], a: str, b: str, metric: Metric) -> str:
    """Whether `a` is better than `b`, by how much, and how fast it trains; the mean of `a` must not be worse."""
    pair = _pair(results, a, b)
    budget, amount = _budget(results, rows[a], rows[b]), metric.number(abs(pair["difference"]))
    amount += f" {metric.spoken_unit} " if metric.spoken_unit else " "
    amount += "higher" if metric.higher_is_better else "lower"
    seeds = {len([run for run in row["runs"] if run.get("value") is not None]) for row in (rows[a], rows[b])}
    if seeds == {1}:
        budget += ", with one seed each" if not budget.endswith(")") else " with one seed each"
    if pair["difference"] == 0:
        text = f"{a} and {b} have the same mean {metric.label}{budget}"
    elif pair["better"] is None and pair["p_holm"] is not None and pair["p_holm"] < 1 - LEVEL:
        text = f"{a} is not shown to be better than {b}{budget}. The mean {metric.label} of {a} is {amount}"
    elif pair["better"] is None:
        text = f"{a} and {b} do not differ significantly{budget}. The mean {metric.label} of {a} is {amount}"
    else:
        text = f"{a} is better than {b}{budget}. Its mean {metric.label} is {amount}"
    if pair["interval"] is None:
        text += " (one seed and one test example give no confidence interval)"
    else:
        in_favour = 1 if (pair["a"] == a) == metric.higher_is_better else -1
        low, high = sorted(x * in_favour for x in pair["interval"])
        interval = f"95 % confidence interval {metric.number(low)} to {metric.number(high)}"
        text += f" ({interval}{_significance(results, pair)})"
    remarks = [remark for name in (a, b) for remark in _remarks(rows[name])]
    own, other = ((rows[name].get("cost") or {}).get("tokens_per_second") for name in (a, b))
    if own and other:
        remarks.append(f"{a} trains at {times(own / other)} the speed of {b}")
    return ". ".join([text, *remarks]) + "."


def _budget(results: Mapping[str, Any], one: Row, other: Row) -> str:
    """The budget that was matched, or both values if they are not equal."""
    key, what = {
        "parameters": ("parameters", "parameters"), "flops": ("training_flops", "FLOPs per training step"),
    }.get(results["match"], ("", ""))  # fmt: skip
    if key and max(abs(row.get("budget_gap") or 0.0) for row in (one, other)) > TOLERANCE:
        return f", with {count(one[key])} and {count(other[key])} {what}"
    return BUDGETS[results["match"]]


def _significance(results: Mapping[str, Any], pair: Mapping[str, Any]) -> str:
    """The p-value as text, with its correction if there are several pairs."""
    shown, number = p_value(pair), sum(one["p"] is not None for one in results["differences"])
    holm = f", both with Holm's correction for {number} pairs" if number > 1 else ""
    return f"; p {shown if shown.startswith('<') else f'= {shown}'}{holm}"


def _others(results: Mapping[str, Any], best: str, rival: str, names: Sequence[str]) -> str:
    """Which of the other candidates the best one is better than."""
    worse = [name for name in names if _pair(results, best, name)["better"] == best]
    equal = [name for name in names if name not in worse]
    also = " also" if _pair(results, best, rival)["better"] else ""
    found = [f"{best} is{also} better than {listed(worse)}."] if worse else []
    found += [f"{best} is not shown to be better than {listed(equal, 'or')}."] if equal else []
    return " ".join(found)


def _pair(results: Mapping[str, Any], a: str, b: str) -> Mapping[str, Any]:
    return next(pair for pair in results["differences"] if {pair["a"], pair["b"]} == {a, b})


def _remarks(row: Row) -> list[str]:
    """Remarks on a budget unlike the reference's, and on a receptive field that is shorter than the examples."""
    found = budget_remarks([row])
    if (farthest := row.get("farthest")) is not None:
        found.append(
            f"{row['name']} connects tokens at most {farthest} apart, and examples have up to {row['longest']}"
        )
    return found
