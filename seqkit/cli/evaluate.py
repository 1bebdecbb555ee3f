"""`seqkit test RUN` and `seqkit validate RUN`."""

from __future__ import annotations

from argparse import Namespace


def run(args: Namespace) -> int:
    """Print a run's metrics on the test or validation split."""
    from seqkit.runs.run import evaluate

    for name, value in evaluate(args.run, "test" if args.command == "test" else "valid").items():
        print(f"{name:12} {value:.4f}")
    return 0
