"""results.json, results.csv and scores.npz of a comparison, from the results of its cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from seqkit.comparison.answers import answers, better
from seqkit.comparison.candidates import Candidate, backbone_of
from seqkit.comparison.curves import (
    Curve,
    Point,
    crossover_sentence,
    crossovers,
    exchange_rate,
    exchange_sentence,
)
from seqkit.comparison.plan import TUNING_SEED, Plan
from seqkit.comparison.scores import METRICS
from seqkit.comparison.statistics import Scores, differences, holm, spread
from seqkit.comparison.types import Metric
from seqkit.comparison.unmatched import unmatched
from seqkit.config import complete, to_yaml
from seqkit.files import write_atomic, write_json

MAX_LENGTHS = 20
"""More distinct lengths of test examples make no curve."""

FEWEST_EXAMPLES = 20
"""Lengths of fewer test examples share a point with the next ones."""

Row = dict[str, Any]


def gather(plan: Plan, results: Mapping[str, Any], *, started: str) -> dict[str, Any]:
    """The content of results.json of a plan whose cells have all ended."""
    settings, metric = plan.settings, METRICS[plan.metric]
    reference = next(iter(plan.candidates.values()))
    ended: dict[str, Any] = {
        "kind": "comparison",
        "title": f"{settings.recipe}: {', '.join(plan.candidates)}",
        "recipe": settings.recipe,
        "preset": settings.preset,
        "overrides": settings.overrides,
        "command": settings.command(),
        "settings": asdict(settings),
        "match": settings.match,
        "budget": {"parameters": reference.parameters, "flops": reference.flops}.get(settings.match),
        "weights": _weights(plan, results),
        "recipe_backbone": backbone_of(complete(settings.recipe, settings.preset, settings.overrides)),
        "varied": ["model.backbone"] * bool(settings.backbones) + list(settings.vary),
        "tuning": {
            "lr_trials": settings.lr_trials,
            "optimizers": [optimizer["type"] for optimizer in reference.optimizers],
            "dropout_trials": settings.dropout_trials,
            "depths": settings.tries_depths,
            "seeds": [TUNING_SEED, TUNING_SEED + 1] if settings.lr_trials > 1 else [TUNING_SEED],
            "fraction_of_steps": settings.trial_share,
            "warmup_steps": (reference.config["schedule"] or {}).get("warmup_steps"),
            "split": "validation",
        },
        "seeds": list(range(1, settings.seeds + 1)),
        "failures": [
            {"candidate": step.candidate, "stage": step.kind, "what": step.id, "error": results[step.id]["error"]}
            for step in plan.steps(results).values()
            if "error" in results[step.id]
        ],
        "started": started,
        "run_minutes": round(sum(cell.get("seconds", 0.0) for cell in results.values()) / 60, 1),
    }
    scored = [_row(plan, candidate, results, metric) for candidate in plan.candidates.values()]
    found = complete_results(ended, scored, metric)
    if settings.run_shares:
        _add_curves(found, plan, results, metric)
    return found


def _weights(plan: Plan, results: Mapping[str, Any]) -> str | None:
    """Which weights all reported runs have: `best` on validation data, or `last`; None: some these and some those."""
    ended = [results[step.id] for step in plan.steps(results).values() if step.kind == "seed"]
    kinds = {one["summary"].get("weights", "last").partition(",")[0] for one in ended if "error" not in one}
    return kinds.pop() if len(kinds) == 1 else None


def write_sentences(results: dict[str, Any]) -> None:
    """Write anew, from the numbers, verdicts and sentences of a comparison's results, and what was not matched."""
    metric = METRICS[results["metric"]["name"]]
    results["metric"] = metric.to_json()
    for entry in [*results["differences"], *(results.get("differences_by_steps") or [])]:
        entry["better"] = better(entry, results, metric)
    results["answer"], results["answers"], results["is_settled"] = answers(results, metric)
    results["unmatched"] = unmatched(results)
    for rate in results.get("exchange_rates") or []:
        rate["text"] = exchange_sentence(rate, metric)
    points = {row["name"]: [point["steps"] for point in row.get("by_steps") or []] for row in results["candidates"]}
    for crossing in results.get("crossovers") or []:
        steps = points[crossing["first"]]
        crossing["text"] = crossover_sentence(crossing, steps[0], steps[-1])


def _add_curves(found: dict[str, Any], plan: Plan, results: Mapping[str, Any], metric: Metric) -> None:
    """Add the points of each candidate by steps, its exchange rate with the reference, crossovers, and the scores."""
    curves: dict[str, Curve] = {}
    whole = dict(found["scores"])
    for row in found["candidates"]:
        if row["name"] not in whole:  # nothing that a shorter run could be set beside
            row["by_steps"] = []
            continue
        points, steps_of = [], [s for s in plan.steps(results).values() if s.candidate == row["name"]]
        cost = row["cost"] or {}
        for share in sorted(plan.settings.run_shares):
            runs = {s.number: results[s.id] for s in steps_of if s.kind == "part" and s.share == share}
            sound = {seed: run for seed, run in runs.items() if "error" not in run}
            if sound:
                scores = _scores_of({seed: run["scores"] for seed, run in sound.items()})
                points.append(Point(next(iter(sound.values()))["summary"]["steps"], scores))
        steps = next(run["steps"] for run in row["runs"] if run["value"] is not None)
        points.append(Point(steps, whole[row["name"]]))
        row["by_steps"] = [_point(point, row, cost, metric) for point in points]
        for point in points[:-1]:
            found["scores"][f"{row['name']} after {point.steps} steps"] = point.scores
        if len(points) == len(plan.settings.run_shares) + 1:
            costs = {"FLOPs": row["training_flops"], "time": cost.get("step_seconds")}
            curve = Curve(row["name"], points, metric, {unit: value for unit, value in costs.items() if value})
            curves.update({row["name"]: curve} if curve.seeds else {})
    names, scores = [row["name"] for row in found["candidates"]], found["scores"]
    lengths = sorted({point["steps"] for row in found["candidates"] for point in row["by_steps"][:-1]})
    shorter = {n: {name: own for name in names if (own := scores.get(f"{name} after {n} steps"))} for n in lengths}
    found["differences_by_steps"] = differences_by_steps(shorter, metric)
    for entry in found["differences_by_steps"]:
        entry["better"] = better(entry, found, metric)
    reference = curves.get(found["reference"])
    others = [curve for curve in curves.values() if reference is not None and curve is not reference]
    rates = [exchange_rate(reference, curve, metric) for curve in others if reference is not None]
    found["exchange_rates"] = [rate for rate in rates if rate is not None]
    found["crossovers"] = crossovers(list(curves.values()), metric)


def differences_by_steps(scores: Mapping[int, Mapping[str, Scores]], metric: Metric) -> list[dict[str, Any]]:
    """Every pair after each of the shorter trainings, p corrected for all pairs of all these lengths together.

    scores: by steps, by name of the candidate.
    """
    pairs: dict[tuple[str, ...], dict[str, Any]] = {}
    for steps, own in scores.items():
        for entry in differences_of(own, metric):
            pairs[str(steps), entry["a"], entry["b"]] = {"steps": steps, **entry}
    corrected = holm({key: entry["p"] for key, entry in pairs.items() if entry["p"] is not None})
    return [{**entry, "p_holm": corrected.get(key)} for key, entry in pairs.items()]


def _point(point: Point, row: Row, cost: Mapping[str, Any], metric: Metric) -> dict[str, Any]:
    mean, std, interval = spread(point.scores, metric)
    flops, seconds = row["training_flops"], cost.get("step_seconds")
    return {
        "steps": point.steps,
        "flops": flops * point.steps if flops else None,
        "seconds": seconds * point.steps if seconds else None,
        "seeds": list(point.scores.seeds),
        "values": point.scores.values(metric).tolist(),
        "mean": mean,
        "std": std,
        "interval": interval,
    }


def _scores_of(scores: Mapping[int, Mapping[str, Any]]) -> Scores:
    """Scores of all seeds: numerator, denominator and groups of each test example, by seed."""
    groups = next(iter(scores.values())).get("groups")
    return Scores.of([(seed, one["numerator"], one["denominator"]) for seed, one in scores.items()], groups)


def complete_results(
    results: dict[str, Any], scored: Sequence[tuple[Row, Scores | None]], metric: Metric
) -> dict[str, Any]:
    """Add candidates, differences, answers, what was not matched, versions and machine, and the scores.

    scored: row and scores of each candidate, the reference first.
    """
    rows = [row for row, _ in scored]
    scores = {row["name"]: own for row, own in scored if own is not None}
    runs = [run for row in rows for run in row["runs"] if run["value"] is not None]
    results |= {
        "train_tokens": runs[0].get("train_tokens") if runs else None,
        "reference": rows[0]["name"],
        "metric": metric.to_json(),
        "num_test": max((s.numerator.shape[1] for s in scores.values()), default=0),
        "candidates": rows,
        "differences": differences_of(scores, metric),
        "scores": scores,
        "versions": runs[0].get("versions", {}) if runs else {},
        "machine": runs[0].get("machine", {}) if runs else {},
    }
    write_sentences(results)
    return results


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """results.json, results.csv with a line for every run, and scores.npz, from which each interval can be had again.

    Arrays of scores.npz, each by CANDIDATE/NAME: seeds [s]; numerator and denominator [s e] of every test example, of
    which the metric is the ratio of sums, or its root; groups [e], where examples belong together. A candidate after a
    part of its steps is CANDIDATE after N steps.
    """
    write_json(folder / "results.json", {key: value for key, value in results.items() if key != "scores"})
    arrays = {f"{name}/{key}": value for name, own in results["scores"].items() for key, value in own.arrays().items()}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_atomic(folder / "scores.npz", content.getvalue())
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
        for point in (row.get("by_steps") or [])[:-1]:
            for seed, value in zip(point["seeds"], point["values"]):
                table.writerow([*shared, seed, value, point["steps"], "", "", results["metric"]["name"], chosen, ""])
    write_atomic(folder / "results.csv", text.getvalue().encode())


def _row(plan: Plan, candidate: Candidate, results: Mapping[str, Any], metric: Metric) -> tuple[Row, Scores | None]:
    steps = [step for step in plan.steps(results).values() if step.candidate == candidate.name]
    seeds = [step for step in steps if step.kind == "seed"]
    sound = [results[step.id] for step in seeds if "error" not in results[step.id]]
    chosen = plan.values(seeds[-1], results)
    size = next((one for one in candidate.depths if one.values.items() <= chosen.items()), candidate)
    of_size = {key for one in candidate.depths for key in one.values}
    trials, depth_losses = [], dict[int, list[float | None]]()
    for step in steps:
        if step.kind == "trial":
            result, values = results[step.id], plan.values(step, results)
            tried = {key: value for key, value in values.items() if key not in of_size}
            loss = result["metrics"]["loss"] if "error" not in result else None
            if step.what == "depth":
                depth_losses.setdefault(step.number % len(candidate.depths), []).append(loss)
            else:
                trials.append(
                    {"values": tried, "seed": plan.tuning_seed(step), "loss": loss, "error": result.get("error")}
                )
    depths: list[Row] = []
    if depth_losses:
        rate = plan.best(candidate, results, ())
        own = [trial["loss"] for trial in trials if trial["values"] == rate]
        sizes = [(other, depth_losses[i]) for i, other in enumerate(candidate.depths)] + [(candidate, own)]
        for one, losses in sizes:
            known = [loss for loss in losses if loss is not None]
            mean = fmean(known) if known and len(known) == len(losses) else None
            depths.append({"width": one.width, "depth": one.depth, "is_chosen": one is size, "loss": mean})
        depths.sort(key=lambda tried: tried["depth"])
    row = {
        "name": candidate.name,
        "group": candidate.group,
        "parameters": size.parameters,
        "training_flops": size.flops,
        "width": size.width,
        "depth": size.depth,
        "budget_gap": size.budget_gap,
        "farthest": size.farthest,
        "state": size.state,
        "causal": candidate.causal,
        "untuned": to_yaml(candidate.config),
        "chosen": {key: value for key, value in chosen.items() if key not in of_size},
        "trials": trials,
        "depth_trials": depths,
        "cost": results.get("measure", {}).get("costs", {}).get(candidate.of or candidate.name),
        "gradient_flow": next((found for result in sound if (found := result.get("gradient_flow"))), None),
        "config": to_yaml(plan.cell(seeds[-1], results).config),
        "notes": candidate.notes,
    }
    seconds = (row["cost"] or {}).get("step_seconds")
    runs = [run_row(step.number, f"runs/{step.id}", results[step.id], size.flops, seconds) for step in seeds]
    kept = {step.number: results[step.id]["scores"] for step in seeds if "error" not in results[step.id]}
    return with_statistics(row, runs, kept, metric)


def with_statistics(
    row: Row, runs: list[Row], scores: Mapping[int, Mapping[str, Any]], metric: Metric
) -> tuple[Row, Scores | None]:
    """The row with its runs, mean, standard deviation and interval; and the scores of all seeds that ended well.

    Its `constant` is the metric of the constant prediction that is best in training. scores: numerator, denominator
    and tokens of each test example, by seed.
    """
    errors = [run["error"] for run in runs if run["error"]]
    if not scores:
        nothing: Row = {"mean": None, "std": None, "interval": None, "constant": None, "by_length": []}
        return {**row, "runs": runs, **nothing, "error": f"no seed finished: {errors[0]}" if errors else None}, None
    first = next(iter(scores.values()))
    own = _scores_of(scores)
    mean, std, interval = spread(own, metric)
    values = dict(zip(own.seeds, own.values(metric).tolist()))
    runs = [{**run, "value": values.get(run["seed"])} for run in runs]
    lengths = _by_length(own, first["tokens"], metric)
    row["longest"] = int(max(first["tokens"]))
    constants = [run["baseline"].get(metric.name) for run in runs if run["value"] is not None]
    constant = None if None in constants else fmean(constants)
    found = {"mean": mean, "std": std, "interval": interval, "constant": constant, "by_length": lengths, "error": None}
    return {**row, "runs": runs, **found}, own


def run_row(seed: int, folder: str, result: Mapping[str, Any], flops: int | None, seconds: float | None = None) -> Row:
    """One run of the table. flops: FLOPs of one training step. seconds: time of one, measured side by side, in which
    its curve is drawn; None: not measured, so by the clock, which other runs on the machine slow down."""
    if "error" in result:
        nothing = dict.fromkeys(("value", "steps", "tokens", "seconds", "flops"))
        empty: Row = {"metrics": {}, "baseline": {}, "curve": []}
        return {"seed": seed, "folder": folder, **nothing, **empty, "error": result["error"]}
    summary = result["summary"]
    return {
        "seed": seed,
        "folder": folder,
        "value": None,
        "metrics": summary["metrics"],
        "baseline": summary.get("baseline", {}),
        "steps": summary["steps"],
        "tokens": summary["tokens_seen"],
        "train_tokens": summary.get("train_tokens"),
        "seconds": summary["wall_seconds"],
        "flops": flops * summary["steps"] if flops else None,
        "curve": [
            {
                **point,
                "flops": flops * point["step"] if flops else None,
                **({"seconds": seconds * point["step"]} if seconds else {}),
            }
            for point in result["curve"]
        ],
        "data_sha256": summary.get("data_sha256", {}),
        "test_in_training": result.get("test_in_training"),
        "versions": result.get("versions") or summary.get("versions", {}),
        "machine": result.get("machine", {}),
        "error": None,
    }


def _by_length(scores: Scores, tokens: Sequence[float], metric: Metric) -> list[dict[str, Any]]:
    """The metric by number of tokens of the test examples, where there are few distinct numbers.

    Each point has `FEWEST_EXAMPLES` or more. tokens: their mean number. lengths: least and most. examples: how many.
    """
    own = np.asarray(tokens, dtype=int)
    if not 1 < len(np.unique(own)) <= MAX_LENGTHS:
        return []
    points: list[np.ndarray] = []
    for length in np.unique(own):
        chosen = np.flatnonzero(own == length)
        if points and len(points[-1]) < FEWEST_EXAMPLES:
            points[-1] = np.concatenate([points[-1], chosen])
        else:
            points.append(chosen)
    if len(points) > 1 and len(points[-1]) < FEWEST_EXAMPLES:
        points[-2:] = [np.concatenate(points[-2:])]
    found = []
    for chosen in points if len(points) > 1 else ():
        mean, _, interval = spread(scores.examples(np.sort(chosen)), metric)
        lengths = [int(own[chosen].min()), int(own[chosen].max())]
        tokens_of = lengths[0] if lengths[0] == lengths[1] else float(own[chosen].mean())
        more = {"lengths": lengths, "examples": len(chosen)}
        found.append({"tokens": tokens_of, "value": mean, "interval": interval, **more})
    return found


def differences_of(scores: Mapping[str, Scores], metric: Metric) -> list[dict[str, Any]]:
    """Every pair, with its corrected p-value."""
    return [{"a": a, "b": b, **one._asdict(), "p_holm": p} for (a, b), (one, p) in differences(scores, metric).items()]
