"""`seqkit fit RECIPE`, and the same from Python: `seqkit.fit`."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.config import complete, explain, to_yaml

if TYPE_CHECKING:
    from seqkit.runs.trained_model import TrainedModel


def run(args: Namespace) -> int:
    """Train, test, write the run folder with its report, print the result."""
    config = complete(args.recipe, args.preset, args.overrides)
    if args.keys:
        for key, value, what in explain(config):
            print(f"--{key} {value}\n    {what}")
        return 0
    if args.print_config:
        print(to_yaml(config), end="")
        return 0
    from rich.console import Console

    from seqkit.report.table import result_table

    folder, summary = _fit(config, args.out)
    console = Console()
    console.print(result_table([summary]))
    console.print(f"run     {folder}\nreport  {folder / 'report.html'}", highlight=False, soft_wrap=True)
    if not summary["finished"]:
        print(f"seqkit fit: stopped after {summary['steps']} steps; {folder} holds the weights so far", file=sys.stderr)
    return 0 if summary["finished"] else 1


def fit(
    recipe: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
    out: str | Path | None = None,
) -> TrainedModel:
    """Train a recipe, test it, write the run folder with its report, and give the trained model back.

    recipe: name, path of a YAML file, or a configuration as plain data. overrides: values by dotted key, such as
    `{"model.backbone": "LSTM"}`. out: the run folder, which must not exist yet; None: runs/RECIPE/TIME.
    Raises UsageError, DataError or DivergedError, each with one line.
    """
    from seqkit.runs.trained_model import load

    folder, _ = _fit(
        complete(recipe, preset, {} if overrides is None else overrides), None if out is None else Path(out)
    )
    return load(folder)


def _fit(config: Mapping[str, Any], out: Path | None) -> tuple[Path, dict[str, Any]]:
    from seqkit.report.page import write_report
    from seqkit.runs.run import new_folder
    from seqkit.runs.run import run as train

    folder = new_folder(config["recipe"]) if out is None else out
    summary = train(config, folder)
    write_report(folder)
    return folder, summary
