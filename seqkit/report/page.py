"""Runs as one self-contained HTML page: figures are inside, nothing is fetched, light and dark."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from seqkit.config import complete
from seqkit.data.module import DataModule
from seqkit.errors import one_line
from seqkit.interfaces import IGNORE
from seqkit.report.headline import cautions, headline, network_alone, remarks, split_sizes
from seqkit.report.importance import importance
from seqkit.report.learning_curves import learning_curves
from seqkit.report.modality import find_renderer
from seqkit.report.numbers import listed
from seqkit.report.samples.by_objective import samples
from seqkit.report.samples.picker import Picker
from seqkit.report.samples.section import Section
from seqkit.report.templates import write_page
from seqkit.runs.prepare import data_module
from seqkit.runs.reopened import check_one, reopened, with_data
from seqkit.runs.summary import Summary, data_name, read_summary, target_names, task_folders
from seqkit.runs.trained_model import TrainedModel, load_one

MAX_EXAMPLES = 2000
"""Test examples that figures show at most."""

MAX_NAMES = 4
"""Columns that are named as what a run predicts; of more, their number stands there."""

Values = dict[str, Any]
"""Values of one run in the template of the page, by name."""


def write_report(folder: Path, moved_to: str | None = None) -> Path:
    """Write `report.html` into a run's folder: metrics beside the baseline, learning curves, samples, configuration.

    A task of a mixture has a report of its own and a part of the mixture's. Returns the report's path. The data set may
    be absent: the page then says so and goes without samples of it.
    moved_to: where the run's files are now; None: where it says.
    Raises UsageError if the folder is no finished run; DataError if its weights are damaged.
    """
    places = task_folders(folder)
    check_one(folder, moved_to)
    runs = []
    for place in places.values() or [folder]:
        runs.append(run := _collect(place, moved_to))
        _write(place / "report.html", run["title"], [run], run["facts"])
    if places:
        summary = read_summary(folder)
        title = f"{summary['recipe']} · {len(places)} tasks"
        _write(folder / "report.html", title, runs, mixture_facts(summary))
    return folder / "report.html"


def write_overview(
    folders: Sequence[Path], path: Path, *, title: str, moved_to: str | None = None
) -> Path:
    """Write several runs into one page: a table, then each run's report; a mixture's tasks are runs.

    One run alone has the title of its own report. moved_to: as of `write_report`, of one run alone.
    """
    check_one(folders[0], moved_to)
    runs = [
        _collect(place, moved_to)
        for folder in folders
        for place in task_folders(folder).values() or [folder]
    ]
    if len(runs) == 1:
        return _write(path, runs[0]["title"], runs, runs[0]["facts"])
    return _write(path, title, runs)


def _collect(folder: Path, moved_to: str | None = None) -> Values:
    """Values of a run in the template of the page; warnings are of the result, and of what is missing and why."""
    with torch.random.fork_rng(devices=[]):  # building a model draws weights
        trained = with_data(load_one(folder), moved_to)
        summary = trained.summary.changed(objective=type(trained.objective).__name__)
        # the page says in its own sentence how the run compares with the specialist
        warnings = cautions(summary, specialist=False)
        metric = headline(summary)
        others = [name for name in summary["metrics"] if name != metric.name]
        warnings += summary.get("data_cautions", [])
        for split, (unknown, num_tokens) in summary.get("unknown", {}).items():
            warnings.append(
                f"{unknown:,} of {num_tokens:,} {split} tokens are unknown. They share one id."
            )
        data = _data(trained, warnings)
        unit = "examples"
        sections = list[Section]()
        if data is not None:
            picker = Picker(trained, data)
            sections = [*samples(trained.objective, picker), *importance(picker)]
            if getattr(trained.objective, "level", "") == "token" and summary.get("num_test") == 1:
                unit = f"{find_renderer(data.tokenizer).unit} of one example"
                summary = summary.changed(**_labelled(data))
        return {
            "folder": str(folder),
            "title": f"{data_name(trained.config)} · {summary['backbone']}",
            "summary": trained.summary,
            "intervals": ". ".join(line[:1].upper() + line[1:] for line in remarks(summary)),
            "metric": metric,
            "alone": network_alone(summary),
            "others": {name: summary["metrics"][name] for name in others},
            "data": data_name(trained.config),
            "facts": _facts(summary, unit, target_names(trained.config)),
            "config": (folder / "config.yaml").read_text(encoding="utf-8"),
            "environment": {**summary["versions"], "seed": summary["seed"]},
            "curves": learning_curves(folder, summary),
            "sections": sections,
            "warnings": warnings,
        }


def _data(trained: TrainedModel, warnings: list[str]) -> DataModule | None:
    """The run's data, limited; None, with a warning, where it cannot be read or is not known to be the run's."""
    log = logging.getLogger("seqkit")
    log.disabled = True  # the training has logged already what the data sources say
    try:
        data, doubt = reopened(trained, words=("report",))
        if doubt:
            warnings.append(f"{doubt[:1].upper()}{doubt[1:]}, so no examples are shown.")
            return None
        if len(data.test_dataloader().examples) <= MAX_EXAMPLES:
            return data
        config = complete(trained.config).changed({"data.limit": MAX_EXAMPLES})
        data = data_module(config, trained.tokenizer, trained.objective)
        if data.window is None:
            warnings.append(
                f"The figures and examples below are of {MAX_EXAMPLES:,} test examples, drawn at random."
            )
        return data
    except (ValueError, OSError) as error:  # DataError and UsageError are ValueErrors
        warnings.append(f"The data cannot be read, so no examples are shown: {error}")
        return None
    finally:
        log.disabled = False


def _facts(summary: Summary, unit: str, targets: Sequence[str]) -> str:
    """Recipe, targets, date, counts and the rule of the split; what the summary of an old run lacks is left out."""
    date = str(summary.get("date", ""))[:16].replace("T", " ")
    counts = split_sizes(summary)
    if counts:
        counts = f"{counts} {unit}"
    what = f"predicts {len(targets)} columns" if targets else ""
    if 1 <= len(targets) <= MAX_NAMES:
        what = f"predicts {listed([one_line(name) for name in targets])}"
    return _joined(summary["recipe"], what, date, counts, summary.get("split_rule", ""))


def _joined(*parts: str) -> str:
    return " · ".join(filter(None, parts))


def _labelled(data: DataModule) -> dict[str, int]:
    """How many nodes of the one graph have labels in each split."""
    splits = data.splits()
    parts = {"num_train": splits.train, "num_valid": splits.valid, "num_test": splits.test}
    return {
        key: int((torch.as_tensor(part.labels[0]) != IGNORE).sum())
        for key, part in parts.items()
        if part
    }


def mixture_facts(summary: Summary) -> str:
    """Parameters, steps and seconds that the tasks of a mixture have together."""
    return (
        f"one {summary['backbone']}, {summary['num_parameters']:,} parameters in all tasks together, "
        f"{summary['steps']:,} steps in {summary['wall_seconds']:.0f} s"
    )


def _write(path: Path, title: str, runs: Sequence[Values], facts: str = "") -> Path:
    subtitle = _joined(facts, runs[0]["summary"].made_by)
    return write_page("page.html", path, title=title, subtitle=subtitle, runs=runs)
