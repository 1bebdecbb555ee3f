"""`seqkit list`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from seqkit.cli.options import add_recipe
from seqkit.config.recipe import find_recipe, recipe_names
from seqkit.errors import UsageError, one_line, printable
from seqkit.registry import KINDS, components, suggest
from seqkit.registry.lookup import name_conflicts

USUAL: tuple[str, ...] = ("recipe", "data_source", "tokenizer", "backbone", "objective")


def run(args: Namespace) -> int:
    """Print what there is of a kind and when to use it, or the size of a recipe's or a preset's model."""
    from seqkit.cli.parser import is_recipe

    if args.what is not None and (is_recipe(args.what) or args.what in components("preset")):
        return _describe(args)
    plural = {f"{kind}s": kind for kind in (*KINDS, "recipe")}
    plural |= {"data": "data_source", "datasets": "data_source"}
    kinds = USUAL
    if args.what is not None:
        kinds = (plural.get(args.what.replace(" ", "_"), args.what),)
    if not set(kinds) <= set(plural.values()):
        known = [*plural, *recipe_names(), *components("preset")]
        raise UsageError(
            f"there is nothing called {args.what!r} to list; {suggest(args.what, known)}"
        )
    if args.preset or args.overrides:
        raise UsageError(
            "keys are a recipe's; give its name or its YAML file: seqkit list RECIPE --key value"
        )
    for kind in kinds:
        _print_kind(kind)
    return 0


def _describe(args: Namespace) -> int:
    from seqkit.config import complete

    if args.what in components("preset"):
        if args.preset or args.overrides:
            raise UsageError(f"{args.what} is a backbone of fixed size and takes no keys")
        from seqkit.analysis.cost import describe

        print(printable(describe(args.what)))
        return 0
    # a mistake is said before what imports torch
    config = complete(args.what, args.preset, args.overrides)
    from seqkit.analysis.cost import describe_recipe

    print(printable(describe_recipe(config)))
    return 0


def _print_kind(kind: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, emoji=False)
    table = Table(title=f"{kind.replace('_', ' ')}s", title_justify="left", box=None)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what")
    if kind == "recipe":
        for name in recipe_names():
            first = find_recipe(name)[1].read_text(encoding="utf-8").splitlines()[0]
            table.add_row(one_line(name), one_line(first.lstrip("# ")))
    else:
        table.add_column("when to use it")
        for component in components(kind).values():
            table.add_row(*map(one_line, (component.name, component.what, component.when)))
    console.print(table)
    if kind != "recipe":
        for sentence in name_conflicts(kind):
            console.print(one_line(sentence), soft_wrap=True)
    console.print()


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    what = "recipes, tokenizers, backbones, …; or the name of one recipe or preset"
    add_recipe(parser, "what", nargs="?", help=what)
