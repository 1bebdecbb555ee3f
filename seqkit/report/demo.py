"""`make demo`: one recipe per modality through the same backbone class, and one page with all of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from seqkit.config import complete, find_recipe
from seqkit.errors import Interrupted, one_line
from seqkit.report.headline import ResultTable
from seqkit.report.page import write_overview
from seqkit.runs.folder import new_folder
from seqkit.runs.run import run

RECIPES = ("text/char-lm", "image/digits", "audio/spoken-digits", "graph/solubility")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train each recipe, print one table and the path of one report.

    Returns 1 if one failed (the others still run) or was stopped (the others do not), else 0.
    """
    parser = argparse.ArgumentParser(prog="python -m seqkit.report.demo", description=__doc__)
    parser.add_argument("recipes", nargs="*", help=f"default: {' '.join(RECIPES)}")
    parser.add_argument("--preset", default="demo", help="preset of each recipe (default: demo)")
    parser.add_argument("--out", type=Path, help="folder for runs and report (default: runs/demo/TIME)")
    args = parser.parse_args(arguments)
    console = Console(highlight=False, markup=False, emoji=False)
    folder = args.out or new_folder("demo")
    runs: list[tuple[Path, dict[str, Any]]] = []
    failures: list[str] = []
    recipes = args.recipes or RECIPES
    for i, name in enumerate(recipes, start=1):
        try:
            console.rule(Text(f"{i} of {len(recipes)}: {one_line(name)}"), align="left")
            console.print(one_line(_first_line(name)), soft_wrap=True)
            config = complete(name, args.preset)
            runs.append((folder / config["recipe"], run(config, folder / config["recipe"])))
        except Interrupted as stop:  # Ctrl-C ends the demo, not one recipe of it
            failures.append(f"{name}: {stop}")
            break
        except Exception as error:  # whatever it is, the other recipes still have something to show
            failures.append(f"{name}: {' '.join(str(error).split())}")
            console.print_exception(max_frames=4)
    page = write_overview(
        [path for path, _ in runs], folder / "report.html", title="One backbone, four modalities", failures=failures
    )
    console.rule("results", align="left")
    console.print(ResultTable([summary for _, summary in runs]))
    for failure in failures:
        console.print(f"FAILED {one_line(failure)}", style="red", soft_wrap=True)
    console.print(f"report  {one_line(page.absolute())}", soft_wrap=True)
    return 1 if failures else 0


def _first_line(recipe: str) -> str:
    """The title of a recipe file."""
    return find_recipe(recipe)[1].read_text(encoding="utf-8").splitlines()[0].lstrip("# ")


if __name__ == "__main__":
    sys.exit(main())
