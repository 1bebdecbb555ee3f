"""`seqkit list [KIND]`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from seqkit.config.recipe import find_recipe, recipe_names
from seqkit.errors import UsageError, one_line
from seqkit.registry import KINDS, components, suggest
from seqkit.registry.builtin import Component
from seqkit.registry.lookup import name_conflicts

USUAL = ("recipe", "data_source", "tokenizer", "backbone", "objective")


def _problem(component: Component) -> str:
    """Why a component of an installed package cannot be imported; empty if it can."""
    if not component.package:
        return ""
    try:
        component.load()
    except ValueError as error:
        return str(error)
    return ""


def run(args: Namespace) -> int:
    """Print what there is of one kind, or of the usual ones, and when to use it."""
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, emoji=False)
    plural = {f"{kind}s": kind for kind in (*KINDS, "recipe")} | {"data": "data_source", "datasets": "data_source"}
    what = None if args.what is None else plural.get(args.what.replace(" ", "_"), args.what)
    if what is not None and what not in plural.values():
        raise UsageError(f"there is nothing called {args.what!r} to list; {suggest(args.what, plural)}")
    for kind in (what,) if what else USUAL:
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
                when = _problem(component) or component.when
                table.add_row(*map(one_line, (component.name, component.what, when)))
        console.print(table)
        for sentence in [] if kind == "recipe" else name_conflicts(kind):
            console.print(one_line(sentence), soft_wrap=True)
        console.print()
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("what", nargs="?", help="recipes, tokenizers, backbones, …")
