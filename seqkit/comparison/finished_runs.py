"""Finished runs side by side: the same page as a comparison's, and what else differs between them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from seqkit.analysis.cost import training_flops
from seqkit.comparison.candidates import backbone_of, size_of
from seqkit.comparison.cells import read_curve
from seqkit.comparison.results import Row, complete_results, run_row, with_statistics, write_results
from seqkit.comparison.scores import comparable_scores, metric_of
from seqkit.comparison.statistics import Scores
from seqkit.comparison.types import Metric
from seqkit.config import complete, to_yaml
from seqkit.data.module import DataModule
from seqkit.errors import UsageError
from seqkit.files import read_mapping
from seqkit.report.comparison import write_comparison
from seqkit.runs.prepare import data_module
from seqkit.runs.trained_model import TrainedModel, load_one


def compare_runs(folders: Sequence[Path], out: Path) -> dict[str, Any]:
    """Evaluate runs on the test split of their data, write results and page into `out`, and return the results.

    Runs that differ in the seed alone are one candidate. The first is the reference.
    Raises UsageError for fewer than two candidates, a run given twice, runs with different objectives or test examples,
    or a folder that holds something else; DataError for a damaged run.
    """
    command = shlex.join(["seqkit", "compare", *map(str, folders)])
    _check_out(out, command)
    where = [folder.resolve() for folder in folders]
    if len(set(where)) < len(where):
        raise UsageError("a run is given twice; give each folder once")
    runs = [_Run(folder) for folder in folders]
    objectives = {type(run.trained.objective).__name__ for run in runs}
    if len(objectives) > 1:
        raise UsageError(f"these runs learn different things ({', '.join(sorted(objectives))}); compare alike ones")
    _check_test_data(runs)
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        group = groups.setdefault(run.key, [])
        if any(other.config["seed"] == run.config["seed"] for other in group):
            raise UsageError(f"{run.folder} repeats a run with the same configuration and seed; leave one out")
        group.append(run)
    if len(groups) < 2:
        raise UsageError("these runs differ in their seed at most; give runs of which something else differs")
    tokenizers = {json.dumps(run.config["tokenizer"], sort_keys=True) for run in runs}
    metric = metric_of(runs[0].trained.objective, len(tokenizers))
    names = _names(list(groups.values()))
    scored = [_row(name, group, metric) for name, group in zip(names, groups.values(), strict=True)]
    recipes = dict.fromkeys(run.config["recipe"] for run in runs)
    results: dict[str, Any] = {
        "kind": "comparison",
        "title": f"{', '.join(recipes)}: {', '.join(names)}",
        "recipe": ", ".join(recipes),
        "preset": None,
        "overrides": [],
        "command": command,
        "fit_commands": [shlex.join(["seqkit", "fit", str(run.folder / "config.yaml")]) for run in runs],
        "recipe_backbone": runs[0].backbone,
        "match": "none",
        "varied": [],
        "tuning": None,
        "seeds": sorted({run.config["seed"] for run in runs}),
        "failures": [],
        "started": datetime.now().isoformat(timespec="seconds"),
        "run_minutes": round(sum(run.trained.summary["wall_seconds"] for run in runs) / 60, 1),
    }
    results = complete_results(results, scored, metric)
    out.mkdir(parents=True, exist_ok=True)
    write_results(out, results)
    write_comparison(out)
    return results


def _check_out(out: Path, command: str) -> None:
    """Raise UsageError where the folder holds anything but the page of the same runs."""
    if out.is_dir() and any(out.iterdir()):
        path = out / "results.json"
        if not path.is_file() or read_mapping(path).get("command") != command:
            raise UsageError(f"{out} holds something else than a comparison of these runs; give another --out")
    elif out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give a folder as --out")


class _Run:
    """A finished run with its data. key: equal for runs that differ in their seed alone, but for a mixture's tasks."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.trained: TrainedModel = load_one(folder)
        self.config = complete(self.trained.config)
        self.data: DataModule = data_module(self.config, self.trained.tokenizer, self.trained.objective)
        of = str(folder.resolve().parent.name == "tasks")
        self.key = of + json.dumps({**self.config, "seed": None}, sort_keys=True)
        self.backbone = backbone_of(self.config)


def _check_test_data(runs: Sequence[_Run]) -> None:
    """Raise UsageError unless all runs were tested on the same examples, as far as can be told.

    With one tokenizer by the digest of the test data, of one version; with several by the number of test examples and
    their labels, and not at all where there are none: texts are cut into other windows then.
    """
    first, *others = runs
    labels = first.data.splits().test.labels
    for other in others:
        one, two = (run.trained.summary.get("data_sha256", {}).get("test") for run in (first, other))
        if first.config["tokenizer"] == other.config["tokenizer"] and one and two:
            version = one.rpartition(":")[0]
            is_same = one == two or version != two.rpartition(":")[0]
        else:
            theirs = other.data.splits().test.labels
            has_none = all(label is None for label in (*labels, *theirs))
            is_same = has_none or list(map(str, labels)) == list(map(str, theirs))
        if not is_same:
            numbers = [f"{run.folder}, {run.trained.summary['num_test']:,} examples" for run in (first, other)]
            raise UsageError(
                f"these runs were tested on other examples ({'; '.join(numbers)}), so their scores cannot be compared; "
                "train both on one split (--data.split, --data.group, --data.test_fraction)"
            )


def _names(groups: Sequence[Sequence[_Run]]) -> list[str]:
    """The backbone's type where that tells them apart, else the folder of the first run."""
    names = [group[0].backbone for group in groups]
    if len(set(names)) < len(names):
        names = [group[0].folder.resolve().name for group in groups]
    if len(set(names)) < len(names):
        names = [str(group[0].folder) for group in groups]
    return names


def _row(name: str, group: Sequence[_Run], metric: Metric) -> tuple[Row, Scores | None]:
    first = group[0]
    flops = training_flops(first.trained.model, first.trained.objective, next(iter(first.data.train_dataloader())))
    runs, scores = [], {}
    for run in group:
        seed, summary = run.config["seed"], {"data_sha256": run.data.sha256(), **run.trained.summary}
        scores[seed] = comparable_scores(run.trained.model, run.data, metric, seed)
        result = {"summary": summary, "curve": read_curve(run.folder, summary)}
        runs.append(run_row(seed, str(run.folder), result, flops))
    width, depth = size_of(first.config)
    row = {
        "name": name,
        "parameters": first.trained.model.num_parameters,
        "training_flops": flops,
        "width": width,
        "depth": depth,
        "causal": first.trained.model.causal,
        "chosen": {},
        "trials": [],
        "config": to_yaml(first.config),
        "notes": [],
        **dict.fromkeys(("group", "budget_gap", "farthest", "state", "cost", "gradient_flow")),
    }
    return with_statistics(row, runs, scores, metric)
