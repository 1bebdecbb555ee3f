"""Runs as one self-contained HTML page: figures are inside, nothing is fetched, light and dark."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from seqkit.config import complete
from seqkit.data.module import DataModule
from seqkit.files import write_atomic
from seqkit.report.learning_curves import loss_curve, metric_curve
from seqkit.report.notebook import run_html
from seqkit.report.samples import MAX_EXAMPLES, Section, samples
from seqkit.report.table import Headline, headline
from seqkit.report.templates import write_page
from seqkit.runs.prepare import data_module
from seqkit.runs.trained_model import TrainedModel, load


@dataclass
class RunReport:
    """What a page shows of a run. curves: SVG elements. warnings: what is missing, and why."""

    summary: dict[str, Any]
    metric: Headline
    config: str
    environment: dict[str, str]
    curves: list[str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run's folder: metrics beside the baseline, learning curves, samples, configuration.

    `summary.html`, which the trained model shows in a notebook, is written beside it. Returns the report's path.
    The data set may be absent: the page then says so and goes without samples of it.
    Raises UsageError if the folder is no finished run; DataError if its weights are damaged.
    """
    run = _collect(folder)
    write_atomic(folder / "summary.html", run_html(folder, run.summary).encode())
    return _write(folder / "report.html", f"{run.summary['recipe']} · {run.summary['backbone']}", [run], [])


def write_overview(folders: Sequence[Path], path: Path, *, title: str, failures: Sequence[str] = ()) -> Path:
    """Write several runs into one page: a table, then each run's report. failures: messages of other runs."""
    return _write(path, title, [_collect(folder) for folder in folders], failures)


def _collect(folder: Path) -> RunReport:
    with torch.random.fork_rng(devices=[]):  # building a model draws weights
        trained = load(folder)
        summary = trained.summary | {"objective": type(trained.objective).__name__}
        config = (folder / "config.yaml").read_text(encoding="utf-8")
        run = RunReport(trained.summary, headline(summary), config, _environment(summary))
        run.curves = [curve for curve in (loss_curve(folder, summary), metric_curve(folder, summary)) if curve]
        num_test, limit = summary.get("num_test"), summary.get("limit")
        if limit is not None and num_test == limit:
            run.warnings.append(f"Measured on {limit:,} examples only: data.limit={limit}.")
        run.sections = samples(trained.objective, trained, _data(trained, run.warnings))
        return run


def _data(trained: TrainedModel, warnings: list[str]) -> DataModule | None:
    """The run's data, limited; None, with a warning, where it cannot be read."""
    try:
        config = complete(trained.config)
        limit = config["data"]["limit"]
        limited = limit is None or limit > MAX_EXAMPLES
        config["data"] = config["data"] | {"limit": MAX_EXAMPLES if limited else limit}
        data = data_module(config, trained.tokenizer, trained.objective)
        if limited and data.window is None and len(data.splits().test) == MAX_EXAMPLES:
            warnings.append(
                f"Figures and examples below are of {MAX_EXAMPLES:,} test examples, drawn at random; "
                "the metrics are of all test examples of the run."
            )
        return data
    except (ValueError, OSError) as error:  # DataError and UsageError are ValueErrors
        warnings.append(f"No samples of the data: {error}")
        return None


def _environment(summary: dict[str, Any]) -> dict[str, str]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    here = {"platform": platform.platform(), "cores": str(os.cpu_count()), "accelerator": device}
    return {**summary["versions"], "seed": str(summary["seed"]), **{f"{k} (of this page)": v for k, v in here.items()}}


def _write(path: Path, title: str, runs: Sequence[RunReport], failures: Sequence[str]) -> Path:
    subtitle = f"seqkit {runs[0].summary['versions']['seqkit']}" if runs else "no run finished"
    return write_page("page.html", path, title=title, subtitle=subtitle, runs=runs, failures=failures)
