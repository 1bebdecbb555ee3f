"""Results of a comparison, from the results of its cells; results.json and scores.npz."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import floor, log10
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from seqkit.comparison.candidates import Candidate
from seqkit.comparison.scores import ExampleScores
from seqkit.comparison.sequential import planned
from seqkit.comparison.stages import TUNING_SEEDS, Plan, Trained, slug_of
from seqkit.comparison.statistics import Scores, differences, spread
from seqkit.comparison.types import ClassicalMethod, Metric, Results, Row, Run, Tuning
from seqkit.comparison.unmatched import unmatched
from seqkit.comparison.verdicts import with_verdicts
from seqkit.config import to_yaml
from seqkit.errors import DataError
from seqkit.files import read_mapping, write_atomic, write_json


def summarise(plan: Plan, trained: Trained, **known: Any) -> tuple[Results, dict[str, Scores]]:
    """Results of a plan whose cells have all ended, and the scores of test examples by candidate.

    known: further fields of `Results`, of how and when it was run.
    """
    settings = plan.settings
    reference = plan.candidates[0]
    scored = [_row(plan, candidate, trained) for candidate in plan.candidates]
    first = trained.runs[reference.name].get(1)
    is_by_metric = any(t.score != t.loss for row, _ in scored for t in row.trials)
    varied = list(settings.vary)
    if settings.backbones:
        varied.insert(0, "model.backbone")
    budgets = {"parameters": reference.size.parameters, "flops": reference.size.flops}
    num_seeds = settings.tuning_seeds if settings.lr_trials > 1 else 1
    results = Results(
        recipe=settings.recipe,
        metric=plan.metric,
        candidates=[row for row, _ in scored],
        preset=settings.preset,
        overrides=settings.overrides,
        commands=[settings.command()],
        settings=asdict(settings),
        match=settings.match,
        budget=budgets.get(settings.match),
        varied=varied,
        tuning=Tuning(
            lr_trials=settings.lr_trials,
            optimizers=[optimizer["type"] for optimizer in reference.optimizers],
            depths=settings.tries_depths,
            seeds=list(TUNING_SEEDS[:num_seeds]),
            by=plan.metric.name if is_by_metric else "loss",
        ),
        seeds=sorted(trained.runs[reference.name]),
        strong_baseline=_strong_baseline(first.strong_baseline if first else None, plan.metric),
        **known,
    )
    scores = {row.name: own for row, own in scored if own is not None}
    return completed(results, scores), scores


def completed(results: Results, scores: Mapping[str, Scores]) -> Results:
    """Results with differences, verdicts, what was not matched, versions and machine."""
    whole = {row.name: scores[row.name] for row in results.candidates if row.name in scores}
    first = next((run for row in results.candidates for run in row.sound), None)
    compared = differences(whole, results.metric)
    if (delta := results.until_sure) is not None:
        keeping = {name: whole[name] for name in whole if not results.by_name[name].broken}
        num_pairs = len(results.candidates) - 1
        compared = [*planned(keeping, results.reference, results.metric, delta, num_pairs)]
        # the interval of a mean holds for a number of seeds that was fixed beforehand
        rows = [replace(row, interval=None) for row in results.candidates]
        results = replace(results, candidates=rows)
    results = replace(
        results,
        metric=_told_apart(results.metric, results.candidates),
        num_test=max((own.numerator.shape[1] for own in whole.values()), default=0),
        differences=compared,
        versions=first.versions if first else {},
        machine=first.machine if first else {},
    )
    results = with_verdicts(results)
    return replace(results, unmatched=unmatched(results))


def _told_apart(metric: Metric, rows: Sequence[Row]) -> Metric:
    """The metric with three significant digits of its smallest mean: an RMSE has the unit of the target."""
    means = [abs(row.mean) for row in rows if row.mean]
    if not (metric.root and means):
        return metric
    return replace(metric, digits=max(metric.digits, 2 - floor(log10(min(means)))))


def write_results(folder: Path, results: Results, scores: Mapping[str, Scores]) -> None:
    """results.json, and scores.npz, from which each interval can be computed again.

    Arrays of scores.npz, each by CANDIDATE/NAME: seeds [s]; numerator and denominator [s e] of every test example, of
    which the metric is the ratio of sums, or its root; groups [e], where examples belong together.
    """
    write_json(folder / "results.json", results.to_json())
    arrays: dict[str, Any] = {
        f"{name}/{key}": value
        for name, own in scores.items()
        for key, value in own.arrays().items()
    }
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_atomic(folder / "scores.npz", content.getvalue())


def read_results(path: Path) -> Results:
    """Results from results.json. Raises DataError where the file is missing, damaged or of another kind."""
    value = read_mapping(path, "kind")
    if value["kind"] != "comparison":
        raise DataError(f"{path} has the kind {value['kind']!r}; give a folder of `seqkit compare`")
    try:
        return Results.from_json(value)
    except ValueError as error:
        raise DataError(
            f"{path} is damaged, or of another version of seqkit ({error}); compare again"
        ) from error


def _strong_baseline(found: Mapping[str, Any] | None, metric: Metric) -> ClassicalMethod | None:
    """The strong baseline, if it has the metric of the page."""
    if found is None or found["metrics"].get(metric.name) is None:
        return None
    return ClassicalMethod(
        name=found["name"], value=found["metrics"][metric.name], num_train=found["num_train"]
    )


def _row(plan: Plan, candidate: Candidate, trained: Trained) -> tuple[Row, Scores | None]:
    name = candidate.name
    tuned = trained.tuned[name]
    runs = []
    scores = {}
    for seed, one in trained.runs[name].items():
        folder = f"runs/{slug_of(name)}/seed-{seed}"
        runs.append(one.run or Run(seed=seed, folder=folder, error=one.error))
        if one.scores is not None:
            scores[seed] = one.scores
    row = Row(
        name=name,
        parameters=tuned.size.parameters,
        training_flops=tuned.size.flops,
        width=tuned.size.width,
        depth=tuned.size.depth,
        budget_gap=tuned.size.budget_gap,
        farthest=tuned.size.farthest,
        depths=[size.depth for _, size in sorted(candidate.ladder.items()) if size.depth],
        untuned=to_yaml(candidate.config),
        chosen=tuned.values,
        trials=tuned.trials,
        cost=trained.costs.get(name),
        config=to_yaml(trained.configs[name]),
        notes=candidate.notes,
        # before training, or after it
        broken=candidate.broken or next((run.broken for run in runs if run.broken), []),
        runs=runs,
    )
    return with_statistics(row, scores, plan.metric)


def with_statistics(
    row: Row, scores: Mapping[int, ExampleScores], metric: Metric
) -> tuple[Row, Scores | None]:
    """The row with the value of each run, mean, standard deviation and interval; and the scores of all sound seeds."""
    if not scores:
        return row, None
    first = next(iter(scores.values()))
    own = Scores.by_seed(scores)
    mean, std, interval = spread(own, metric)
    values = dict(zip(own.seeds, own.values(metric).tolist()))
    runs = [replace(run, value=values.get(run.seed)) for run in row.runs]
    constants: list[Any] = [run.baseline.get(metric.name) for run in runs if run.value is not None]
    return replace(
        row,
        runs=runs,
        mean=mean,
        std=std,
        interval=interval,
        longest=max(first.tokens),
        constant=None if None in constants else fmean(constants),
    ), own
