"""Sentences that answer a comparison: who is better, by how much, how sure that is, and at what cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqkit.comparison.candidates import TOLERANCE
from seqkit.report.numbers import Metric, p_value

Row = Mapping[str, Any]

BUDGETS = {
    "parameters": " at equal parameters",
    "flops": " at equal FLOPs",
    "time": " at equal training time",
    "none": ", budgets not matched",
}


def answers(results: Mapping[str, Any], metric: Metric) -> tuple[str, list[str]]:
    """The sentence that answers the title, and one for each other candidate."""
    rows = {row["name"]: row for row in results["candidates"] if row["mean"] is not None}
    failed = [row["name"] for row in results["candidates"] if row["mean"] is None]
    if not rows:
        return "No candidate has a result; the failures below say why.", []
    order = sorted(rows, key=lambda name: rows[name]["mean"], reverse=metric.higher_is_better)
    best, reference = order[0], results["reference"]
    sentences = []
    if len(order) == 1:
        value = f"{metric.number(rows[best]['mean'])} {metric.unit}".strip()
        first = f"Only {best} has a result: {value}."
    else:
        rival = reference if best != reference and reference in rows else order[1]
        first = _sentence(results, rows, best, rival, metric)
        sentences = [_sentence(results, rows, best, name, metric) for name in order[1:] if name != rival]
    sentences += [f"{name} has no result (see failures)." for name in failed]
    return first, sentences


def _p_value(results: Mapping[str, Any], pair: Mapping[str, Any]) -> str:
    """The p-value as text, also corrected where there are several pairs."""
    number, shown = sum(one["p"] is not None for one in results["differences"]), p_value(pair)
    raw = p_value({"p_holm": pair["p"]})
    text = f"p {raw}" if raw.startswith("<") else f"p = {raw}"
    return f"{text}, {shown} after Holm's correction for {number} pairs" if number > 1 else text


def _remark(rows: Mapping[str, Row], *names: str) -> str:
    """Remark on budgets of these candidates that differ, and on receptive fields that are shorter than examples."""
    gaps = {name: rows[name].get("budget_gap") or 0.0 for name in names}
    off = [
        f"{name} is {abs(gap):.1%} {'above' if gap > 0 else 'below'} the budget"
        for name, gap in gaps.items()
        if abs(gap) > TOLERANCE
    ]
    for name in names:
        if (farthest := rows[name].get("farthest")) is not None:
            off.append(f"{name} sees no farther than {farthest} of {rows[name]['longest']} tokens")
    return f" ({', '.join(off)})" if off else ""


def _sentence(results: Mapping[str, Any], rows: Mapping[str, Row], a: str, b: str, metric: Metric) -> str:
    """Sentence on whether `a` is better than `b`, by how much, and how much faster or slower it trains."""
    pair = next(d for d in results["differences"] if {d["a"], d["b"]} == {a, b})
    unit = metric.difference_unit or metric.label
    if metric.unit == "%":
        unit = "points of accuracy" if metric.name == "accuracy" else "percentage points"
    amount = f"{metric.number(abs(pair['difference']))} {unit}"
    if pair["interval"] is None:
        amount += " (no interval: one seed, and one test example)"
    else:
        in_favour = 1 if (pair["a"] == a) == metric.higher_is_better else -1
        low, high = sorted(x * in_favour for x in pair["interval"])
        amount += f" (95 % interval {metric.number(low)} to {metric.number(high)}, {_p_value(results, pair)})"
    budget = BUDGETS[results["match"]] + _remark(rows, a, b)
    if pair["difference"] == 0:
        text = f"{a} and {b} are equally good{budget}"
    elif pair["better"] is None:
        text = f"{a} and {b} are not told apart{budget}: {a} is ahead by {amount}"
    else:
        loser = b if pair["better"] == a else a
        text = f"{pair['better']} is better than {loser} by {amount}{budget}"
    own, other = ((rows[name].get("cost") or {}).get("tokens_per_second") for name in (a, b))
    if own and other:
        ratio = own / other
        way = f"{'faster' if ratio > 1 else 'slower'} in training by {max(ratio, 1 / ratio):.1f} ×"
        text += f"; {a} is {'as fast in training' if 0.95 < ratio < 1.05 else way}"
    return f"{text}."
