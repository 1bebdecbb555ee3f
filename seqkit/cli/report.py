"""`seqkit report RUN`."""

from __future__ import annotations

from argparse import Namespace


def run(args: Namespace) -> int:
    """Write a run's page again."""
    from seqkit.errors import one_line
    from seqkit.report.page import write_report

    print(f"report  {one_line(write_report(args.run))}")
    return 0
