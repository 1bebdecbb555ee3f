"""`seqkit attention RUN --input FILE`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from seqkit.cli.options import ONE_INPUT, add_data, add_out, add_run, whole
from seqkit.cli.out import check_folder
from seqkit.errors import UsageError, one_line


def run(args: Namespace) -> int:
    """Draw a run's attention on one example; print what the model predicts for it, and where the page is."""
    given = args.input is not None
    if given and args.data is not None:
        raise UsageError(
            "--data is where the run's data is, for --example; leave it out with --input"
        )
    out = args.out or args.run / "attention"
    check_folder(out, [args.input] if given else [], force=args.force or args.out is None)
    from seqkit.report.attention import view_example, view_input

    if given:
        page, said = view_input(args.run, args.input, out)
    else:
        page, said = view_example(args.run, args.example, out, args.data)
    for line in filter(None, (said, str(page))):
        print(one_line(line))
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_run(parser)
    add_data(parser)
    example = parser.add_mutually_exclusive_group(required=True)
    example.add_argument("--input", metavar="FILE", help=ONE_INPUT)
    text = "example N of the run's test data, counted from 0"
    example.add_argument("--example", type=whole, metavar="N", help=text)
    add_out(parser, "folder for the page (default RUN/attention)")
