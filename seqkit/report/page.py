"""Runs as one self-contained HTML page: figures are inside, nothing is fetched, light and dark."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from seqkit.config import complete
from seqkit.data.module import DataModule
from seqkit.files import read_mapping
from seqkit.report.headline import cautions, headline
from seqkit.report.learning_curves import loss_curve, metric_curve
from seqkit.report.samples import MAX_EXAMPLES, samples
from seqkit.report.templates import write_page
from seqkit.runs.intervals import told
from seqkit.runs.prepare import data_module
from seqkit.runs.summary import data_name, task_folders
from seqkit.runs.trained_model import TrainedModel, load_one


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run's folder: metrics beside the baseline, learning curves, samples, configuration.

    Returns the report's path.
    The data set may be absent: the page then says so and goes without samples of it.
    Raises UsageError if the folder is no finished run; DataError if its weights are damaged.
    """
    if places := task_folders(folder):
        for place in places.values():
            write_report(place)
        summary = read_mapping(folder / "summary.json")
        title = f"{summary['recipe']} · {len(places)} tasks"
        runs = [_collect(place) for place in places.values()]
        return _write(folder / "report.html", title, runs, mixture_facts(summary))
    run = _collect(folder)
    return _write(folder / "report.html", _title(run), [run], run["facts"])


def write_overview(folders: Sequence[Path], path: Path, *, title: str) -> Path:
    """Write several runs into one page: a table, then each run's report; a mixture's tasks are runs.

    One run alone has the title of its own report.
    """
    places = [place for folder in folders for place in task_folders(folder).values() or [folder]]
    runs = [_collect(place) for place in places]
    if len(runs) == 1:
        return _write(path, _title(runs[0]), runs, runs[0]["facts"])
    return _write(path, title, runs)


def _sentence(line: str | None) -> str | None:
    return None if line is None else line[0].upper() + line[1:]


def _title(run: dict[str, Any]) -> str:
    return f"{run['data']} · {run['summary']['backbone']}"


def _collect(folder: Path) -> dict[str, Any]:
    """Values of a run in the template of the page; warnings are of the result, and of what is missing and why."""
    with torch.random.fork_rng(devices=[]):  # building a model draws weights
        trained = load_one(folder)
        summary = trained.summary | {"objective": type(trained.objective).__name__}
        warnings, metric = cautions(summary), headline(summary)
        warnings += summary.get("data_cautions", [])
        limit = summary.get("limit")
        if limit is not None and summary.get("num_test") == limit:
            warnings.append(f"The metrics are of {limit:,} test examples only (data.limit={limit}).")
        for split, (unknown, num_tokens) in summary.get("unknown", {}).items():
            warnings.append(f"{unknown:,} of {num_tokens:,} {split} tokens are unknown. They share one id.")
        loss = loss_curve(folder, summary)
        return {
            "folder": str(folder),
            "summary": trained.summary,
            "intervals": _sentence(told(summary)),
            "metric": metric,
            "others": {name: value for name, value in summary["metrics"].items() if name != metric.name},
            "data": data_name(trained.config),
            "facts": _facts(summary),
            "config": (folder / "config.yaml").read_text(encoding="utf-8"),
            "environment": _environment(summary),
            "curves": [curve for curve in (loss, metric_curve(folder, summary)) if curve],
            "sections": samples(trained.objective, trained, _data(trained, warnings)),
            "warnings": warnings,
        }


def _data(trained: TrainedModel, warnings: list[str]) -> DataModule | None:
    """The run's data, limited; None, with a warning, where it cannot be read."""
    log = logging.getLogger("seqkit")
    log.disabled = True  # the training has logged already what the data sources say
    try:
        config = complete(trained.config)
        limit = config["data"]["limit"]
        limited = limit is None or limit > MAX_EXAMPLES
        config["data"] = config["data"] | {"limit": MAX_EXAMPLES if limited else limit}
        data = data_module(config, trained.tokenizer, trained.objective)
        if limited and data.window is None and len(data.splits().test) == MAX_EXAMPLES:
            warnings.append(
                f"The figures and examples below are of {MAX_EXAMPLES:,} test examples, drawn at random. The metrics "
                "are of all test examples."
            )
        return data
    except (ValueError, OSError) as error:  # DataError and UsageError are ValueErrors
        warnings.append(f"The data cannot be read, so no examples are shown: {error}")
        return None
    finally:
        log.disabled = False


def _facts(summary: dict[str, Any]) -> str:
    """Recipe, date, counts and the rule of the split; what the summary of an old run lacks is left out."""
    date = str(summary.get("date", ""))[:16].replace("T", " ")
    names = (("num_train", "training"), ("num_valid", "validation"), ("num_test", "test"))
    counts = ", ".join(f"{summary[key]:,} {name}" for key, name in names if key in summary)
    rule = summary.get("split_rule", "")
    return " · ".join(filter(None, (summary["recipe"], date, f"{counts} examples" if counts else "", rule)))


def _environment(summary: dict[str, Any]) -> dict[str, str]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    here = {"platform": platform.platform(), "cores": str(os.cpu_count()), "accelerator": device}
    return {**summary["versions"], "seed": str(summary["seed"]), **{f"{k} (of this page)": v for k, v in here.items()}}


def mixture_facts(summary: dict[str, Any]) -> str:
    """Parameters, steps and seconds that the tasks of a mixture have together."""
    return (
        f"one {summary['backbone']}, {summary['num_parameters']:,} parameters in all tasks together, "
        f"{summary['steps']:,} steps in {summary['wall_seconds']:.0f} s"
    )


def _write(path: Path, title: str, runs: Sequence[dict[str, Any]], facts: str = "") -> Path:
    for run, place in zip(runs, last_parts([run["folder"] for run in runs])):
        run["place"] = place
    subtitle = " · ".join(filter(None, (facts, f"seqkit {runs[0]['summary']['versions']['seqkit']}")))
    return write_page("page.html", path, title=title, subtitle=subtitle, runs=runs)


def last_parts(folders: Sequence[str]) -> list[str]:
    """Paths of folders below the folder that holds all of them, which tell them apart; of one its name."""
    paths = [Path(folder).absolute() for folder in folders]
    common = Path(os.path.commonpath([path.parent for path in paths]))
    return [path.relative_to(common).as_posix() for path in paths]
