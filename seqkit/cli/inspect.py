"""`seqkit inspect RECIPE`."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from seqkit.config import complete
from seqkit.errors import UsageError, one_line


def run(args: Namespace) -> int:
    """Draw how one real example of a recipe's data becomes tokens; print where the picture is."""
    folder = args.out or Path("runs") / "inspect"
    if folder.is_file():
        raise UsageError(f"--out {folder} is a file; give the folder for the picture")
    config = complete(args.recipe, args.preset, args.overrides)
    from seqkit.report.inspect import inspect

    print(one_line(inspect(config, folder / f"{config['recipe'].replace('/', '-')}.png", given=args.input)))
    return 0
