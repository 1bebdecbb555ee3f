"""`seqkit inspect RECIPE`."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from seqkit.config import complete


def run(args: Namespace) -> int:
    """Draw how one real example of a recipe's data becomes tokens; print where the picture is."""
    from seqkit.report.inspect import inspect

    folder = args.out or Path("runs") / "inspect"
    config = complete(args.recipe, args.preset, args.overrides)
    print(inspect(config, folder / f"{args.recipe.replace('/', '-')}.png"))
    return 0
