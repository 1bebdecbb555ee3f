"""`seqkit describe PRESET|RECIPE`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from seqkit.cli.options import add_recipe, whole
from seqkit.config import complete, recipe_names
from seqkit.config.recipe import is_recipe
from seqkit.errors import UsageError, printable
from seqkit.registry import components, suggest


def run(args: Namespace) -> int:
    """Print parameters, FLOPs and memory of a preset or a recipe's model."""
    length, presets = args.context_length, components("preset")
    if length is not None and length < 1:
        raise UsageError(f"--context-length {length} counts tokens; give 1 or more")
    if args.what in presets:
        if wrong_options := [*args.overrides, *(["--preset"] if args.preset is not None else [])]:
            wrong = wrong_options[0]
            raise UsageError(f"{args.what} is a backbone of fixed size and takes no {wrong}")
        from seqkit.analysis.cost import describe

        print(printable(describe(args.what, context_length=length)))
        return 0
    mixture = args.what.rpartition("/")[0]
    if not any(is_recipe(name) or name.endswith((".yaml", ".yml")) for name in (args.what, mixture)):
        known = [*presets, *recipe_names()]
        raise UsageError(f"there is no preset or recipe called {args.what!r}; {suggest(args.what, known)}")
    config = complete(args.what, args.preset, args.overrides)
    from seqkit.analysis.cost import describe_recipe

    print(printable(describe_recipe(config, context_length=length)))
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_recipe(parser, "what", help="a preset (seqkit list presets), or a recipe's name or YAML file")
    text = "number of tokens (default: as published, or as in the data)"
    parser.add_argument("--context-length", type=whole, help=text)
