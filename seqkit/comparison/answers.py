"""Sentences that answer a comparison: which candidate is better, by how much, how sure that is, and at what cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqkit.config.recipe import load_yaml
from seqkit.report.headline import is_trial
from seqkit.report.learning_rates import edge_remarks
from seqkit.report.numbers import Metric, count, listed, p_value, plural, times
from seqkit.report.ranking import TOLERANCE, budget_remarks

Row = Mapping[str, Any]

BUDGETS = {
    "parameters": " at an equal number of parameters",
    "flops": " at equal FLOPs per training step",
    "time": " in equal training time",
    "none": " (budgets were not matched)",
}


def answers(results: Mapping[str, Any], metric: Metric) -> tuple[str, list[str]]:
    """The text that answers the title, and further sentences: how far to trust it, the other candidates, failures."""
    rows = {row["name"]: row for row in results["candidates"] if row["mean"] is not None}
    failed = [row["name"] for row in results["candidates"] if row["mean"] is None]
    if not rows:
        return "No candidate has a result. The failures below say why.", []
    order = sorted(rows, key=lambda name: rows[name]["mean"], reverse=metric.higher_is_better)
    best, reference = order[0], results["reference"]
    trial = trial_sentence(results["candidates"])
    sentences = [] if trial is None else [trial]
    if at_edge := [row["name"] for row in results["candidates"] if edge_remarks(row)]:
        sentences.append(
            f"This is not settled: the best setting of {listed(at_edge)} is the smallest, the largest or the only one "
            "that was tried, so a better one may lie beyond."
        )
    if len(order) == 1:
        value = f"{metric.number(rows[best]['mean'])} {metric.unit}".strip()
        first = f"Only {best} has a result: {metric.label} {value}."
    else:
        rival = reference if best != reference and reference in rows else order[1]
        first = _answer(results, rows, best, rival, metric)
        others = [name for name in order[1:] if name != rival]
        sentences += filter(None, [_others(results, best, rival, others)])
        sentences += [f"{remark}." for remark in budget_remarks([rows[name] for name in others])]
    sentences += no_better_than_constant(rows, metric)
    if failed:
        sentences.append(f"{listed(failed)} {'has' if len(failed) == 1 else 'have'} no result (see the failures).")
    return first, sentences


def trial_sentence(candidates: Sequence[Row]) -> str | None:
    """A sentence on runs that are so short, or on so few examples, that their figures say nothing; None: they are not.

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
    return f"These are trial runs, with {known}: their figures say nothing of the models."


def no_better_than_constant(rows: Mapping[str, Row], metric: Metric) -> list[str]:
    """A sentence on the candidates that are no better than the best constant prediction, where it is known."""
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
    """Whether `a`, whose mean is better, is better than `b`, by how much, and how fast it trains."""
    pair = _pair(results, a, b)
    budget, amount = _budget(results, rows[a], rows[b]), metric.number(abs(pair["difference"]))
    amount += f" {metric.spoken_unit} " if metric.spoken_unit else " "
    amount += "higher" if metric.higher_is_better else "lower"
    seeds = {len([run for run in row["runs"] if run.get("value") is not None]) for row in (rows[a], rows[b])}
    if seeds == {1}:
        budget += ", with one seed each" if not budget.endswith(")") else " with one seed each"
    if pair["difference"] == 0:
        text = f"{a} and {b} have the same mean {metric.label}{budget}"
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
    """The budget that was matched; both values where they are not equal."""
    key, what = {
        "parameters": ("parameters", "parameters"), "flops": ("training_flops", "FLOPs per training step"),
    }.get(results["match"], ("", ""))  # fmt: skip
    if key and max(abs(row.get("budget_gap") or 0.0) for row in (one, other)) > TOLERANCE:
        return f", with {count(one[key])} and {count(other[key])} {what}"
    return BUDGETS[results["match"]]


def _significance(results: Mapping[str, Any], pair: Mapping[str, Any]) -> str:
    """The p-value as text, corrected where there are several pairs."""
    shown, number = p_value(pair), sum(one["p"] is not None for one in results["differences"])
    holm = f" after Holm's correction for {number} pairs" if number > 1 else ""
    return f"; p {shown if shown.startswith('<') else f'= {shown}'}{holm}"


def _others(results: Mapping[str, Any], best: str, rival: str, names: Sequence[str]) -> str:
    """Which of the further candidates the best one is better than."""
    worse = [name for name in names if _pair(results, best, name)["better"] == best]
    equal = [name for name in names if name not in worse]
    also = " also" if _pair(results, best, rival)["better"] else ""
    found = [f"{best} is{also} better than {listed(worse)}."] if worse else []
    found += [f"{best} does not differ significantly from {listed(equal, 'or')}."] if equal else []
    return " ".join(found)


def _pair(results: Mapping[str, Any], a: str, b: str) -> Mapping[str, Any]:
    return next(pair for pair in results["differences"] if {pair["a"], pair["b"]} == {a, b})


def _remarks(row: Row) -> list[str]:
    """A budget that differs from the reference's, and a receptive field that is shorter than the examples."""
    found = budget_remarks([row])
    if (farthest := row.get("farthest")) is not None:
        found.append(
            f"{row['name']} connects tokens at most {farthest} apart, and examples have up to {row['longest']}"
        )
    return found
