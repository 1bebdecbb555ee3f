"""`seqkit scale FOLDER`: how the loss falls with the number of parameters, from the finished runs in a folder."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from seqkit.cli.options import add_out
from seqkit.cli.out import check_folder
from seqkit.errors import UsageError, one_line


def run(args: Namespace) -> int:
    """Print the power law of the runs and where its figure is."""
    from seqkit.runs.summary import find_runs

    folder = args.out or args.folder / "scaling"
    check_folder(folder, force=args.force or args.out is None)
    found = [
        (row.recipe, row.summary)
        for row in find_runs(args.folder)
        if row.summary and row.state == "finished" and "loss" in row.summary["metrics"]
    ]
    sound = [(recipe, run) for recipe, run in found if not run.get("broken_laws")]
    if len(sound) < len(found):
        print(f"left out, as they break a law: {len(found) - len(sound)} of {len(found)} runs")
    found = sound
    tested = {(recipe, str(run.get("data_sha256", {}).get("test"))) for recipe, run in found}
    if len(tested) > 1:
        recipes = ", ".join(sorted({recipe for recipe, _ in tested}))
        raise UsageError(
            f"the runs in {args.folder} are of {recipes} on several test splits; give runs of one"
        )
    sizes = [run["num_parameters"] for _, run in found]
    losses = [run["metrics"]["loss"] for _, run in found]
    from seqkit.comparison.scaling import fit_power_law
    from seqkit.report.figures import png
    from seqkit.report.scaling import power_law_figure

    law = fit_power_law(sizes, losses)
    print(f"{len(found)} runs of {len(set(sizes))} sizes: {law}")
    print(one_line(png(power_law_figure(sizes, losses, law.at), folder / "scaling.png")))
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "folder", type=Path, help="a folder with runs of one recipe in three sizes or more"
    )
    add_out(parser, "folder for the figure (default: FOLDER/scaling)")
