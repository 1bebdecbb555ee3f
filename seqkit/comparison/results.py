"""results.json, results.csv and results.md of a comparison, from the results of its cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from seqkit.comparison.candidates import Candidate, backbone_of
from seqkit.comparison.plan import Plan, slug_of
from seqkit.comparison.scores import METRICS, Metric
from seqkit.comparison.statistics import Scores, difference, spread
from seqkit.comparison.unmatched import unmatched
from seqkit.config import complete, to_yaml
from seqkit.files import write_atomic, write_json
from seqkit.report.comparison_markdown import comparison_markdown
from seqkit.report.numbers import MINUS

MAX_LENGTHS = 20
"""More distinct lengths of test examples make no curve."""

Row = dict[str, Any]


def gather(plan: Plan, results: Mapping[str, Any], *, started: str) -> dict[str, Any]:
    """The content of results.json of a plan whose cells have all ended."""
    settings, metric = plan.settings, METRICS[plan.metric]
    rows, scores = [], {}
    for candidate in plan.candidates.values():
        row, own = _row(plan, candidate, results, metric)
        rows.append(row)
        if own is not None:
            scores[candidate.name] = own
    ended: dict[str, Any] = {
        "kind": "comparison",
        "title": f"{settings.recipe}: {', '.join(plan.candidates)}",
        "recipe": settings.recipe,
        "preset": settings.preset,
        "overrides": settings.overrides,
        "command": settings.command(),
        "match": settings.match,
        "recipe_backbone": backbone_of(complete(settings.recipe, settings.preset, settings.overrides)),
        "varied": ["model.backbone"] * bool(settings.backbones) + list(settings.vary),
        "tuning": {
            "lr_trials": settings.lr_trials,
            "optimizers": [optimizer["type"] for optimizer in next(iter(plan.candidates.values())).optimizers],
            "dropout_trials": settings.dropout_trials,
            "fraction_of_steps": settings.trial_share,
            "split": "validation",
        },
        "seeds": list(range(1, settings.seeds + 1)),
        "failures": _failures(plan, results),
        "started": started,
        "run_minutes": round(sum(cell.get("seconds", 0.0) for cell in results.values()) / 60, 1),
    }
    return complete_results(ended, rows, scores, metric, next(iter(plan.candidates)))


def complete_results(
    results: dict[str, Any], rows: list[Row], scores: Mapping[str, Scores], metric: Metric, reference: str
) -> dict[str, Any]:
    """Add what follows from rows and scores: differences, answers, what was not matched, versions and machine."""
    runs = [run for row in rows for run in row["runs"] if run["value"] is not None]
    results |= {
        "reference": reference,
        "metric": metric.as_dict(),
        "num_test": max((s.numerator.shape[1] for s in scores.values()), default=0),
        "candidates": rows,
        "differences": _differences(scores, metric),
        "versions": runs[0].get("versions", {}) if runs else {},
        "machine": runs[0].get("machine", {}) if runs else {},
    }
    results["answer"], results["answers"] = _answers(results, metric)
    results["unmatched"] = unmatched(results)
    return results


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """results.json; results.csv with a line for every run; results.md, the table and what was not matched."""
    write_json(folder / "results.json", dict(results))
    names = ("candidate", "group", "parameters", "training_flops", "width", "depth", "seed", "value", "steps", "tokens")
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow([*names, "seconds", "metric", "chosen", "error"])
    for row in results["candidates"]:
        shared = [row["name"], row["group"], *(row[key] for key in ("parameters", "training_flops", "width", "depth"))]
        chosen = "; ".join(f"{key}={value}" for key, value in row["chosen"].items())
        for run in row["runs"]:
            own = [run[key] for key in ("seed", "value", "steps", "tokens", "seconds")]
            table.writerow([*shared, *own, results["metric"]["name"], chosen, run["error"]])
    write_atomic(folder / "results.csv", text.getvalue().encode())
    write_atomic(folder / "results.md", comparison_markdown(results).encode())


def _row(plan: Plan, candidate: Candidate, results: Mapping[str, Any], metric: Metric) -> tuple[Row, Scores | None]:
    slug, runs, kept, flow = slug_of(candidate.name), [], [], None
    config: Mapping[str, Any] = candidate.config
    for step in plan.steps.values():
        if step.kind != "seed" or step.candidate != candidate.name:
            continue
        cell, result = plan.cell(step, results), results[step.id]
        config = cell.config
        runs.append(run_row(step.number, f"runs/{slug}/{step.id.rpartition('/')[2]}", result, candidate.flops))
        if "error" not in result:
            kept.append((step.number, result["scores"]["numerator"], result["scores"]["denominator"]))
            flow = result.get("gradient_flow") or flow
    trials, chosen = [], {}
    for step in plan.steps.values():
        if step.candidate != candidate.name:
            continue
        if step.kind == "trial":
            result = results[step.id]
            loss = result["metrics"]["loss"] if "error" not in result else None
            trials.append({"values": plan.values(step, results), "loss": loss, "error": result.get("error")})
        elif step.kind == "seed":
            chosen = plan.values(step, results)
    first = next((r for s, r in _seed_results(plan, candidate, results) if "error" not in r), None)
    measured = results.get("measure", {}).get("costs", {}) if "error" not in results.get("measure", {}) else {}
    row = {
        "name": candidate.name,
        "group": candidate.group,
        "parameters": candidate.parameters,
        "training_flops": candidate.flops,
        "width": candidate.width,
        "depth": candidate.depth,
        "budget_gap": candidate.budget_gap,
        "chosen": chosen,
        "trials": trials,
        "cost": measured.get(candidate.of or candidate.name),
        "gradient_flow": flow,
        "config": to_yaml(dict(config)),
        "notes": candidate.notes,
        "by_length": [] if first is None else by_length(kept, first["scores"]["tokens"], metric),
    }
    return add_statistics(row, runs, kept, metric)


def _seed_results(plan: Plan, candidate: Candidate, results: Mapping[str, Any]) -> list[tuple[int, Any]]:
    return [
        (step.number, results[step.id])
        for step in plan.steps.values()
        if step.kind == "seed" and step.candidate == candidate.name
    ]


def add_statistics(row: Row, runs: list[Row], kept: Sequence[Any], metric: Metric) -> tuple[Row, Scores | None]:
    """The row with its runs, mean, standard deviation and interval; and the scores of the runs that ended well."""
    scores = Scores.of(kept) if kept else None
    mean = std = interval = None
    if scores is not None:
        mean, std, interval = spread(scores, metric)
        values = dict(zip(scores.seeds, scores.values(metric).tolist()))
        for run in runs:
            run["value"] = values.get(run["seed"])
    errors = [run["error"] for run in runs if run["error"]]
    error = f"no seed finished: {errors[0]}" if scores is None and errors else None
    return {**row, "runs": runs, "mean": mean, "std": std, "interval": interval, "error": error}, scores


def run_row(seed: int, folder: str, result: Mapping[str, Any], flops: int | None) -> Row:
    """One run of the table. flops: of one training step."""
    if "error" in result:
        nothing = dict.fromkeys(("value", "steps", "tokens", "seconds", "flops"))
        return {"seed": seed, "folder": folder, **nothing, "metrics": {}, "curve": [], "error": result["error"]}
    summary = result["summary"]
    return {
        "seed": seed,
        "folder": folder,
        "value": None,
        "metrics": summary["metrics"],
        "steps": summary["steps"],
        "tokens": summary["tokens_seen"],
        "train_tokens": summary.get("train_tokens"),
        "seconds": summary["wall_seconds"],
        "flops": flops * summary["steps"] if flops else None,
        "curve": [{**point, "flops": flops * point["step"] if flops else None} for point in result["curve"]],
        "data_sha256": summary.get("data_sha256", {}),
        "versions": result.get("versions") or summary.get("versions", {}),
        "machine": result.get("machine", {}),
        "error": None,
    }


def by_length(kept: Sequence[Any], tokens: Sequence[int], metric: Metric) -> list[dict[str, Any]]:
    """The metric by number of tokens of the test examples, where there are few distinct numbers."""
    lengths = sorted(set(tokens))
    if not 1 < len(lengths) <= MAX_LENGTHS:
        return []
    found = []
    for length in lengths:
        chosen = [i for i, n in enumerate(tokens) if n == length]
        own = Scores.of([(s, [num[i] for i in chosen], [den[i] for i in chosen]) for s, num, den in kept])
        mean, _, interval = spread(own, metric)
        found.append({"tokens": length, "value": mean, "interval": interval})
    return found


def _differences(scores: Mapping[str, Scores], metric: Metric) -> list[dict[str, Any]]:
    found = []
    for a, b in combinations(scores, 2):
        measured = difference(scores[a], scores[b], metric)
        low, high = measured.interval or (0.0, 0.0)
        above = a if metric.higher_is_better else b
        below = b if metric.higher_is_better else a
        better = above if low > 0 else below if high < 0 else None
        found.append(
            {
                "a": a,
                "b": b,
                "difference": measured.difference,
                "interval": measured.interval,
                "better": better,
                "pairs": measured.pairs,
            }
        )
    return found


def _failures(plan: Plan, results: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "candidate": step.candidate,
            "stage": step.kind,
            "what": step.id,
            "error": results[step.id]["error"],
        }
        for step in plan.steps.values()
        if "error" in results[step.id]
    ]


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

BUDGETS = {
    "parameters": " at equal parameters",
    "flops": " at equal FLOPs",
    "time": " at equal training time",
    "none": ", budgets not matched",
}


def _answers(results: Mapping[str, Any], metric: Metric) -> tuple[str, list[str]]:
    """The sentence that answers the title, and one for each other candidate."""
    rows = {row["name"]: row for row in results["candidates"] if row["mean"] is not None}
    failed = [row["name"] for row in results["candidates"] if row["mean"] is None]
    if not rows:
        return "No candidate has a result; the failures below say why.", []
    order = sorted(rows, key=lambda name: rows[name]["mean"], reverse=metric.higher_is_better)
    best, reference = order[0], results["reference"]
    sentences = []
    if len(order) == 1:
        first = f"Only {best} has a result: {_shown(rows[best]['mean'], metric)}."
    else:
        rival = reference if best != reference and reference in rows else order[1]
        first = _sentence(results, rows, best, rival, metric)
        sentences = [_sentence(results, rows, best, name, metric) for name in order[1:] if name != rival]
    sentences += [f"{name} has no result (see failures)." for name in failed]
    return first, sentences


def _sentence(results: Mapping[str, Any], rows: Mapping[str, Row], a: str, b: str, metric: Metric) -> str:
    """Whether `a` is better than `b`, by how much, and how much faster or slower it trains."""
    pair = next(d for d in results["differences"] if {d["a"], d["b"]} == {a, b})
    amount = f"{abs(pair['difference']) * metric.scale:.{metric.digits}f}{_unit(metric)}"
    if pair["interval"] is None:
        amount += " (no interval: one seed, and one test example)"
    else:
        low, high = sorted(abs(x) if pair["better"] else x * _sign(pair, a, metric) for x in pair["interval"])
        ends = (f"{end * metric.scale:.{metric.digits}f}".replace("-", MINUS) for end in (low, high))
        amount += f" (95 % interval {' to '.join(ends)})"
    budget = BUDGETS[results["match"]]
    if pair["difference"] == 0:
        text = f"{a} and {b} are equally good{budget}"
    elif pair["better"] is None:
        text = f"{a} and {b} are not told apart{budget}: {a} is ahead by {amount}"
    else:
        loser = b if pair["better"] == a else a
        text = f"{pair['better']} is better than {loser} by {amount}{budget}"
    speeds = [(rows[name].get("cost") or {}).get("tokens_per_second") for name in (a, b)]
    if speeds[0] and speeds[1]:
        ratio = speeds[0] / speeds[1]
        way = "as fast in training" if 0.95 < ratio < 1.05 else "faster" if ratio > 1 else "slower"
        times = max(ratio, 1 / ratio)
        speed = way if way.startswith("as") else f"{way} in training by {times:.1f} ×"
        text += f"; {a} is {speed}"
    return f"{text}."


def _sign(pair: Mapping[str, Any], a: str, metric: Metric) -> int:
    """1 where a positive difference of the pair is in favour of `a`, else -1."""
    return 1 if (pair["a"] == a) == metric.higher_is_better else -1


def _unit(metric: Metric) -> str:
    """The unit of a difference, with a space before it."""
    if metric.unit == "%":
        return " points of accuracy" if metric.name == "accuracy" else " percentage points"
    return f" {metric.unit or metric.label}"


def _shown(value: float, metric: Metric) -> str:
    return f"{value * metric.scale:.{metric.digits}f} {metric.unit}".strip()
