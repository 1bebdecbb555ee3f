"""Finished runs side by side: the same page as a comparison's, and what else differs between them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from seqkit.analysis.cost import training_flops
from seqkit.comparison.candidates import backbone_of, keys_of, value_at
from seqkit.comparison.cells import read_curve
from seqkit.comparison.results import Row, add_statistics, by_length, complete_results, run_row, write_results
from seqkit.comparison.scores import METRICS, Metric, bytes_of_test_split, example_scores, metric_of, per_byte
from seqkit.comparison.statistics import Scores
from seqkit.config import complete, to_yaml
from seqkit.data.module import DataModule
from seqkit.errors import UsageError
from seqkit.files import read_mapping
from seqkit.runs.prepare import data_module
from seqkit.runs.trained_model import TrainedModel, load


def compare_runs(folders: Sequence[Path], out: Path) -> dict[str, Any]:
    """Evaluate runs on the test split of their data, write results and page into `out`, and return the results.

    Runs that differ in the seed alone are one candidate. The first is the reference.
    Raises UsageError for fewer than two candidates, a run given twice, runs with different objectives, or a folder that
    holds something else; DataError for a damaged run.
    """
    import shlex

    from seqkit.report.comparison import write_comparison

    command = shlex.join(["seqkit", "compare", *map(str, folders)])
    _check_out(out, command)
    where = [folder.resolve() for folder in folders]
    if len(set(where)) < len(where):
        raise UsageError("a run is given twice; give each folder once")
    runs = [_Run(folder) for folder in folders]
    objectives = {type(run.trained.objective).__name__ for run in runs}
    if len(objectives) > 1:
        raise UsageError(f"these runs learn different things ({', '.join(sorted(objectives))}); compare alike ones")
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        group = groups.setdefault(run.key, [])
        if any(other.config["seed"] == run.config["seed"] for other in group):
            raise UsageError(f"{run.folder} repeats a run with the same configuration and seed; leave one out")
        group.append(run)
    if len(groups) < 2:
        raise UsageError("these runs differ in their seed at most; give runs of which something else differs")
    metric = _metric(runs)
    rows: list[Row] = []
    scores: dict[str, Scores] = {}
    for name, group in zip(_names(list(groups.values())), groups.values()):
        row, own = _row(name, group, metric)
        rows.append(row)
        if own is not None:
            scores[name] = own
    recipes = dict.fromkeys(run.config["recipe"] for run in runs)
    results: dict[str, Any] = {
        "kind": "comparison",
        "title": f"{', '.join(recipes)}: {', '.join(row['name'] for row in rows)}",
        "recipe": ", ".join(recipes),
        "preset": None,
        "overrides": [],
        "command": command,
        "recipe_backbone": runs[0].backbone,
        "match": "none",
        "varied": [],
        "tuning": None,
        "seeds": sorted({run.config["seed"] for run in runs}),
        "failures": [],
        "started": datetime.now().isoformat(timespec="seconds"),
        "run_minutes": round(sum(run.trained.summary["wall_seconds"] for run in runs) / 60, 1),
    }
    results = complete_results(results, rows, scores, metric, rows[0]["name"])
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
    """A finished run with its data."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.trained: TrainedModel = load(folder)
        self.config = complete(self.trained.config)
        self.data: DataModule = data_module(self.config, self.trained.tokenizer, self.trained.objective)

    @property
    def key(self) -> str:
        """Equal for runs that differ in their seed alone."""
        config = {**self.config, "seed": None}
        return json.dumps(config, sort_keys=True)

    @property
    def backbone(self) -> str:
        """The type of its backbone."""
        return backbone_of(self.config)


def _metric(runs: Sequence[_Run]) -> Metric:
    objective = runs[0].trained.objective
    metric = metric_of(objective)
    tokenizers = {json.dumps(run.config["tokenizer"], sort_keys=True) for run in runs}
    per_text = metric.name == "loss" and objective.causal and len(tokenizers) > 1
    return METRICS["bits_per_byte"] if per_text else metric


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
    batch, label = next(iter(first.data.train_dataloader()))
    flops = training_flops(first.trained.model, first.trained.objective.prepare(batch, label).batch)
    runs, kept, tokens = [], [], []
    for run in group:
        seed, summary = run.config["seed"], run.trained.summary
        scores = example_scores(run.trained.model, run.data, metric, seed)
        if metric.name == "bits_per_byte":
            num_bytes = bytes_of_test_split(run.data)
            if num_bytes is None:
                raise UsageError("bits per byte need the whole text of the test split; these runs have a data.limit")
            scores = per_byte(scores, num_bytes)
        tokens = [int(n) for n in scores["tokens"]]
        summary = {"data_sha256": run.data.sha256(), **summary}
        result = {"summary": summary, "curve": read_curve(run.folder, summary)}
        runs.append(run_row(seed, str(run.folder), result, flops))
        kept.append((seed, scores["numerator"], scores["denominator"]))
    widths, depths = (keys_of(first.config["model"]["backbone"], key) for key in ("dim", "depth"))
    row = {
        "name": name,
        "group": None,
        "parameters": first.trained.model.num_parameters,
        "training_flops": flops,
        "width": value_at(first.config, widths[0]) if widths else None,
        "depth": value_at(first.config, depths[0]) if depths else None,
        "budget_gap": None,
        "chosen": {},
        "trials": [],
        "cost": None,
        "gradient_flow": None,
        "config": to_yaml(first.config),
        "notes": [],
        "by_length": by_length(kept, tokens, metric),
    }
    return add_statistics(row, runs, kept, metric)
