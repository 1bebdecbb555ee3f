"""Finished runs side by side, with the results of a comparison, and what else differs between them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from seqkit.analysis.cost import training_flops
from seqkit.comparison.candidates import Sizes
from seqkit.comparison.cells import read_curve, run_of
from seqkit.comparison.patterns import backbone_in_a_word
from seqkit.comparison.results import completed, with_statistics, write_results
from seqkit.comparison.scores import comparable_scores, metric_of
from seqkit.comparison.statistics import Scores
from seqkit.comparison.types import Metric, Results, Row
from seqkit.comparison.unmatched import flattened
from seqkit.config import complete, to_yaml
from seqkit.errors import UsageError
from seqkit.files import read_mapping
from seqkit.registry.commands import command
from seqkit.runs.joined import network_alone
from seqkit.runs.reopened import reopened
from seqkit.runs.trained_model import load_one

log = logging.getLogger("seqkit")

MAX_TOLD = 2
"""Settings at most that tell two runs apart in their names."""


class _Run:
    """A finished run with its data. key: equal for runs that differ in their seed alone, but for a mixture's tasks."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.trained = load_one(folder)
        self.config = complete(self.trained.config)
        self.data, doubt = reopened(self.trained)
        for line in (doubt, network_alone(self.trained.summary, f"What is compared of {folder}")):
            if line:
                log.warning("%s", line)
        self.key = str(_is_task(folder)) + json.dumps({**self.config, "seed": None}, sort_keys=True)


def compare_runs(folders: Sequence[Path], out: Path) -> Results:
    """Evaluate runs on the test split of their data, write results into `out`, and return them.

    Runs that differ in the seed alone are one candidate. The first is the reference.
    Raises UsageError for fewer than two candidates, a run given twice, runs with different objectives or test examples,
    or a folder that holds something else; DataError for a damaged run.
    """
    settings = {"runs": list(map(str, folders))}
    if out.is_dir() and any(out.iterdir()):
        path = out / "results.json"
        if not path.is_file() or read_mapping(path).get("settings") != settings:
            raise UsageError(
                f"{out} holds something else than a comparison of these runs; give another --out"
            )
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("a run is given twice; give each folder once")
    runs = [_Run(folder) for folder in folders]
    objectives = {type(run.trained.objective).__name__ for run in runs}
    if len(objectives) > 1:
        raise UsageError(
            f"these runs learn different things ({', '.join(sorted(objectives))}); compare alike ones"
        )
    _check_test_data(runs)
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        group = groups.setdefault(run.key, [])
        if any(other.config["seed"] == run.config["seed"] for other in group):
            raise UsageError(
                f"{run.folder} repeats a run with the same configuration and seed; leave one out"
            )
        group.append(run)
    if len(groups) < 2:
        raise UsageError(
            "these runs differ in their seed at most; give runs of which something else differs"
        )
    tokenizers = {json.dumps(run.config["tokenizer"]) for run in runs}
    metric = metric_of(runs[0].trained.objective, len(tokenizers))
    names = _names([group[0] for group in groups.values()])
    scored = [_row(name, group, metric) for name, group in zip(names, groups.values())]
    recipes = ", ".join(dict.fromkeys(run.config["recipe"] for run in runs))
    results = Results(
        recipe=recipes,
        metric=metric,
        candidates=[row for row, _ in scored],
        commands=_again(folders, out),
        settings=settings,
        seeds=sorted({run.config["seed"] for run in runs}),
        started=datetime.now().isoformat(timespec="seconds"),
        run_minutes=round(sum(run.trained.summary["wall_seconds"] for run in runs) / 60, 1),
    )
    scores = {row.name: own for row, own in scored if own is not None}
    results = completed(results, scores)
    out.mkdir(parents=True, exist_ok=True)
    write_results(out, results, scores)
    return results


def _names(runs: Sequence[_Run]) -> list[str]:
    """The backbone of each run and, of those with the same one, what else differs, or the folder if that is much."""
    words = [backbone_in_a_word(run.config["model"]["backbone"]) for run in runs]
    settings = [dict(flattened({**run.config, "seed": None})) for run in runs]
    shared = Path(os.path.commonpath([run.folder.absolute() for run in runs]))
    found = []
    for word, own, run in zip(words, settings, runs):
        if words.count(word) > 1:
            others = [one for other, one in zip(words, settings) if other == word]
            keys = dict.fromkeys(key for one in others for key in one)
            told = [
                f"{key.rpartition('.')[2]}={own.get(key)}"
                for key in keys
                if any(one.get(key) != own.get(key) for one in others)
            ]
            place = run.folder.absolute().relative_to(shared)
            word += f", {', '.join(told)}" if 0 < len(told) <= MAX_TOLD else f" ({place})"
        found.append(word)
    return found


def _again(folders: Sequence[Path], out: Path) -> list[str]:
    """Commands that train the runs again, a task with its mixture, and compare them, all beside what there is."""
    fits = {}
    places = []
    for folder in folders:
        whole = folder.parent.parent if _is_task(folder) else folder
        place = Path(f"{whole}-again")
        fits[place] = command("fit", whole / "config.yaml", "--out", place)
        places.append(place / folder.relative_to(whole))
    return [*fits.values(), command("compare", *places, "--out", f"{out}-again")]


def _is_task(folder: Path) -> bool:
    """Whether a run is one of a mixture's tasks."""
    return folder.resolve().parent.name == "tasks"


def _check_test_data(runs: Sequence[_Run]) -> None:
    """Raise UsageError unless all runs were tested on the same examples, as far as can be told.

    With one tokenizer by the digest of the test data, of one version; with several by the labels, and not at all where
    there are none: texts are cut into other windows then.
    """
    first, *others = runs
    labels = first.data.splits().test.labels
    for other in others:
        one, two = (
            run.trained.summary.get("data_sha256", {}).get("test") for run in (first, other)
        )
        theirs = other.data.splits().test.labels
        is_same = all(label is None for label in (*labels, *theirs))
        if not is_same:
            is_same = list(map(str, labels)) == list(map(str, theirs))
        if first.config["tokenizer"] == other.config["tokenizer"] and one and two:
            is_same = one == two or one.rpartition(":")[0] != two.rpartition(":")[0]
        if not is_same:
            numbers = [
                f"{run.folder}, {run.trained.summary['num_test']:,} examples"
                for run in (first, other)
            ]
            raise UsageError(
                f"these runs were tested on other examples ({'; '.join(numbers)}), so their scores cannot be compared; "
                "train both on one split (--data.split, --data.group, --data.test_fraction)"
            )


def _row(name: str, group: Sequence[_Run], metric: Metric) -> tuple[Row, Scores | None]:
    """A candidate from its runs, which differ in the seed alone."""
    first = group[0]
    runs = []
    scores = {}
    for run in group:
        seed = run.config["seed"]
        summary = run.trained.summary
        if "data_sha256" not in summary:
            summary = summary.changed(data_sha256=run.data.sha256())
        scores[seed] = comparable_scores(run.trained.model, run.data, metric, seed)
        runs.append(
            run_of(seed, str(run.folder), summary, read_curve(run.folder, summary["steps"]))
        )
    sizes = Sizes.of(first.config)
    row = Row(
        name=name,
        parameters=first.trained.model.num_parameters,
        training_flops=training_flops(
            first.trained.model, first.trained.objective, next(iter(first.data.train_dataloader()))
        ),
        width=sizes.width,
        depth=sizes.depth,
        config=to_yaml(first.config),
        broken=first.trained.summary.broken_laws,
        runs=runs,
    )
    return with_statistics(row, scores, metric)
