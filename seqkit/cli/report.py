"""`seqkit report RUN…`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from seqkit.cli.options import add_data, add_out
from seqkit.cli.out import check_file
from seqkit.errors import UsageError, one_line


def run(args: Namespace) -> int:
    """Write a run's page again, or one page of several runs."""
    from seqkit.runs.summary import check_trained

    if args.data is not None and args.runs[1:]:
        raise UsageError("--data is where the data of one run is; give one run")
    several = Path("runs") / "report.html" if args.out is None and args.runs[1:] else None
    check_file(args.out or several, force=args.force or several is not None, makes_folder=True)
    for folder in args.runs:
        check_trained(folder)
    from seqkit.report.page import write_overview, write_report

    if len(args.runs) == 1 and args.out is None:
        path = write_report(args.runs[0], args.data)
    else:
        out = args.out or several
        assert out is not None
        path = write_overview(args.runs, out, title=f"{len(args.runs)} runs", moved_to=args.data)
    print(f"report  {one_line(path)}")
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="one or more run folders")
    add_data(parser)
    add_out(
        parser,
        "the page (default: RUN/report.html, or runs/report.html for several runs)",
        metavar="FILE",
    )
