"""`seqkit test RUN` and `seqkit validate RUN`."""

from __future__ import annotations

from argparse import Namespace

from seqkit.errors import one_line


def run(args: Namespace) -> int:
    """Print a run's metrics on the test or validation split; `test` also finishes a run that was not tested."""
    from seqkit.report.page import write_report
    from seqkit.runs.evaluate import evaluate
    from seqkit.runs.trained_model import state

    was_trained = state(args.run) == "trained"
    for name, value in evaluate(args.run, "test" if args.command == "test" else "valid").items():
        print(f"{one_line(name):12} {value:.4f}")
    if was_trained and args.command == "test":
        write_report(args.run)
    return 0
