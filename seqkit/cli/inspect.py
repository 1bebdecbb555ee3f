"""`seqkit inspect RECIPE`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from seqkit.cli.options import ONE_INPUT, add_out, add_recipe
from seqkit.cli.out import check_folder
from seqkit.config import complete
from seqkit.errors import one_line
from seqkit.runs.folder import as_seen_from_here


def run(args: Namespace) -> int:
    """Draw how one real example of a recipe's data becomes tokens; print where the picture is."""
    folder = args.out or Path("runs") / "inspect"
    inputs = [] if args.input is None else [args.input]
    check_folder(folder, inputs, force=args.force or args.out is None)
    config = complete(args.recipe, args.preset, args.overrides)
    config = as_seen_from_here(config, Path(args.recipe).parent)  # of a run's config.yaml
    from seqkit.report.inspect import inspect

    picture = folder / f"{config['recipe'].replace('/', '-')}.png"
    print(one_line(inspect(config, picture, given=args.input)))
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_recipe(parser)
    parser.add_argument("--input", metavar="FILE", help=f"your own example: {ONE_INPUT}")
    add_out(parser, "folder for the picture (default runs/inspect)")
