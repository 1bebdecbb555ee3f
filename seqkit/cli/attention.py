"""`seqkit attention RUN --input FILE`."""

from __future__ import annotations

from argparse import Namespace

from seqkit.cli.out import check_folder
from seqkit.errors import one_line


def run(args: Namespace) -> int:
    """Draw a run's attention on one example; print what the model predicts for it, and where the page is."""
    given = args.input is not None
    out = args.out or args.run / "attention"
    check_folder(out, [args.input] if given else [], force=args.force or args.out is None)
    from seqkit.report.attention import view_example, view_input

    if given:
        page, said = view_input(args.run, args.input, out)
    else:
        page, said = view_example(args.run, args.example, out)
    for line in filter(None, (said, str(page))):
        print(one_line(line))
    return 0
