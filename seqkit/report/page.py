"""Runs as one self-contained HTML page: figures are inside, nothing is fetched, light and dark."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from seqkit.report.table import Headline, cautions, headline
from seqkit.report.templates import write_page
from seqkit.runs.listing import data_name
from seqkit.runs.prepare import data_module
from seqkit.runs.trained_model import TrainedModel, load


@dataclass
class RunReport:
    """What a page shows of a run.

    folder: as it was given. data: their name. facts: recipe, date, counts and the rule of the split, in words.
    curves: SVG elements. warnings: what the reader should know, or what is missing and why.
    """

    folder: str
    summary: dict[str, Any]
    metric: Headline
    data: str
    facts: str
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
    return _write(folder / "report.html", f"{run.data} · {run.summary['backbone']}", [run], [], run.facts)


def write_overview(folders: Sequence[Path], path: Path, *, title: str, failures: Sequence[str] = ()) -> Path:
    """Write several runs into one page: a table, then each run's report. failures: messages of other runs."""
    return _write(path, title, [_collect(folder) for folder in folders], failures)


def _collect(folder: Path) -> RunReport:
    with torch.random.fork_rng(devices=[]):  # building a model draws weights
        trained = load(folder)
        summary = trained.summary | {"objective": type(trained.objective).__name__}
        config = (folder / "config.yaml").read_text(encoding="utf-8")
        data = data_name(trained.config)
        facts, environment = _facts(summary), _environment(summary)
        run = RunReport(str(folder), trained.summary, headline(summary), data, facts, config, environment)
        run.warnings += cautions(summary)
        run.curves = [curve for curve in (loss_curve(folder, summary), metric_curve(folder, summary)) if curve]
        num_test, limit = summary.get("num_test"), summary.get("limit")
        if limit is not None and num_test == limit:
            run.warnings.append(f"Measured on {limit:,} examples only: data.limit={limit}.")
        for split, (unknown, num_tokens) in summary.get("unknown", {}).items():
            run.warnings.append(f"{unknown:,} of {num_tokens:,} {split} tokens are unknown, and share one id.")
        run.sections = samples(trained.objective, trained, _data(trained, run.warnings))
        return run


def _data(trained: TrainedModel, warnings: list[str]) -> DataModule | None:
    """The run's data, limited; None, with a warning, where it cannot be read."""
    try:
        config = complete(trained.config)
        limit = config["data"]["limit"]
        limited = limit is None or limit > MAX_EXAMPLES
        config["data"] = config["data"] | {"limit": MAX_EXAMPLES if limited else limit}
        with _said_before():
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


@contextmanager
def _said_before() -> Iterator[None]:
    """Let no data source say again what the training has said."""
    log = logging.getLogger("seqkit")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _facts(summary: dict[str, Any]) -> str:
    """Recipe, date, counts and the rule of the split; what an old run did not note is left out."""
    date = str(summary.get("date", ""))[:16].replace("T", " ")
    names = (("num_train", "training"), ("num_valid", "validation"), ("num_test", "test"))
    counts = ", ".join(f"{summary[key]:,} {name}" for key, name in names if key in summary)
    rule = summary.get("split_rule", "")
    return " · ".join(filter(None, (summary["recipe"], date, f"{counts} examples" if counts else "", rule)))


def _environment(summary: dict[str, Any]) -> dict[str, str]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    here = {"platform": platform.platform(), "cores": str(os.cpu_count()), "accelerator": device}
    return {**summary["versions"], "seed": str(summary["seed"]), **{f"{k} (of this page)": v for k, v in here.items()}}


def _write(path: Path, title: str, runs: Sequence[RunReport], failures: Sequence[str], facts: str = "") -> Path:
    version = f"seqkit {runs[0].summary['versions']['seqkit']}" if runs else "no run finished"
    subtitle = " · ".join(filter(None, (facts, version)))
    return write_page("page.html", path, title=title, subtitle=subtitle, runs=runs, failures=failures)
