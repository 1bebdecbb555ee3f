"""`seqkit scale RECIPE --sizes 16,32,64,128`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from seqkit.cli.options import add_recipe, add_study
from seqkit.config import complete
from seqkit.errors import UsageError, one_line


def run(args: Namespace) -> int:
    """Train the sizes, print the laws and where the page is."""
    complete(args.recipe, args.preset, args.overrides)  # a mistake is said before what imports torch
    from seqkit.comparison.compare import check_jobs, default_folder, make_plan
    from seqkit.comparison.scaling import comparisons, scale

    check_jobs(args.jobs)
    widths = [int(x) for x in _numbers(args.sizes, "--sizes")]
    shares = _numbers(args.data_sizes, "--data-sizes") if args.data_sizes else []
    same = ("recipe", "preset", "overrides", "seeds", "lr_trials", "trial_share")
    base: dict[str, Any] = {name: getattr(args, name) for name in same}
    base["plugins"] = [str(path) for path in args.plugin]
    parts = comparisons(base, widths, shares)
    folder = args.out or default_folder(parts[0][1], Path("runs/scale"))
    for _, settings, name in parts:
        plan = make_plan(settings)
        print(f"{one_line(name):12} {len(plan.candidates)} sizes, {plan.num_cells} runs or more")
    print(f"folder  {one_line(folder)}")
    if args.dry_run:
        return 0
    from rich.console import Console

    from seqkit.report.comparison import write_comparison
    from seqkit.report.scaling import scaling_table

    results = scale(base, widths, shares, folder, jobs=args.jobs)
    write_comparison(folder)
    Console(markup=False, emoji=False).print(scaling_table(results))
    print(f"{one_line(results['answer'])}\nreport  {one_line(folder / 'report.html')}")
    return 0


def _numbers(text: str, option: str) -> list[float]:
    """Numbers with commas between them, within what the option allows."""
    try:
        found = [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise UsageError(f"{option} is {text!r}; give numbers with commas between, such as 16,32,64") from None
    if option == "--sizes" and any(x != int(x) or x < 1 for x in found):
        raise UsageError(f"--sizes is {text!r}; widths are whole numbers from 1")
    if option == "--data-sizes" and any(not 0 < x <= 1 for x in found):
        raise UsageError(f"--data-sizes is {text!r}; give shares of the training split, above 0 and up to 1")
    return found


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_recipe(parser)
    parser.add_argument("--sizes", required=True, metavar="W,W,…", help="widths of the backbone, three or more")
    shares = "shares of the training data for the largest width, three or more"
    parser.add_argument("--data-sizes", metavar="S,S,…", help=shares)
    add_study(parser, "size")
