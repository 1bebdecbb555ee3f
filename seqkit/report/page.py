"""A run as one HTML page that needs nothing but itself: figures are inside, nothing is fetched, light and dark."""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined

from seqkit.configure import instantiate, parse
from seqkit.report.figures import Series, curves, svg
from seqkit.report.samples import MAX_EXAMPLES, Section, samples
from seqkit.report.table import Headline, headline, shown
from seqkit.run import Loaded, load


@dataclass
class Run:
    """What a page shows of a run. curves: SVG elements. warnings: what is missing, and why."""

    summary: dict[str, Any]
    metric: Headline
    config: str
    environment: dict[str, str]
    curves: list[str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run's folder: result beside the constant baseline, curves, samples, configuration.

    The data set may be absent: the page then says so and goes without samples of it.
    Raises UsageError if the folder is no finished run; DataError if its weights are damaged.
    """
    run = _read(folder)
    return _write(folder / "report.html", f"{run.summary['recipe']} · {run.summary['backbone']}", [run], [])


def write_overview(folders: Sequence[Path], path: Path, *, title: str, failures: Sequence[str] = ()) -> Path:
    """Write several runs into one page: a table, then each run's curves and samples. failures: of other runs."""
    return _write(path, title, [_read(folder) for folder in folders], failures)


def _read(folder: Path) -> Run:
    with torch.random.fork_rng(devices=[]):  # building a model draws weights
        return _looked_at(folder)


def _looked_at(folder: Path) -> Run:
    loaded = load(folder)
    metric = headline(loaded.summary | {"objective": type(loaded.objective).__name__})
    run = Run(
        loaded.summary, metric, (folder / "config.yaml").read_text(encoding="utf-8"), _environment(loaded.summary)
    )
    run.curves = _curves(folder / "metrics.csv", metric, loaded.summary.get("baseline", {}))
    num_test, limit = loaded.summary.get("num_test"), loaded.summary.get("limit")
    if limit is not None and num_test == limit:
        run.warnings.append(f"Measured on {limit:,} examples only: data.limit={limit}.")
    data = _data(loaded, run.warnings)
    run.sections = samples(loaded.objective, loaded, data)
    return run


def _data(loaded: Loaded, warnings: list[str]) -> Any:
    """The run's data, connected and limited; None, with a warning, where it cannot be read."""
    try:
        config = parse(loaded.config)
        data = instantiate(config).data
        limited = data.limit is None or data.limit > MAX_EXAMPLES
        data.limit = MAX_EXAMPLES if limited else data.limit
        data.connect(loaded.tokenizer, loaded.objective, seed=config.seed)
        if limited and data.window is None and len(data.splits().test) == MAX_EXAMPLES:
            warnings.append(
                f"Figures and examples below look at {MAX_EXAMPLES:,} of the test examples, drawn at random; "
                "the metrics look at all that the run measured."
            )
        return data
    except (ValueError, OSError) as error:  # DataError and UsageError are ValueErrors
        warnings.append(f"No samples of the data: {error}")
        return None


def _curves(path: Path, metric: Headline, baseline: dict[str, float]) -> list[str]:
    """Losses, and the metric that speaks for the run where validation measured it."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    losses = [_series(rows, name, label) for name, label in (("train/loss", "training"), ("valid/loss", "validation"))]
    losses = [series for series in losses if series.x]
    figures = [curves(losses, unit="loss", baseline=baseline.get("loss"))] if losses else []
    valid = _series(rows, f"valid/{metric.name}", "validation")
    if valid.x and metric.name != "loss":
        figures.append(curves([valid], unit=metric.label, baseline=metric.baseline))
    return [svg(figure) for figure in figures]


def _series(rows: Sequence[dict[str, str]], column: str, label: str) -> Series:
    """A column of Lightning's `metrics.csv` over `step`, where it has values."""
    known = [(float(row["step"]), float(row[column])) for row in rows if row.get(column)]
    return Series([x for x, _ in known], [y for _, y in known], label)


def _environment(summary: dict[str, Any]) -> dict[str, str]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    here = {"platform": platform.platform(), "cores": str(os.cpu_count()), "accelerator": device}
    return {**summary["versions"], "seed": str(summary["seed"]), **{f"{k} (of this page)": v for k, v in here.items()}}


def _write(path: Path, title: str, runs: Sequence[Run], failures: Sequence[str]) -> Path:
    subtitle = f"seqkit {runs[0].summary['versions']['seqkit']}" if runs else "no run finished"
    return render("page.html", path, title=title, subtitle=subtitle, runs=runs, failures=failures, shown=shown)


def render(template: str, path: Path, **values: Any) -> Path:
    """Fill a template of this package, in the common style, and write it whole or not at all."""
    here = files("seqkit.report")
    loader = PackageLoader("seqkit.report", ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    style = here.joinpath("page.css").read_text(encoding="utf-8")
    page = environment.get_template(template).render(style=style, **values)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(page, encoding="utf-8")
    part.replace(path)
    return path
