"""`seqkit evaluate RUN`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from math import isnan

from seqkit.cli.options import add_data, add_run
from seqkit.errors import one_line


def run(args: Namespace) -> int:
    """Print a run's metrics on a split; on the test split, this also finishes a run that was not tested."""
    from seqkit.report.beside import Scored
    from seqkit.report.headline import of_class
    from seqkit.report.page import write_report
    from seqkit.runs.mixture import evaluate_run
    from seqkit.runs.summary import read_summary, state, task_folders

    was_trained = state(args.run) == "trained"
    folders = task_folders(args.run)
    for task, metrics in evaluate_run(args.run, args.split, Scored, args.data).items():
        summary = read_summary(folders[task] if task else args.run)
        for name, value in metrics.items():
            known = f"{value:.4f}" if not isnan(value) else "–  (undefined on this split)"
            label = name + of_class(summary, name)
            print(f"{one_line(f'{task}/{label}' if task else label):12} {known}")
    if was_trained and args.split == "test":
        write_report(args.run, args.data)
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_run(parser)
    add_data(parser)
    parser.add_argument(
        "--split", choices=("test", "valid"), default="test", help="test (default) or valid"
    )
